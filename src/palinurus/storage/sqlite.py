"""Sessions and accepted messages in `home.sqlite`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from palinurus.dispatch.inbox import RunRecord
from palinurus.dispatch.parcel import Parcel
from palinurus.domain.clock import Clock, NewId
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import NotFound, StorageDamaged, StorageError
from palinurus.domain.events import RunResult
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.older import speaker_in
from palinurus.sessions.session import NO_CHANGE, Session, SessionChange, archived, changed, new_session
from palinurus.sessions.transcript import Entry, Row, SessionHeader, encode_entry, timestamp
from palinurus.storage.database import Database
from palinurus.storage.outbox import add_reply
from palinurus.storage.queries import load_queries
from palinurus.storage.usage import add_usage

SQL = load_queries("home.sql")
_encode = msgspec.json.encode


class SqliteSessions:
    """Implements sessions.store.SessionStore."""

    def __init__(self, database: Database, clock: Clock, new_id: NewId) -> None:
        self._database = database
        self._clock = clock
        self._new_id = new_id

    async def open(self, key: SessionKey) -> Session:
        known = await self.find(key)
        if known is not None:
            return known
        return await self._database.write(lambda connection: self._create(connection, key))

    async def find(self, key: SessionKey) -> Session | None:
        rows = await self._read("session_by_key", key=str(key))
        return _session(rows[0][0]) if rows else None

    async def recent(self, *, agent: str = "", limit: int = 100, archived: bool = False) -> list[Session]:
        rows = await self._read("sessions_by_time", agent=agent, limit=limit, archived=archived)
        return [_session(row) for (row,) in rows]

    async def rows(self, session_id: str, after: int = 0) -> list[Row]:
        values = {"session_id": session_id, "after": after}

        def work(connection: apsw.Connection) -> list[Row]:
            speaker, imported = _imported(connection, session_id)
            found: Any = connection.execute(SQL["entries_of"], values)
            return [
                Row(entry_id, parent_id, payload, speaker if at < imported else None)
                for at, (entry_id, parent_id, payload) in enumerate(found, after)
            ]

        return await self._database.read(work)

    async def append(self, session_id: str, entries: Sequence[Entry], change: SessionChange = NO_CHANGE) -> Session:
        return await self._database.write(lambda connection: self._append(connection, session_id, entries, change))

    async def archive(self, session_id: str, mark: str = "") -> Session:
        return await self._database.write(lambda connection: self._archive(connection, session_id, mark))

    async def archived(self, key: SessionKey) -> list[Session]:
        return [_session(row) for (row,) in await self._read("sessions_archived", key=str(key))]

    async def cursor(self, session_id: str) -> str:
        rows = await self._read("cursor_of", session_id=session_id)
        return rows[0][0] if rows else ""

    async def extractions(self, session_id: str) -> list[Extraction]:
        return [_extraction(*row) for row in await self._read("extractions_of", session_id=session_id)]

    async def unplaced(self, limit: int = 100) -> list[Extraction]:
        return [_extraction(*row) for row in await self._read("extractions_unplaced", limit=limit)]

    async def set_place(self, extraction_id: str, place: str) -> None:
        values = {"id": extraction_id, "place": place}
        await self._database.write(lambda connection: connection.execute(SQL["place_extraction"], values))

    async def _read(self, query: str, **values: Any) -> Any:
        return await self._database.read(lambda connection: connection.execute(SQL[query], values).fetchall())

    def _create(self, connection: apsw.Connection, key: SessionKey) -> Session:
        now = self._clock.now_ms()
        session = new_session(self._new_id(), key, now)
        connection.execute(
            SQL["add_session"],
            {"id": session.id, "key": session.key, "agent": key.agent, "now": now, "row": _encode(session).decode()},
        )
        kept = _session(connection.execute(SQL["session_by_key"], {"key": session.key}).get)
        if kept.id == session.id:
            _add(connection, session.id, SessionHeader(session.id, timestamp(now)))
        return kept

    def _append(
        self, connection: apsw.Connection, session_id: str, entries: Sequence[Entry], change: SessionChange
    ) -> Session:
        before = _by_id(connection, session_id)
        if change.extraction is not None:
            add_extraction(connection, change.extraction)
        try:
            added = sum(_add(connection, session_id, entry) for entry in entries)
        except apsw.ConstraintError as error:  # a cut that would pass the cursor
            raise StorageError(str(error)) from None
        if change.spent is not None:
            add_usage(connection, change.spent)
        now = self._clock.now_ms()
        session = changed(before, change, now=now, entries=added)
        connection.execute(SQL["change_session"], {"id": session_id, "now": now, "row": _encode(session).decode()})
        return session

    def _archive(self, connection: apsw.Connection, session_id: str, mark: str) -> Session:
        before, now = _by_id(connection, session_id), self._clock.now_ms()
        session = archived(before, mark, now=now)
        if session is not before:
            row = _encode(session).decode()
            connection.execute(SQL["archive_session"], {"id": session_id, "now": now, "row": row})
        return session


class SqliteInbox:
    """Implements dispatch.inbox.Inbox."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def accept(self, record: RunRecord) -> RunRecord:
        if self._database.reserve is not None:
            self._database.reserve.check()
        values = {
            "run_id": record.run_id,
            "idempotency_key": record.idempotency_key,
            "session_key": record.session_key,
            "inbound": _encode(record.inbound).decode(),
            "accepted_at": record.accepted_at,
        }

        def work(connection: apsw.Connection) -> RunRecord:
            connection.execute(SQL["accept_run"], values)
            if connection.changes():
                return record
            key = {"idempotency_key": record.idempotency_key}
            return _record(connection.execute(SQL["run_by_idempotency_key"], key).get)

        return await self._database.write(work)

    async def begin(self, run_id: str) -> None:
        await self._database.write(lambda connection: connection.execute(SQL["begin_run"], {"run_id": run_id}))

    async def finish(self, result: RunResult, parcel: Parcel | None = None) -> Parcel | None:
        values = {"run_id": result.run_id, "result": _encode(result).decode()}

        def work(connection: apsw.Connection) -> Parcel | None:
            connection.execute(SQL["finish_run"], values)
            first = bool(connection.changes())
            return add_reply(connection, parcel) if first and parcel is not None else None

        return await self._database.write(work)

    async def find(self, run_id: str) -> RunRecord | None:
        rows = await self._database.read(
            lambda connection: connection.execute(SQL["run_by_id"], {"run_id": run_id}).fetchall()
        )
        return _record(rows[0]) if rows else None

    async def pending(self) -> list[RunRecord]:
        rows = await self._database.read(lambda connection: connection.execute(SQL["runs_pending"]).fetchall())
        return [_record(row) for row in rows]


