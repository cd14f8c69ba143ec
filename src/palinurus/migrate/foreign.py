"""What a reader of a foreign home hands over: agents, transcripts and documents, each as it was written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct

from palinurus.migrate.report import FoundApproval, FoundFile, FoundJob, FoundSkill, Losses, Origin
from palinurus.sessions.session import Session
from palinurus.sessions.transcript import Row


class ForeignEntry(Struct, frozen=True, gc=False):
    """One line of a transcript. `row.payload` is its text as it was written; the rest is what we read in it."""

    row: Row
    kind: str  # its type; `flat:<role>` for lines that are bare messages
    role: str  # of a message; empty for other entries
    text: str  # what was said
    number: int  # of the line or the row
    stamp: str | float | None = None  # when, as it was written


class ForeignAgent(Struct, frozen=True):
    id: str
    folder: Path | None  # of its state
    workspace: Path | None
    name: str = ""
    emoji: str = ""
    configured: bool = False
    is_default: bool = False
    marked: bool = False  # the config says so, or its name does


class ForeignSession(Struct, frozen=True):
    """A transcript with what was known about it. `read` may be called again, and reads it anew each time.

    Reading never raises because of what stands in the file: that is told to the losses the reader was made with.
    """

    agent: str
    key: str
    session_id: str
    origin: Origin
    file: str  # relative to the home, for people
    read: Callable[[], Iterator[ForeignEntry]]
    size: int = 0
    details: str = ""  # its row in the store of sessions: a JSON object, word for word
    label: str = ""
    updated_at: int = 0
    same_as: str = ""  # an earlier key with the same transcript
    own: Session | None = None  # its row, when it was a conversation of a Palinurus
    extra: str = ""  # of that one: fields that it did not know either, a JSON object


class ForeignDocument(Struct, frozen=True):
    """Something that is kept word for word until the room that uses it opens."""

    kind: Literal["cron", "pairing", "approvals"]
    name: str
    text: str


class ForeignDocuments(Protocol):
    """What is kept word for word, and what the report shows of it."""

    @property
    def kept(self) -> Sequence[ForeignDocument]: ...

    @property
    def jobs(self) -> Sequence[FoundJob]: ...

    @property
    def approvals(self) -> Sequence[FoundApproval]: ...


class ForeignSettings(Protocol):
    """The config of a home, as far as it is told."""

    @property
    def file(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def data(self) -> dict[str, Any]: ...


class ForeignHome(Protocol):
    """A home that is open for reading. Nothing of it raises because of what stands in a file: `losses` tells that."""

    root: Path
    losses: Losses
    agents: list[ForeignAgent]

    @property
    def config(self) -> ForeignSettings: ...

    @property
    def documents(self) -> ForeignDocuments: ...

    def sessions(self) -> Iterator[ForeignSession]: ...

    def skills(self) -> list[FoundSkill]: ...

    def workspace_files(self) -> Iterator[tuple[FoundFile, Path]]: ...

    def stored_keys(self) -> list[ForeignSecrets]:
        """The stored keys of model providers. Ask only when a person has asked."""

    def close(self) -> None: ...


class ForeignSecrets(Struct, frozen=True):
    """The stored keys of one agent. Never shown."""

    agent: str  # empty: everybody's
    where: str
    profiles: dict[str, Any]
    order: dict[str, tuple[str, ...]] = {}  # provider -> ids, the first to be asked first
