"""Sessions and their transcripts in the home's database.

The process that holds the home is the only writer, so what it has read cannot become stale: its store caches the
sessions in use, which saves two reads per turn, and more the longer a transcript is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.clock import Clock, NewId
from palinurus.domain.errors import NotFound, StorageError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin
from palinurus.ledger.usage import add_usage
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.older import speaker_in
from palinurus.sessions.session import NO_CHANGE, Session, SessionChange, archived, changed, new_session
from palinurus.sessions.transcript import Entry, Row, SessionHeader, encode_entry, timestamp
from palinurus.storage.database import Database
from palinurus.storage.transaction import ConstraintBroken, Transaction, declare_queries, decoded, encoded

declare_queries("sessions", __file__)
CACHED_SESSIONS = 64  # of the process that holds the home


class _CachedSession(Struct):
    session: Session
    rows: list[Row] | None = None  # the whole transcript, if it was read


class SessionStore:
    """Stores sessions and their transcripts.

    When a call that writes returns, its changes are on the disk. Entries are only appended. Failures are StorageErrors;
    after one, nothing of that call was stored.
    """

    def __init__(self, database: Database, clock: Clock, new_id: NewId, *, remembers: int = 0) -> None:
        """`remembers`: how many sessions are cached; only in the process that holds the home."""
        self.database = database  # a caller that needs several stores in one commit opens the transaction there
        self._clock = clock
        self._new_id = new_id
        self._remembers = remembers
        self._cached: OrderedDict[str, _CachedSession] = OrderedDict()  # by session id, the one used last at the end
        self._ids: dict[str, str] = {}  # key -> session id
        self._ended: set[str] = set()  # ids of sessions that were archived here

    async def open(self, key: SessionKey) -> Session:
        """The session of this key, created with its header entry if there is none."""
        if known := await self.find(key):
            return known
        while (made := await self.database.write(lambda tx: self._create(tx, key))).id in self._ended:
            pass  # it was archived while its row was read
        return self._taken(key, made)

    async def find(self, key: SessionKey) -> Session | None:
        if known := self._known(key):
            return known
        row = await self._value("sessions.session_by_key", key=str(key))
        while row is not None and (found := _session(row)).id in self._ended:
            row = await self._value("sessions.session_by_key", key=str(key))
        return self._taken(key, found) if row is not None else None

    async def recent(
        self, *, agent: str = "", limit: int = 100, archived: bool = False, one_offs: bool = True
    ) -> list[Session]:
        """Newest first. `archived` includes archived ones, `one_offs` those of requests that name no session."""
        wanted = {"agent": agent, "limit": limit, "archived": archived, "one_offs": one_offs}
        rows = await self._all("sessions.sessions_by_time", **wanted)
        return [_session(row) for (row,) in rows]

    async def rows(self, session_id: str, after: int = 0) -> list[Row]:
        """The transcript in the order in which it was written, without its first `after` rows."""
        kept = self._cached.get(session_id)
        if kept is None:
            return await self.database.read(lambda tx: _rows(tx, session_id, after))
        if kept.rows is not None:
            return kept.rows[after:]
        rows = await self.database.read(lambda tx: _rows(tx, session_id, 0))
        if len(rows) == kept.session.entry_count:
            kept.rows = list(rows)
        return rows[after:]

    async def append(self, session_id: str, entries: Sequence[Entry], change: SessionChange = NO_CHANGE) -> Session:
        """Stores the notes, adds entries, changes the row and adds usage to the ledger: all or nothing.

        An entry whose id is already in the transcript is not added again, so a turn that is resumed after a crash may
        repeat its writes; the same holds for notes. A compaction or a reset that would drop a message after the cursor
        is refused with a StorageError (promise 2).
        """
        # Dropped from the cache until the write has succeeded: a cancelled one may be on the disk all the same.
        kept = self.forget(session_id)
        before = kept.session if kept is not None else None
        session = await self.database.write(lambda tx: self.add_entries(tx, session_id, entries, change, before))
        if kept is not None:
            self._keep(session).rows = _longer(kept.rows, entries, session.entry_count)
        return session

    def add_entries(
        self,
        tx: Transaction,
        session_id: str,
        entries: Sequence[Entry],
        change: SessionChange = NO_CHANGE,
        before: Session | None = None,
    ) -> Session:
        """As `append`, inside the caller's transaction; the caller calls `forget` after the commit.

        `before` is the session's row, if it is known for sure.
        """
        before = before or _by_id(tx, session_id)
        if change.extraction is not None:
            add_extraction(tx, change.extraction)
        try:
            added = sum(add_entry(tx, session_id, entry) for entry in entries)
        except ConstraintBroken as error:  # a cut that would pass the cursor
            raise StorageError(error.message) from None
        if change.spent is not None:
            add_usage(tx, change.spent)
        now = self._clock.now_ms()
        session = changed(before, change, now=now, entries=added)
        tx.run("sessions.change_session", id=session_id, now=session.updated_at, row=encoded(session))
        return session

    async def cursor(self, session_id: str) -> str:
        """The id of the last entry whose content is in notes; empty if nothing was extracted yet."""
        return await self._value("sessions.cursor_of", session_id=session_id) or ""

    async def extractions(self, session_id: str) -> list[Extraction]:
        """The notes of a session, in order of creation."""
        return [extraction_of(*row) for row in await self._all("sessions.extractions_of", session_id=session_id)]

    async def unplaced(self, limit: int = 100) -> list[Extraction]:
        """Private notes that are not yet in a file, the oldest first."""
        return [extraction_of(*row) for row in await self._all("sessions.extractions_unplaced", limit=limit)]

    async def set_place(self, extraction_id: str, place: str) -> None:
        """Records the file that holds the notes. Does nothing if there is no such record."""
        await self.database.write(lambda tx: tx.run("sessions.place_extraction", id=extraction_id, place=place))

    async def archive(self, session_id: str, mark: str = "") -> Session:
        """Archives the session: its key is free for a new one, and the transcript stays. Raises NotFound.

        An already archived one is returned unchanged.
        """
        self.forget(session_id)
        session = await self.database.write(lambda tx: self._archive(tx, session_id, mark))
        if self._remembers:
            self._ended.add(session_id)
        self.forget(session_id)  # another caller may have read it meanwhile
        return session

    async def archived(self, key: SessionKey) -> list[Session]:
        """The archived sessions of a key, newest first."""
        return [_session(row) for (row,) in await self._all("sessions.sessions_archived", key=str(key))]

    async def _value(self, query: str, **values: Any) -> Any:
        return await self.database.read(lambda tx: tx.value(query, **values))

    async def _all(self, query: str, **values: Any) -> list[Any]:
        return await self.database.read(lambda tx: tx.all(query, **values))

    def _create(self, tx: Transaction, key: SessionKey) -> Session:
        now = self._clock.now_ms()
        session = new_session(self._new_id(), key, now)
        row = encoded(session)
        tx.run("sessions.add_session", id=session.id, key=session.key, agent=key.agent, now=now, row=row)
        kept = _session(tx.value("sessions.session_by_key", key=session.key))
        if kept.id == session.id:
            add_entry(tx, session.id, SessionHeader(session.id, timestamp(now)))
        return kept

    def _archive(self, tx: Transaction, session_id: str, mark: str) -> Session:
        before, now = _by_id(tx, session_id), self._clock.now_ms()
        session = archived(before, mark, now=now)
        if session is not before:
            tx.run("sessions.archive_session", id=session_id, now=now, row=encoded(session))
        return session

    # -- cache -------------------------------------------------------------------------------------

    def _known(self, key: SessionKey) -> Session | None:
        kept = self._cached.get(self._ids.get(str(key), ""))
        if kept is None:
            return None
        self._cached.move_to_end(kept.session.id)
        return kept.session

    def _taken(self, key: SessionKey, found: Session) -> Session:
        """What was read from the disk, unless a write has cached something newer meanwhile."""
        return (self._known(key) or self._keep(found).session) if self._remembers else found

    def _keep(self, session: Session) -> _CachedSession:
        kept = self._cached[session.id] = _CachedSession(session)
        if session.archived_at is None and session.id not in self._ended:
            self._ids[session.key] = session.id
        while len(self._cached) > self._remembers:
            self.forget(next(iter(self._cached)))
        return kept

    def forget(self, session_id: str) -> _CachedSession | None:
        """Drops a session from the cache, for example after another writer changed it."""
        kept = self._cached.pop(session_id, None)
        if kept is not None and self._ids.get(kept.session.key) == session_id:
            del self._ids[kept.session.key]
        return kept


def add_entry(tx: Transaction, session_id: str, entry: Entry) -> int:
    """Adds an entry. Returns the number added: 0 if it exists already."""
    return tx.run(
        "sessions.add_entry",
        session_id=session_id,
        id=entry.id,
        parent_id=entry.parent_id,
        type=type(entry).__struct_config__.tag,
        payload=encode_entry(entry),
    )


def add_extraction(tx: Transaction, made: Extraction) -> None:
    position = tx.value("sessions.position_of", session_id=made.session_id, id=made.up_to)
    if position is None:
        raise NotFound(f"there is no entry {made.up_to!r} in session {made.session_id!r}")
    tx.run(
        "sessions.add_extraction",
        id=made.id,
        session_id=made.session_id,
        position=position,
        private=made.private,
        place=made.place,
        notes=bool(made.notes),
        row=encoded(msgspec.structs.replace(made, place="")),
    )


def extraction_of(row: Any, place: str) -> Extraction:
    return msgspec.structs.replace(decoded(row, Extraction, "a record of notes"), place=place)


def last_position(tx: Transaction) -> int:
    """The position of the last entry."""
    return int(tx.value("sessions.last_entry"))


def was_spoken_to(tx: Transaction, agent: str) -> bool:
    """Whether the home has a session of this agent."""
    return bool(tx.value("sessions.any_session", agent=agent))


def _rows(tx: Transaction, session_id: str, after: int) -> list[Row]:
    speaker, imported = _imported(tx, session_id)
    found = tx.each("sessions.entries_of", session_id=session_id, after=after)
    return [
        Row(entry_id, parent_id, payload, speaker if at < imported else None)
        for at, (entry_id, parent_id, payload) in enumerate(found, after)
    ]


def _imported(tx: Transaction, session_id: str) -> tuple[Origin, int]:
    """The origin of user messages in an imported transcript, and its number of entries."""
    count, key = tx.one("sessions.imported_of", session_id=session_id)
    return (speaker_in(SessionKey.parse(key)), count) if count else (Origin.OWNER, 0)


def _longer(rows: list[Row] | None, entries: Sequence[Entry], count: int) -> list[Row] | None:
    """The rows with the appended ones; None if they would not be the whole transcript."""
    if rows is None:
        return None
    known = {row.id for row in rows} if len(rows) + len(entries) != count else set()
    rows += [Row(entry.id, entry.parent_id, encode_entry(entry)) for entry in entries if entry.id not in known]
    return rows if len(rows) == count else None


def _by_id(tx: Transaction, session_id: str) -> Session:
    row = tx.value("sessions.session_by_id", id=session_id)
    if row is None:
        raise NotFound(f"there is no session {session_id!r}")
    return _session(row)


def _session(row: Any) -> Session:
    return decoded(row, Session, "a session's row")
