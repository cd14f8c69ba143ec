"""Transcripts as entries. What was decoded once is not decoded again: transcripts only grow, save for a forgetting."""

from __future__ import annotations

from collections import OrderedDict

from palinurus.sessions.forgotten import is_forgetting
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import Broken, Entry, decode_row

KEPT = 64


class Reader:
    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._decoded: OrderedDict[str, list[Entry | Broken]] = OrderedDict()  # by session id

    async def entries(self, session_id: str) -> list[Entry | Broken]:
        """The whole transcript, oldest first. The list grows when more is read, and belongs to this reader."""
        known = self._decoded.get(session_id, [])
        # With the last row that is known: when it is another one by now, this is another store, as after a restore.
        rows = await self._store.rows(session_id, max(len(known) - 1, 0))
        known = self._decoded.pop(session_id, known)
        if known and (not rows or rows[0].id != known[-1].id):
            known, rows = [], await self._store.rows(session_id)
        elif known:
            del rows[0]
        new = [decode_row(row) for row in rows]
        if known and any(map(is_forgetting, new)):  # what was said before is not what it was
            known, new = [], [decode_row(row) for row in await self._store.rows(session_id)]
        known += new
        self._decoded[session_id] = known
        if len(self._decoded) > KEPT:
            self._decoded.popitem(last=False)
        return known