def _add(connection: apsw.Connection, session_id: str, entry: Entry) -> int:
    kind = type(entry).__struct_config__.tag
    connection.execute(
        SQL["add_entry"],
        {
            "session_id": session_id,
            "id": entry.id,
            "parent_id": entry.parent_id,
            "type": kind,
            "payload": encode_entry(entry),
        },
    )
    return connection.changes()


def add_extraction(connection: apsw.Connection, made: Extraction) -> None:
    position = connection.execute(SQL["position_of"], {"session_id": made.session_id, "id": made.up_to}).get
    if position is None:
        raise NotFound(f"there is no entry {made.up_to!r} in session {made.session_id!r}")
    connection.execute(
        SQL["add_extraction"],
        {
            "id": made.id,
            "session_id": made.session_id,
            "position": position,
            "private": made.private,
            "place": made.place,
            "notes": bool(made.notes),
            "row": _encode(msgspec.structs.replace(made, place="")).decode(),
        },
    )


def _extraction(row: Any, place: str) -> Extraction:
    try:
        return msgspec.structs.replace(msgspec.json.decode(row, type=Extraction), place=place)
    except msgspec.DecodeError as error:
        raise StorageDamaged(f"a record of notes cannot be read: {error}", hint="restore a backup") from error


def _imported(connection: apsw.Connection, session_id: str) -> tuple[Origin, int]:
    """Whose words people's are in what was brought over from another home, and how many entries that are."""
    row: Any = connection.execute(SQL["imported_of"], {"session_id": session_id}).fetchone()
    return (speaker_in(SessionKey.parse(row[0])), row[1]) if row else (Origin.OWNER, 0)


def _by_id(connection: apsw.Connection, session_id: str) -> Session:
    row = connection.execute(SQL["session_by_id"], {"id": session_id}).get
    if row is None:
        raise NotFound(f"there is no session {session_id!r}")
    return _session(row)


def _session(row: Any) -> Session:
    try:
        return msgspec.json.decode(row, type=Session)
    except msgspec.DecodeError as error:
        raise StorageDamaged(f"a session's row cannot be read: {error}", hint="restore a backup") from error


def _record(row: Any) -> RunRecord:
    run_id, idempotency_key, session_key, inbound, accepted_at, attempts, result = row
    return RunRecord(
        run_id,
        idempotency_key,
        session_key,
        msgspec.json.decode(inbound, type=Inbound),
        accepted_at,
        attempts,
        msgspec.json.decode(result, type=RunResult) if result else None,
    )
