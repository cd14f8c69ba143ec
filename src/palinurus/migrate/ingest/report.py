"""What a run has read and written, as a program reads it (`--json`)."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from palinurus.migrate.ingest.fact import Role
from palinurus.migrate.report import Skipped

SourceOutcome = Literal["new", "changed", "same", "gone"]
PageOutcome = Literal["new", "changed", "same", "removed", "away"]


class ReadSource(Struct, frozen=True, rename="camel"):
    path: str
    agent: str
    role: Role
    outcome: SourceOutcome
    facts: int


class MadePage(Struct, frozen=True, rename="camel", omit_defaults=True):
    """`away`: a person has deleted it, and it stays deleted."""

    path: str
    kind: str
    title: str
    outcome: PageOutcome
    facts: int = 0
    prose: Literal["", "model", "kept", "refused"] = ""  # refused: what the model wrote was not true to the facts
    kept_lines: int = 0  # of a person, that stood in our part
    thrown_out: int = 0  # facts that a person has thrown out


class IngestReport(Struct, frozen=True, rename="camel"):
    source: str
    wiki: str
    applied: bool
    sources: tuple[ReadSource, ...]
    pages: tuple[MadePage, ...]
    facts: int
    redacted: int  # secrets that were taken out of sources that were read in this run
    left_out: dict[str, int]  # on purpose, by reason
    skipped: tuple[Skipped, ...]  # what could not be read
    skipped_total: int
    model: str
    model_error: str  # why it was not asked any more
    requests: int
    changed: bool
    seconds: float


class IngestProgress(Struct, frozen=True):
    stage: Literal["reading", "asking"]
    done: int
    total: int
