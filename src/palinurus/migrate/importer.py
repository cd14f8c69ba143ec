"""What migrate needs of a keeper that takes conversations in. One contract suite holds every keeper to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from palinurus.migrate.foreign import ForeignDocument, ForeignEntry
from palinurus.sessions.session import Session

BETWEEN = b"\x1e"  # behind each entry, in a digest of entries


class Destination(Struct, frozen=True):
    """Where files go."""

    workspaces: Mapping[str, Path]  # by agent
    skills: Path  # of those that are everybody's


class Stored(Struct, frozen=True):
    """How much of a source is here. Entries come in their order, so the count says which."""

    session_id: str
    entries: int = 0
    digest: str = ""  # of these entries
    finished: bool = False
    shown: bool = False
    continued: bool = False  # something was said in it here since


class Shown(Struct, frozen=True):
    """A conversation that has just become visible."""

    session_id: str
    key: str
    archived: bool
    note: str = ""  # why it is not the current one of its key, when it was meant to be


class SessionImporter(Protocol):
    """Takes conversations in, a batch at a time, and shows all that are whole at once.

    What is not shown yet is found by nobody, holds no key and may be taken back. When a call that writes returns, what
    it wrote is on the disk. A source is a text that names one transcript of one home, for good.
    """

    async def stored(self, source: str) -> Stored | None: ...

    async def begin(self, source: str, session: Session) -> Stored:
        """Make room for a transcript. The session's id is the one it should have; another is chosen if it is taken."""

    async def add(self, source: str, entries: Sequence[ForeignEntry], digest: str) -> None:
        """The next entries, and the digest of all so far. Two entries of one id are both kept.

        Before a compaction or a reset goes in, a record says that what it puts away is saved: it was put away in the
        other home already.
        """

    async def finish(self, source: str, session: Session, details: str) -> None:
        """It is whole. `session` is its row as it will be, save for the id; `details` is what we do not understand."""

    async def discard(self, source: str) -> None:
        """Take back what was not shown yet. Raises StorageError for one that was."""

    async def show(self) -> list[Shown]:
        """Make all that are whole visible, in one small transaction.

        A key that is in use stays with whom it has: the newcomer is then an earlier conversation of that key.
        """

    async def digest_of(self, session_id: str, entries: int) -> str:
        """Of so many first entries of a session that is shown, as a source's; empty when there are fewer."""

    async def keep(self, source: str, documents: Sequence[ForeignDocument]) -> int:
        """Store documents word for word; how many were new or had changed."""

    async def documents(self, kind: str = "") -> list[ForeignDocument]: ...
