"""The report of a migration, as `--json` shows it: the names of its fields are part of the command's contract.

Nothing is skipped silently. What could not be read, or was left in the other home, is in `skipped` with its file, line
and reason. The first 10,000 are listed and all are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from msgspec import Struct

MOST_LISTED = 10_000  # skipped items, or places that look like secrets
Origin = Literal["live", "earlier", "reset", "deleted", "unreferenced"]
Outcome = Literal["new", "same", "grown", "left"]
JobOutcome = Literal["new", "same", "changed", "left"]
SettingOutcome = Literal["taken", "kept-yours", "secret", "held", "left", "refused"]


class SkippedItem(Struct, frozen=True):
    """`line` counts from 1; 0 when it is about the whole file."""

    file: str
    line: int
    reason: str


class Finding(Struct, frozen=True):
    """A place that holds what looks like a secret. The secret itself is never shown."""

    file: str
    line: int


class FoundAgent(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    name: str
    configured: bool  # False: there is only its folder
    is_default: bool = False
    workspace: str = ""  # where its files are
    into: str = ""  # where they go


class FoundSession(Struct, frozen=True, rename="camel"):
    agent: str
    key: str
    session_id: str
    entries: dict[str, int]  # by type
    messages: dict[str, int]  # by role
    archived: bool
    origin: Origin
    file: str
    label: str = ""
    texts: int = 0
    texts_sha256: str = ""  # of what users and assistants said, joined with U+001E
    skipped: int = 0  # lines of it that could not be read
    same_as: str = ""  # another key of the same transcript
    outcome: Outcome = "new"
    into: str = ""  # our session's id
    note: str = ""


class FoundJob(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    name: str
    agent: str
    enabled: bool
    schedule: Any
    where: str
    managed: bool = False  # made by the program itself, which makes it again
    outcome: JobOutcome = "new"
    next_run_at: str = ""  # here; empty: it does not run
    note: str = ""


class FoundApproval(Struct, frozen=True, rename="camel"):
    agent: str
    pattern: str
    where: str
    note: str = ""


class FoundSkill(Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str
    path: str
    agent: str = ""  # whose workspace it is in; empty: shared by all
    version: str = ""
    registry: str = ""
    slug: str = ""


class FoundFile(Struct, frozen=True, rename="camel", omit_defaults=True):
    agent: str
    path: str  # in the workspace
    bytes: int
    outcome: Outcome = "new"


class FoundProfile(Struct, frozen=True, rename="camel"):
    """A key of a model provider: its name and kind, never the key."""

    agent: str
    id: str
    kind: str
    where: str


class FoundSetting(Struct, frozen=True, omit_defaults=True):
    """A setting of the other config: what became of it, and the reason if it was not taken."""

    path: str
    outcome: SettingOutcome
    reason: str = ""
    value: str = ""  # of a setting that a person has to allow: as JSON, shortened, secrets masked


class MigrationReport(Struct, frozen=True, rename="camel"):
    source: str
    version: str = ""  # of the program that wrote it last; empty: unknown
    applied: bool = False
    agents: tuple[FoundAgent, ...] = ()
    sessions: tuple[FoundSession, ...] = ()
    cron_jobs: tuple[FoundJob, ...] = ()
    approvals: tuple[FoundApproval, ...] = ()
    skills: tuple[FoundSkill, ...] = ()
    workspace_files: tuple[FoundFile, ...] = ()
    auth_profiles: tuple[FoundProfile, ...] = ()
    documents: tuple[str, ...] = ()  # stored unchanged for later use
    skipped: tuple[SkippedItem, ...] = ()
    skipped_total: int = 0
    secrets: tuple[Finding, ...] = ()
    secrets_total: int = 0
    notes: tuple[str, ...] = ()  # what is not carried over, and why
    bytes: int = 0
    seconds: float = 0.0
    config: tuple[FoundSetting, ...] = ()


class MigrationProgress(Struct, frozen=True):
    stage: Literal["sessions", "files"]
    done: int  # bytes of transcripts, or files
    total: int


class Losses:
    """Collects skipped items. All are counted, the first are listed.

    Several transcripts are read at a time, and some twice: a reader sets in its own context (which its threads share)
    whether losses count for its transcript, or are known from the first reading.
    """

    def __init__(self) -> None:
        self.listed: list[SkippedItem] = []
        self.total = 0
        self._reading: ContextVar[LossCount | None] = ContextVar("reading", default=None)

    def add(self, file: str, line: int, reason: str) -> None:
        reading = self._reading.get()
        if reading is not None and reading.again:
            return
        if reading is not None:
            reading.count += 1
        self.total += 1
        if len(self.listed) < MOST_LISTED:
            self.listed.append(SkippedItem(file, line, reason))

    def clear(self) -> None:
        self.listed, self.total = [], 0

    @contextmanager
    def counted(self) -> Iterator[LossCount]:
        """Losses inside the block are also counted in the result."""
        counted = LossCount()
        token = self._reading.set(counted)
        try:
            yield counted
        finally:
            self._reading.reset(token)


class LossCount(Struct):
    count: int = 0
    again: bool = False  # the transcript is read a second time, and its losses are known


class SecretFindings(Struct):
    """Collects places that look like secrets. All are counted, the first are listed."""

    listed: list[Finding] = []
    total: int = 0

    def add(self, file: str, line: int) -> None:
        self.total += 1
        if len(self.listed) < MOST_LISTED:
            self.listed.append(Finding(file, line))
