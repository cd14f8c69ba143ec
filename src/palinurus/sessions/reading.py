"""Transcripts as entries. What was decoded once is not decoded again: transcripts only grow, save for a forgetting."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from palinurus.domain.messages import AssistantMessage, Origin, UserMessage
from palinurus.sessions.forgotten import is_forgetting
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import (
    Broken,
    CompactionEntry,
    Entry,
    MessageEntry,
    ResetEntry,
    Row,
    decode_row,
    is_straight,
)

KEPT = 64
PIECE = 1_000  # rows that are decoded at once, beside the event loop; fewer are decoded on it (promise 10)
_CUTS = ('{"type":"compaction"', '{"type":"reset"')
MUCH = 2_500_000  # characters of a story that was never cut, of which the older part waits until somebody needs it
PASSED = UserMessage("")  # stands for a message that was not decoded


class Reader:
    """Reads transcripts of one store.

    `whole`: with the words of all messages. Else those that a compaction or a reset has put away are not decoded and
    have none (`PASSED`): of a long story that is most of it, and nobody who continues it reads them. The same goes for
    the older part of a story that was never cut and is too long for nearly every window, until `read_whole`.
    """

    def __init__(self, store: SessionStore, *, whole: bool = True) -> None:
        self._store = store
        self._whole = whole
        self._decoded: OrderedDict[str, list[Entry | Broken]] = OrderedDict()  # by session id
        self._wanted: set[str] = set()  # sessions of which all that was never cut is read

    async def words(
        self, session_id: str, after: int, entries: Sequence[Entry | Broken], wanted: Callable[[str], object]
    ) -> list[Entry | Broken]:
        """These entries, which stand behind `after` others; of those that were passed over only whose row is wanted."""
        pairs = zip(entries, await self._store.rows(session_id, after), strict=False)
        return await asyncio.to_thread(
            lambda: [
                decode_row(row) if is_passed(entry) else entry
                for entry, row in pairs
                if not is_passed(entry) or wanted(row.payload)
            ]
        )

    def read_whole(self, session_id: str) -> None:
        """Decode from now on also what is old, as long as nothing has put it away."""
        self._wanted.add(session_id)
        self._decoded.pop(session_id, None)

    async def entries(self, session_id: str) -> list[Entry | Broken]:
        """The whole transcript, oldest first. The list grows when more is read, and belongs to this reader."""
        known = self._decoded.get(session_id, [])
        count = len(known)
        # With the last row that is known: when it is another one by now, this is another store, as after a restore.
        rows = await self._store.rows(session_id, max(count - 1, 0))
        if known and rows and rows[0].id == known[count - 1].id:
            new = await self._decode(rows[1:])
            if self._decoded.get(session_id) is known and self._continues(known[count - 1], new):
                # Somebody else may have read the same meanwhile.
                return self._keep(session_id, known, new[len(known) - count :])
        if known:
            rows = await self._store.rows(session_id)
        return self._keep(session_id, [], await self._decode_story(session_id, rows))

    def _keep(self, session_id: str, known: list[Entry | Broken], new: list[Entry | Broken]) -> list[Entry | Broken]:
        known += new
        self._decoded[session_id] = known
        self._decoded.move_to_end(session_id)
        if len(self._decoded) > KEPT:
            self._decoded.popitem(last=False)
        return known

    def _continues(self, last: Entry | Broken, new: Sequence[Entry | Broken]) -> bool:
        """Whether what is known stays as it is: what was said may be forgotten, or be read again on a branch."""
        return not any(map(is_forgetting, new)) and (self._whole or is_straight([last, *new]))

    async def _decode_story(self, session_id: str, rows: Sequence[Row]) -> list[Entry | Broken]:
        at = 0 if self._whole else _last_cut(rows)
        if not at:
            wanted = self._whole or session_id in self._wanted
            return await self._decode(rows, 0 if wanted else _count_old(rows))
        tail = await self._decode(rows[at:])
        return [*await self._decode(rows[:at], _count_passed(rows, at, tail)), *tail]

    async def _decode(self, rows: Sequence[Row], passed: int = 0) -> list[Entry | Broken]:
        if len(rows) <= PIECE:
            return _decoded(rows, passed)
        entries: list[Entry | Broken] = []
        for start in range(0, len(rows), PIECE):
            entries += await asyncio.to_thread(_decoded, rows[start : start + PIECE], passed - start)
        return entries


def is_passed(entry: Entry | Broken) -> bool:
    """Whether it is a message that was not decoded."""
    return isinstance(entry, MessageEntry) and entry.message is PASSED


def _decoded(rows: Iterable[Row], passed: int) -> list[Entry | Broken]:
    """The first `passed` of them without their words, where they are nothing but messages."""
    return [(at < passed and _without_words(row)) or decode_row(row) for at, row in enumerate(rows)]


def _without_words(row: Row) -> MessageEntry | None:
    """A message that says nothing but that it is there; None where a row may say more than its own words.

    Such a row is told by how its text begins: what other programs wrote in another way is decoded like all the rest.
    """
    text = row.payload
    if not text.startswith(f'{{"type":"message","id":"{row.id}","') or not text.endswith("}"):
        return None
    if row.parent_id is not None and f'"parentId":"{row.parent_id}"' not in text[:400]:
        return None
    if '"also":' in text or '"kind":"file"' in text:  # what it answers besides, and what it has shown of files
        return None
    if '"origin":"outside"' in text or '"sources":' in text or row.speaker not in (None, Origin.OWNER):
        return None
    return MessageEntry(row.id, "", row.parent_id, message=PASSED)


def _last_cut(rows: Sequence[Row]) -> int:
    """Where the last compaction or reset stands; 0 when there is none."""
    return next((at for at in range(len(rows) - 1, 0, -1) if rows[at].payload.startswith(_CUTS)), 0)


def _count_old(rows: Sequence[Row]) -> int:
    """How many of the first rows of a story that was never cut lie before the newest MUCH characters of it."""
    left = MUCH
    for at in range(len(rows) - 1, -1, -1):
        left -= len(rows[at].payload)
        if left < 0:
            return at if is_straight(rows) else 0
    return 0


def _count_passed(rows: Sequence[Row], at: int, tail: Sequence[Entry | Broken]) -> int:
    """How many of the first rows are no longer read, when `tail` begins with a cut, which stands at `at`."""
    cut = tail[0]
    if not isinstance(cut, CompactionEntry | ResetEntry) or not is_straight(tail):
        return 0  # what is read may be a branch on which it does not stand
    end = at
    if cut.first_kept_entry_id:
        end = next((index for index in range(at) if rows[index].id == cut.first_kept_entry_id), 0)
    later: Entry | Broken = cut
    for index in range(at - 1, -1, -1):  # when a model has last answered, on this branch, is asked of the view
        entry = decode_row(rows[index])
        if later.parent_id != entry.id:
            return 0
        if index < end and isinstance(entry, MessageEntry) and isinstance(entry.message, AssistantMessage):
            return index
        later = entry
    return 0
