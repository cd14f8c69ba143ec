"""What the rooms above need of a keeper of sessions. One contract suite holds every keeper to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from palinurus.domain.keys import SessionKey
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.session import NO_CHANGE, Session, SessionChange
from palinurus.sessions.transcript import Entry, Row


class SessionStore(Protocol):
    """Keeps sessions and their transcripts.

    When a call that writes returns, what it wrote is on the disk. Entries are only ever appended. Failures are
    StorageErrors; after one, nothing of that call was kept.
    """

    async def open(self, key: SessionKey) -> Session:
        """The session of this key, made with its header entry when there is none."""

    async def find(self, key: SessionKey) -> Session | None: ...

    async def recent(self, *, agent: str = "", limit: int = 100, archived: bool = False) -> list[Session]:
        """Newest first. `archived` brings those that have ended as well."""

    async def rows(self, session_id: str, after: int = 0) -> list[Row]:
        """The transcript in the order in which it was written, without its first `after` rows."""

    async def append(self, session_id: str, entries: Sequence[Entry], change: SessionChange = NO_CHANGE) -> Session:
        """Keep the notes, add entries, change the row and put what was spent into the usage ledger: all or nothing.

        An entry whose id is already in the transcript is not added again, so a turn that is resumed after a crash
        may repeat what it had begun; nor are notes whose id is known. A compaction or a reset that would let a message
        go which lies behind the cursor is refused with a StorageError (promise 2).
        """

    async def cursor(self, session_id: str) -> str:
        """The id of the last entry whose words are in notes; empty when nothing was extracted yet."""

    async def extractions(self, session_id: str) -> list[Extraction]:
        """The notes of a session, in the order in which they were made."""

    async def unplaced(self, limit: int = 100) -> list[Extraction]:
        """Private notes that are in no file yet, the oldest first."""

    async def set_place(self, extraction_id: str, place: str) -> None:
        """Its notes stand in this file now. Nothing happens when there is no such record."""

    async def archive(self, session_id: str, mark: str = "") -> Session:
        """End the conversation: its key is free for a new one, and what was said stays. Raises NotFound.

        One that was archived before is returned as it is.
        """

    async def archived(self, key: SessionKey) -> list[Session]:
        """The earlier conversations of a key, newest first."""


class Hit(Struct, frozen=True, rename="camel"):
    """A place in a transcript that matches a search."""

    session_id: str
    session_key: str
    entry_id: str
    role: str
    timestamp: str
    snippet: str
    score: float


class TranscriptIndex(Protocol):
    """Finds words in transcripts. Derived: it may be deleted at any time and makes itself anew."""

    async def search(self, query: str, *, agent: str = "", limit: int = 20) -> list[Hit]:
        """Best first, and complete: what was appended before the call is found by it."""
