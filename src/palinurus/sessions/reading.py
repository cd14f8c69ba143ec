"""Transcripts as entries. What was decoded once is not decoded again: transcripts only grow."""

from __future__ import annotations

from collections import OrderedDict

from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import Broken, Entry, decode_row

KEPT = 64


class Reader:
    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._decoded: OrderedDict[str, list[Entry | Broken]] = OrderedDict()  # by session id

    async def entries(self, session_id: str) -> list[Entry | Broken]:
        """The whole transcript, oldest first."""
        rows = await self._store.rows(session_id)
        known = self._decoded.pop(session_id, [])
        if len(known) > len(rows) or (known and known[-1].id != rows[len(known) - 1].id):
            known = []  # another store than the one that was read, as after a restore
        entries = known + [decode_row(row) for row in rows[len(known) :]]
        self._decoded[session_id] = entries
        if len(self._decoded) > KEPT:
            self._decoded.popitem(last=False)
        return entries
