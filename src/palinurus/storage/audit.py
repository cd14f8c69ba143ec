"""The audit log in `home.sqlite`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import apsw

from palinurus.domain.clock import Clock
from palinurus.domain.errors import StorageError
from palinurus.ledger.audit import AuditEvent, AuditReport, AuditRow, PastCommand
from palinurus.ledger.chain import BEGINNING, Link, NewSalt, Walk, erasures, linked, loose, past_commands, row_of
from palinurus.storage.database import Database, translated
from palinurus.storage.queries import load_queries

SQL = load_queries("audit.sql")
PIECE = 1000  # rows that are checked before other readers have their turn
BEFORE_ALL, AFTER_ALL = -(2**63), 2**63 - 1


class SqliteAudit:
    """Implements ledger.audit.AuditLog."""

    def __init__(self, database: Database, clock: Clock, new_salt: NewSalt) -> None:
        self._database = database
        self._clock = clock
        self._new_salt = new_salt
        self._noted: set[asyncio.Future[None]] = set()
        self._failure: BaseException | None = None

    async def record(self, event: AuditEvent) -> None:
        link = loose(event, self._new_salt())
        with translated(self._database.path):
            try:
                await self._database.write(lambda connection: _append(connection, link))
            except Exception:
                self._failure = None  # what was noted before and failed with it is told with it
                raise
        self._tell_failure()

    def note(self, event: AuditEvent) -> None:
        link = loose(event, self._new_salt())  # now: whoever handed the details in may go on to change them
        try:
            future = self._database.enqueue(lambda connection: _append(connection, link))
        except StorageError as error:
            self._failure = error
            return
        self._noted.add(future)
        future.add_done_callback(self._was_noted)

    async def settled(self) -> None:
        await self._caught_up()
        self._tell_failure()

    async def rows(
        self, *, limit: int = 50, session: str = "", run: str = "", tool: str = "", before: int = 0
    ) -> list[AuditRow]:
        values = {"limit": limit, "session": session, "run": run, "tool": tool, "before": before or AFTER_ALL}
        query = SQL["newest_links_of_session" if session else "newest_links"]

        def work(connection: apsw.Connection) -> list[AuditRow]:
            return [row_of(Link(*row)) for row in connection.execute(query, values)]

        await self._caught_up()
        return await self._database.read(work)

    async def commands(self, *, agent: str = "", limit: int = 10_000) -> list[PastCommand]:
        values = {"prefix": f"agent:{agent}:" if agent else ""}

        def work(connection: apsw.Connection) -> list[PastCommand]:
            return past_commands((Link(*row) for row in connection.execute(SQL["commands"], values)), limit)

        await self._caught_up()
        return await self._database.read(work)

    async def verify(self, *, expect: str = "") -> AuditReport:
        """Details that are erased meanwhile are named further on, so the walk goes on to where the chain ends then."""
        await self._caught_up()
        walk = Walk(expect)

        def look(connection: apsw.Connection) -> bool:
            before = walk.reached
            found = connection.execute(SQL["links_after"], {"after": before or BEFORE_ALL, "limit": PIECE})
            return walk.along(Link(*row) for row in found) and walk.reached > before

        while await self._database.read(look):
            pass
        return walk.end(await self._database.read(lambda connection: connection.execute(SQL["stray_details"]).get))

    async def erase(self, seqs: Sequence[int]) -> int:
        def work(connection: apsw.Connection) -> int:
            gone = _erase_details(connection, sorted(set(seqs)))
            for event in erasures(gone, self._clock.now_ms()):
                _append(connection, loose(event, self._new_salt()))
            return len(gone)

        with translated(self._database.path):
            erased = await self._database.write(work)
        if erased:
            await self._database.scrub()
        return erased

    def _was_noted(self, future: asyncio.Future[None]) -> None:
        self._noted.discard(future)
        self._failure = self._failure or future.exception()

    async def _caught_up(self) -> None:
        if self._noted:
            await self._database.flush()

    def _tell_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            with translated(self._database.path):
                raise failure


def _append(connection: apsw.Connection, link: Link) -> None:
    seq, previous = connection.execute(SQL["last_link"]).fetchone() or (0, BEGINNING.encode())
    row = linked(link, seq + 1, previous)
    texts = {name: value.decode() for name, value in row._asdict().items() if isinstance(value, bytes)}
    values = texts | {"seq": row.seq, "at": int(row.at)}
    connection.execute(SQL["add_link"], values)
    connection.execute(SQL["add_details"], values)


def _erase_details(connection: apsw.Connection, seqs: Sequence[int]) -> list[int]:
    """Those that had some. Their bytes are overwritten: what SQLite deletes otherwise stays readable in the file."""
    gone = []
    connection.pragma("secure_delete", 1)
    try:
        for seq in seqs:
            connection.execute(SQL["erase_details"], {"seq": seq})
            if connection.changes():
                gone.append(seq)
    finally:
        connection.pragma("secure_delete", 0)
    return gone
