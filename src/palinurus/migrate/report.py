"""What a migration found and did, as a program reads it (`--json`): the names are part of the command's contract.

Nothing is dropped in silence. Whatever could not be read, or was left where it is, stands in `skipped` with its file,
its line and the reason; when there are very many, the first are listed and all are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from msgspec import Struct

MOST_LISTED = 10_000  # of the things that were skipped, or look like secrets

Origin = Literal["live", "earlier", "reset", "deleted", "unreferenced"]
Outcome = Literal["new", "same", "grown", "left"]
SettingOutcome = Literal["taken", "kept-yours", "secret", "held", "left", "refused"]


class Skipped(Struct, frozen=True):
    """`line` counts from 1; 0 when it is about the whole file."""

    file: str
    line: int
    reason: str


class Finding(Struct, frozen=True):
    """A place that holds what looks like a secret. What it is, is told nowhere."""

    file: str
    line: int


class FoundAgent(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    name: str
    configured: bool  # False: it has only left its folder
    is_default: bool = False
    workspace: str = ""  # where its files are now
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
    same_as: str = ""  # another key under which the same transcript stands
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
    managed: bool = False  # the program's own, which it declares anew by itself


class FoundApproval(Struct, frozen=True, rename="camel"):
    agent: str
    pattern: str
    where: str
    note: str = ""


class FoundSkill(Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str
    path: str
    agent: str = ""  # whose workspace it is in; empty: everybody's
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
    """Something that the other config says: what became of it, and why it is not simply taken."""

    path: str
    outcome: SettingOutcome
    reason: str = ""
    value: str = ""  # of one that a person has to allow: as JSON, shortened, secrets masked


class MigrationReport(Struct, frozen=True, rename="camel"):
    source: str
    version: str  # of the program that wrote it last, as far as it says
    applied: bool
    agents: tuple[FoundAgent, ...]
    sessions: tuple[FoundSession, ...]
    cron_jobs: tuple[FoundJob, ...]
    approvals: tuple[FoundApproval, ...]
    skills: tuple[FoundSkill, ...]
    workspace_files: tuple[FoundFile, ...]
    auth_profiles: tuple[FoundProfile, ...]
    documents: tuple[str, ...]  # kept word for word until the rooms that use them open
    skipped: tuple[Skipped, ...]
    skipped_total: int
    secrets: tuple[Finding, ...]
    secrets_total: int
    notes: tuple[str, ...]  # what does not come over, and why
    bytes: int
    seconds: float
    config: tuple[FoundSetting, ...] = ()


def only_settings(source: str, settings: tuple[FoundSetting, ...]) -> MigrationReport:
    """The report on a home of which nothing but the config was read."""
    return MigrationReport(source, "", False, (), (), (), (), (), (), (), (), (), 0, (), 0, (), 0, 0.0, settings)


class MigrationProgress(Struct, frozen=True):
    stage: Literal["sessions", "files"]
    done: int  # bytes of transcripts, or files
    total: int


class Losses:
    """Collects what was skipped. All are counted, the first are listed.

    Transcripts are read several at a time, and some of them twice: whoever reads says in its own context (which its
    threads share) whether losses are to be counted for it, or are known already.
    """

    def __init__(self) -> None:
        self.listed: list[Skipped] = []
        self.total = 0
        self._reading: ContextVar[Counted | None] = ContextVar("reading", default=None)

    def add(self, file: str, line: int, reason: str) -> None:
        reading = self._reading.get()
        if reading is not None and reading.again:
            return
        if reading is not None:
            reading.count += 1
        self.total += 1
        if len(self.listed) < MOST_LISTED:
            self.listed.append(Skipped(file, line, reason))

    def clear(self) -> None:
        self.listed, self.total = [], 0

    @contextmanager
    def counted(self) -> Iterator[Counted]:
        """What is lost inside is counted here as well."""
        counted = Counted()
        token = self._reading.set(counted)
        try:
            yield counted
        finally:
            self._reading.reset(token)


class Counted(Struct):
    count: int = 0
    again: bool = False  # what is read now was read before, and its losses are known


class Findings:
    """Collects places that look like secrets, in the same way."""

    def __init__(self) -> None:
        self.listed: list[Finding] = []
        self.total = 0

    def add(self, file: str, line: int) -> None:
        self.total += 1
        if len(self.listed) < MOST_LISTED:
            self.listed.append(Finding(file, line))
