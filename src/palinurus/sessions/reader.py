"""Reads transcripts as entries, and caches them: transcripts only grow, except when `forget` rewrites them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from palinurus.domain.messages import AssistantMessage, Origin, UserMessage
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import (
    Broken,
    CompactionEntry,
    Entry,
    MessageEntry,
    ResetEntry,
    Row,
    decode_row,
    is_forgetting,
    is_straight,
)

CACHED = 64  # sessions
PIECE = 1_000  # rows that are decoded at once, on a thread; fewer are decoded on the event loop (promise 10)
_CUTS = ('{"type":"compaction"', '{"type":"reset"')
MUCH = 2_500_000  # characters of an uncompacted transcript; older entries are decoded on demand
PASSED = UserMessage("")  # stands for a message that was not decoded


class Reader:
    """Reads transcripts of one store.

    `whole`: with the text of all messages. Otherwise messages before the last compaction or reset are not decoded and
    have no text (`PASSED`): in a long transcript these are most, and no turn reads them. The same holds for the older
    part of an uncompacted transcript that is too long for nearly every context window, until `read_whole`.
    """

    def __init__(self, store: SessionStore, *, whole: bool = True) -> None:
        self._store = store
        self._whole = whole
        self._decoded: OrderedDict[str, list[Entry | Broken]] = OrderedDict()  # by session id
        self._wanted: set[str] = set()  # sessions whose whole uncompacted part is decoded

    async def words(
        self, session_id: str, after: int, entries: Sequence[Entry | Broken], wanted: Callable[[str], object]
    ) -> list[Entry | Broken]:
        """These entries, which follow `after` others; of skipped ones only those whose row is requested."""
        pairs = zip(entries, await self._store.rows(session_id, after), strict=False)
        return await asyncio.to_thread(
            lambda: [
                decode_row(row) if is_passed(entry) else entry
                for entry, row in pairs
                if not is_passed(entry) or wanted(row.payload)
            ]
        )

    def read_whole(self, session_id: str) -> None:
        """From now on also decodes the old part, unless a compaction or reset precedes it."""
        self._wanted.add(session_id)
        self._decoded.pop(session_id, None)

    async def entries(self, session_id: str) -> list[Entry | Broken]:
        """The whole transcript, oldest first. The list grows when more is read, and belongs to this reader."""
        known = self._decoded.get(session_id, [])
        count = len(known)
        # Checks the last known row: if it differs, this is another store, for example after a restore.
        rows = await self._store.rows(session_id, max(count - 1, 0))
        if known and rows and rows[0].id == known[count - 1].id:
            new = await self._decode(rows[1:])
            if self._decoded.get(session_id) is known and self._continues(known[count - 1], new):
                # Another caller may have read the same meanwhile.
                return self._keep(session_id, known, new[len(known) - count :])
        if known:
            rows = await self._store.rows(session_id)
        return self._keep(session_id, [], await self._decode_story(session_id, rows))

    def _keep(self, session_id: str, known: list[Entry | Broken], new: list[Entry | Broken]) -> list[Entry | Broken]:
        known += new
        self._decoded[session_id] = known
        self._decoded.move_to_end(session_id)
        if len(self._decoded) > CACHED:
            self._decoded.popitem(last=False)
        return known

    def _continues(self, last: Entry | Broken, new: Sequence[Entry | Broken]) -> bool:
        """Whether the cached entries are still valid: `forget` may have rewritten them, or a branch may continue
        elsewhere.
        """
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
    """Decodes rows; the first `passed` of them without text if they are plain messages."""
    return [(at < passed and _without_words(row)) or decode_row(row) for at, row in enumerate(rows)]


def _without_words(row: Row) -> MessageEntry | None:
    """A message without its content; None if the row may hold more than text.

    Such a row is recognised by how its JSON begins: rows of other programs are decoded fully.
    """
    text = row.payload
    if not text.startswith(f'{{"type":"message","id":"{row.id}","') or not text.endswith("}"):
        return None
    if row.parent_id is not None and f'"parentId":"{row.parent_id}"' not in text[:400]:
        return None
    if '"also":' in text or '"kind":"file"' in text:  # other runs it answers, and files it has shown
        return None
    if '"origin":"outside"' in text or '"sources":' in text or row.speaker not in (None, Origin.OWNER):
        return None
    return MessageEntry(row.id, "", row.parent_id, message=PASSED)


def _last_cut(rows: Sequence[Row]) -> int:
    """The position of the last compaction or reset; 0 if there is none."""
    return next((at for at in range(len(rows) - 1, 0, -1) if rows[at].payload.startswith(_CUTS)), 0)


def _count_old(rows: Sequence[Row]) -> int:
    """How many rows of an uncompacted transcript precede its newest MUCH characters."""
    left = MUCH
    for at in range(len(rows) - 1, -1, -1):
        left -= len(rows[at].payload)
        if left < 0:
            return at if is_straight(rows) else 0
    return 0


def _count_passed(rows: Sequence[Row], at: int, tail: Sequence[Entry | Broken]) -> int:
    """How many rows are no longer read, if `tail` begins with a cut at position `at`."""
    cut = tail[0]
    if not isinstance(cut, CompactionEntry | ResetEntry) or not is_straight(tail):
        return 0  # the current branch may not include the cut
    end = at
    if cut.first_kept_entry_id:
        end = next((index for index in range(at) if rows[index].id == cut.first_kept_entry_id), 0)
    later: Entry | Broken = cut
    for index in range(at - 1, -1, -1):  # the view knows when a model last answered on this branch
        entry = decode_row(rows[index])
        if later.parent_id != entry.id:
            return 0
        if index < end and isinstance(entry, MessageEntry) and isinstance(entry.message, AssistantMessage):
            return index
        later = entry
    return 0
