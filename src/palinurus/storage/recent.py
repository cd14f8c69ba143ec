"""A keeper that remembers the sessions in use, in front of the one that writes to the disk.

Right for the process that holds the home and for no other: it is the only writer, so what it has read cannot become
stale behind its back. It saves two reads a turn, and more the longer a transcript is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from palinurus.domain.keys import SessionKey
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.session import NO_CHANGE, Session, SessionChange
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import Entry, Row, encode_entry

KEPT = 64


class _Kept:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.rows: list[Row] | None = None


class RecentSessions:
    """Implements sessions.store.SessionStore around another."""

    def __init__(self, store: SessionStore, most: int = KEPT) -> None:
        self._store = store
        self._most = most
        self._kept: OrderedDict[str, _Kept] = OrderedDict()  # by session id, the one used last at the end
        self._ids: dict[str, str] = {}  # key -> session id
        self._ended: set[str] = set()  # ids of sessions that were archived here

    async def open(self, key: SessionKey) -> Session:
        if known := self._known(key):
            return known
        while (found := await self._store.open(key)).id in self._ended:
            pass  # it was archived while we read its row
        return self._taken(key, found)

    async def find(self, key: SessionKey) -> Session | None:
        if known := self._known(key):
            return known
        while (found := await self._store.find(key)) and found.id in self._ended:
            pass
        return self._taken(key, found) if found else None

    async def recent(self, *, agent: str = "", limit: int = 100, archived: bool = False) -> list[Session]:
        return await self._store.recent(agent=agent, limit=limit, archived=archived)

    async def rows(self, session_id: str, after: int = 0) -> list[Row]:
        kept = self._kept.get(session_id)
        if kept is not None and kept.rows is not None:
            return kept.rows[after:]
        rows = await self._store.rows(session_id)
        if kept is not None and len(rows) == kept.session.entry_count:
            kept.rows = list(rows)
        return rows[after:]

    async def append(self, session_id: str, entries: Sequence[Entry], change: SessionChange = NO_CHANGE) -> Session:
        # Forgotten until the write has ended well: one that was cancelled may be on the disk all the same.
        kept = self._forget(session_id)
        session = await self._store.append(session_id, entries, change)
        if kept is not None:
            self._keep(session).rows = _longer(kept.rows, entries, session.entry_count)
        return session

    async def archive(self, session_id: str, mark: str = "") -> Session:
        self._forget(session_id)
        session = await self._store.archive(session_id, mark)
        self._ended.add(session_id)
        self._forget(session_id)  # somebody may have read it meanwhile
        return session

    async def archived(self, key: SessionKey) -> list[Session]:
        return await self._store.archived(key)

    async def cursor(self, session_id: str) -> str:
        return await self._store.cursor(session_id)

    async def extractions(self, session_id: str) -> list[Extraction]:
        return await self._store.extractions(session_id)

    async def unplaced(self, limit: int = 100) -> list[Extraction]:
        return await self._store.unplaced(limit)

    async def set_place(self, extraction_id: str, place: str) -> None:
        await self._store.set_place(extraction_id, place)

    def forget(self, session_id: str) -> None:
        """Somebody else has written into it: read it anew."""
        self._forget(session_id)

    def _known(self, key: SessionKey) -> Session | None:
        kept = self._kept.get(self._ids.get(str(key), ""))
        if kept is None:
            return None
        self._kept.move_to_end(kept.session.id)
        return kept.session

    def _taken(self, key: SessionKey, found: Session) -> Session:
        """What was read from the disk, unless a write has told us something newer meanwhile."""
        return self._known(key) or self._keep(found).session

    def _keep(self, session: Session) -> _Kept:
        kept = self._kept[session.id] = _Kept(session)
        if session.archived_at is None and session.id not in self._ended:
            self._ids[session.key] = session.id
        while len(self._kept) > self._most:
            self._forget(next(iter(self._kept)))
        return kept

    def _forget(self, session_id: str) -> _Kept | None:
        kept = self._kept.pop(session_id, None)
        if kept is not None and self._ids.get(kept.session.key) == session_id:
            del self._ids[kept.session.key]
        return kept


def _longer(rows: list[Row] | None, entries: Sequence[Entry], count: int) -> list[Row] | None:
    """The rows with what was appended; None when they would not be the whole transcript."""
    if rows is None:
        return None
    known = {row.id for row in rows} if len(rows) + len(entries) != count else set()
    rows += [Row(entry.id, entry.parent_id, encode_entry(entry)) for entry in entries if entry.id not in known]
    return rows if len(rows) == count else None
