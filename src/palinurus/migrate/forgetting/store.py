"""What forgetting needs of the keeper of a home."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from palinurus.migrate.forgetting.words import Words

Tell = Callable[[int, int], None]
"""Told how many of how many rows were gone through, from any thread. Must not raise."""


def nobody(_: int, __: int) -> None: ...


class Scope(Struct, frozen=True):
    """What shall be forgotten: words wherever they stand, and all that was said in some conversations."""

    words: Words  # wherever they stand
    sessions: frozenset[str] = frozenset()  # ids
    keys: frozenset[str] = frozenset()  # of conversations that go with all their earlier ones
    runs: frozenset[str] = frozenset()  # messages that were accepted for them
    agent: str = ""  # words are looked for only in what is this one's; empty: everywhere

    def covers(self, session_key: str) -> bool:
        """Whether words are looked for in what belongs to this conversation."""
        return not self.agent or session_key.startswith(f"agent:{self.agent}:")


class Conversation(Struct, frozen=True):
    id: str
    key: str


class Sources(Struct, frozen=True):
    """What was said in conversations, as far as it can be met again elsewhere."""

    runs: frozenset[str]
    notes: tuple[str, ...]  # texts that were written down from them
    note_ids: tuple[str, ...]  # of records of notes, as files are marked with them
    said: tuple[str, ...]  # by a person


class Looked(Struct, frozen=True):
    """Where in the store it stands, or stood."""

    rows: dict[str, int]  # table -> rows
    sessions: tuple[Conversation, ...] = ()  # whose transcripts hold it
    audit: tuple[int, ...] = ()  # numbers of the log's entries
    parcels: tuple[str, ...] = ()  # that wait to be sent
    since: int = 0  # when the first of it was said, in milliseconds; 0: not known
    quotes: dict[str, tuple[str, ...]] = {}  # table -> the words as they stand there, of the first rows


class ForgettingStore(Protocol):
    """Failures are StorageErrors; after one, nothing of that call was kept."""

    async def conversations(self, which: str) -> list[Conversation]:
        """Those under a key, earlier ones too, or the one with this id."""

    async def sources(self, sessions: frozenset[str]) -> Sources: ...

    async def look(self, scope: Scope, tell: Tell = nobody) -> Looked:
        """Find it all. Reads beside everybody else, however long it takes."""

    async def forget(self, scope: Scope, forgetting: str, now: int) -> Looked:
        """Take it out, in one transaction; entries keep their places. The details of the audit log are not touched."""

    async def scrub(self) -> None:
        """What was taken out is in no byte of the file any more, nor in its log, nor in the index of what was said."""

    async def remains(self, words: Words, tell: Tell = nobody) -> dict[str, int]:
        """Every column of every table in which words still stand, as `table.column`, and in how many rows."""
