"""Conversations of other homes on their way into `home.sqlite`: staged in batches, shown by one small transaction."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from typing import Any

import apsw
import msgspec
from msgspec.structs import replace

from palinurus.domain.clock import Clock
from palinurus.domain.errors import NotFound, StorageError
from palinurus.migrate.foreign import ForeignDocument, ForeignEntry
from palinurus.migrate.importer import BETWEEN, Shown, Stored
from palinurus.sessions.session import Session
from palinurus.storage.database import Database
from palinurus.storage.entry_ids import enter_ids, sorted_ids
from palinurus.storage.import_cuts import CUTS, read_cut, record_cut, record_cuts
from palinurus.storage.queries import load_queries
from palinurus.storage.sqlite import SQL as HOME

SQL = load_queries("imports.sql")
STEP = 5_000  # entries that are taken back in one transaction
CACHE = 32 * 1024  # kilobytes at hand while much is written: entry ids come in no order
LONG_LOG, USUAL_LOG = 16_000, 1_000  # pages of the write-ahead log before they are moved into the file
TOGETHER = 1_200  # entries of one statement; one of more than 16 KB would not be kept prepared
MARK = "import"

_encode = msgspec.json.encode


class SqliteImporter:
    """Implements migrate.importer.SessionImporter."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        forget: Callable[[str], None] = lambda _: None,
        discard_index: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`forget` is told the ids of sessions that have grown: whoever remembers them must read them anew.

        `discard_index` throws away what was derived from entries that were taken back.
        """
        self._database = database
        self._clock = clock
        self._forget = forget
        self._discard_index = discard_index

    async def stored(self, source: str) -> Stored | None:
        def work(connection: apsw.Connection) -> Any:
            return connection.execute(SQL["import_by_source"], {"source": source}).fetchall()

        rows = await self._database.read(work)
        if not rows:
            return None
        session_id, entries, digest, finished, staged, continued = rows[0]
        return Stored(session_id, entries, digest, bool(finished), not staged, bool(continued))

    async def begin(self, source: str, session: Session) -> Stored:
        return await self._database.write(lambda connection: self._begin(connection, source, session))

    async def add(self, source: str, entries: Sequence[ForeignEntry], digest: str) -> None:
        session_id = await self._database.write(lambda connection: self._add(connection, source, entries, digest))
        self._forget(session_id)

    async def finish(self, source: str, session: Session, details: str) -> None:
        known = await self.stored(source)
        if known is not None and not known.shown:
            await self._enter(known.session_id)
        session_id = await self._database.write(lambda connection: self._finish(connection, source, session, details))
        self._forget(session_id)

    async def discard(self, source: str) -> None:
        known = await self.stored(source)
        if known is None:
            return
        if known.shown:
            raise StorageError(f"the session {known.session_id} is part of the home and cannot be taken back")
        here = {"id": known.session_id, "limit": STEP}
        await self._database.write(lambda connection: connection.execute(SQL["drop_extractions"], here))
        await self._database.write(lambda connection: connection.execute(SQL["drop_ids"], here))
        while await self._database.write(lambda connection: _drop_some(connection, here)):
            pass
        await self._database.write(lambda connection: _drop(connection, here))
        if self._discard_index is not None:
            await self._discard_index()

    async def show(self) -> list[Shown]:
        return await self._database.write(_show)

    async def digest_of(self, session_id: str, entries: int) -> str:
        digest, position, left = hashlib.sha256(), 0, entries
        while left > 0:
            rows = await self._payloads({"id": session_id, "after": position, "limit": min(left, STEP)})
            if not rows:
                return ""
            position, left = rows[-1][0], left - len(rows)
            for _, payload in rows:
                digest.update(payload.encode() + BETWEEN)
        return digest.hexdigest()

    async def _payloads(self, values: dict[str, Any]) -> list[Any]:
        return await self._database.read(lambda connection: connection.execute(SQL["next_payloads"], values).fetchall())

    async def keep(self, source: str, documents: Sequence[ForeignDocument]) -> int:
        now = self._clock.now_ms()

        def work(connection: apsw.Connection) -> int:
            changed = 0
            for document in documents:
                values = {"source": source, "kind": document.kind, "name": document.name, "text": document.text}
                connection.execute(SQL["keep_document"], {**values, "at": now})
                changed += connection.changes()
            return changed

        return await self._database.write(work)

    async def documents(self, kind: str = "") -> list[ForeignDocument]:
        def work(connection: apsw.Connection) -> list[Any]:
            return connection.execute(SQL["documents"], {"kind": kind}).fetchall()

        rows = await self._database.read(work)
        return [ForeignDocument(kind, name, text) for _, kind, name, text in rows]

    def _begin(self, connection: apsw.Connection, source: str, session: Session) -> Stored:
        row = replace(session, id=_free_id(connection, session.id, source), archived_at=0)
        values = {"id": row.id, "key": row.key, "agent": row.agent, "updated_at": row.updated_at}
        connection.execute(SQL["stage_session"], {**values, "row": _encode(row).decode()})
        connection.pragma("cache_size", -CACHE)
        connection.pragma("wal_autocheckpoint", LONG_LOG)
        at = self._clock.now_ms()
        connection.execute(SQL["add_import"], {"source": source, "session_id": row.id, "at": at})
        return Stored(row.id)

    def _add(self, connection: apsw.Connection, source: str, entries: Sequence[ForeignEntry], digest: str) -> str:
        session_id = _session_of(connection, source)
        shown = connection.execute(SQL["is_shown"], {"id": session_id}).get
        start = 0
        for index, entry in enumerate(entries):
            if shown and entry.kind in CUTS:
                _add_plain(connection, session_id, entries[start:index])
                self._add_cut(connection, session_id, entry)
                start = index + 1
        _add_plain(connection, session_id, entries[start:])
        values = {"source": source, "count": len(entries), "digest": digest, "at": self._clock.now_ms()}
        connection.execute(SQL["import_grew"], values)
        return session_id

    def _add_cut(self, connection: apsw.Connection, session_id: str, entry: ForeignEntry) -> None:
        """What it puts away has left the window long ago, in the other home; the record says so before it is stored."""
        cut = read_cut(entry.row.id, entry.row.payload)
        for kept in dict.fromkeys((cut.kept, None)):
            record_cut(connection, session_id, replace(cut, kept=kept), self._clock.now_ms())
            try:
                _add_plain(connection, session_id, [entry])
            except apsw.ConstraintError:
                if kept is None:
                    raise
            else:
                return

    async def _enter(self, session_id: str) -> None:
        """The ids of its entries, and then what its cuts have put away: that is told by ids."""
        steps, cuts = sorted_ids(self._database.path, session_id), list[int]()
        try:
            while step := await asyncio.to_thread(next, steps, ()):
                cuts += [position for _, position, kind in step if kind in CUTS]
                await self._database.write(partial(enter_ids, session_id=session_id, placed=step))
        finally:
            steps.close()
        if cuts:
            at = self._clock.now_ms()
            await self._database.write(lambda connection: record_cuts(connection, session_id, sorted(cuts), at))

    def _finish(self, connection: apsw.Connection, source: str, session: Session, details: str) -> str:
        session_id = _session_of(connection, source)
        known = connection.execute(SQL["import_by_source"], {"source": source}).fetchall()[0]
        before = msgspec.json.decode(connection.execute(HOME["session_by_id"], {"id": session_id}).get, type=Session)
        count = known[1] if known[4] else connection.execute(SQL["entry_count"], {"id": session_id}).get
        row = replace(session, id=session_id, entry_count=count)
        if not known[4]:  # it is shown, and stays what it is here: current or archived
            row = replace(row, archived_at=before.archived_at, archive_mark=before.archive_mark)
        values = {"id": session_id, "row": _encode(row).decode(), "updated_at": row.updated_at}
        connection.execute(SQL["set_imported_row"], {**values, "extra": details or None})
        connection.execute(SQL["import_finished"], {"source": source})
        return session_id


def _add_plain(connection: apsw.Connection, session_id: str, entries: Sequence[ForeignEntry]) -> None:
    for start in range(0, len(entries), TOGETHER):
        some = entries[start : start + TOGETHER]
        if not _add_together(connection, session_id, some):
            for each in some:
                _add_one(connection, (session_id, each.row.id, each.row.parent_id, _kind(each), each.row.payload))


def _add_together(connection: apsw.Connection, session_id: str, entries: Sequence[ForeignEntry]) -> bool:
    """In one statement, which runs without Python's lock: row by row it would fight for it with the reader.

    False when one of them cannot go in as it is; then none is in.
    """
    values: list[str | None] = [session_id]
    for each in entries:
        row = each.row
        values += (row.id, row.parent_id, "message" if each.role else _kind(each), row.payload)
    try:
        connection.execute(_statement(len(entries)), values)
    except apsw.ConstraintError:  # which undoes the statement by itself
        return False
    return True


@cache
def _statement(rows: int) -> str:
    return SQL["add_entries"].rstrip(";") + ",(?1,?,?,?,?)" * (rows - 1)


def _add_one(connection: apsw.Connection, row: tuple[Any, ...]) -> None:
    """An id that is there already gets a number behind it: two different lines may have one, and none is lost."""
    session_id, entry_id, *rest = row
    number = 1
    while connection.execute(HOME["position_of"], {"session_id": session_id, "id": entry_id}).get is not None:
        number += 1
        entry_id = f"{row[1]}~{number}"
    connection.execute(SQL["add_one"], (session_id, entry_id, *rest))


def _kind(entry: ForeignEntry) -> str:
    return "message" if entry.role or entry.kind.startswith("flat:") else entry.kind


def _free_id(connection: apsw.Connection, wanted: str, source: str) -> str:
    """The id it had, unless somebody has it here: then with something of its source behind it."""
    if connection.execute(SQL["session_id_taken"], {"id": wanted}).get is None:
        return wanted
    return f"{wanted}~{hashlib.sha256(source.encode()).hexdigest()[:12]}"


def _session_of(connection: apsw.Connection, source: str) -> str:
    found = connection.execute(SQL["import_session"], {"source": source}).get
    if found is None:
        raise NotFound(f"nothing was begun for {source!r}")
    return str(found)


def _show(connection: apsw.Connection) -> list[Shown]:
    connection.pragma("wal_autocheckpoint", USUAL_LOG)
    shown = []
    finished: list[Any] = connection.execute(SQL["finished_sessions"]).fetchall()
    for session_id, row in finished:
        session = msgspec.json.decode(row, type=Session)
        note = ""
        if session.archived_at is None and connection.execute(SQL["key_in_use"], {"key": session.key}).get:
            note = "another conversation goes on under its key here; this one is kept as an earlier one"
            session = replace(session, archived_at=session.updated_at, archive_mark=MARK)
        values = {"id": session_id, "archived_at": session.archived_at, "row": _encode(session).decode()}
        connection.execute(SQL["show_session"], values)
        shown.append(Shown(session_id, session.key, session.archived_at is not None, note))
    return shown


def _drop_some(connection: apsw.Connection, here: dict[str, Any]) -> int:
    connection.execute(SQL["drop_some_entries"], here)
    return connection.changes()


def _drop(connection: apsw.Connection, here: dict[str, Any]) -> None:
    connection.execute(SQL["drop_import"], here)
    connection.execute(SQL["drop_session"], here)
