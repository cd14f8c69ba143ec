"""The audit log in the home's database: rows are appended, and details may be erased."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from palinurus.domain.clock import Clock
from palinurus.domain.errors import StorageError
from palinurus.ledger.audit import (
    BEGINNING,
    AuditEvent,
    AuditReport,
    AuditRow,
    ChainCheck,
    Link,
    NewSalt,
    PastCommand,
    erasures,
    linked,
    loose,
    past_commands,
    row_of,
)
from palinurus.storage.database import Database
from palinurus.storage.transaction import Transaction, declare_queries

declare_queries("audit", __file__)
PIECE = 1000  # rows that are checked before other readers continue
BEFORE_ALL, AFTER_ALL = -(2**63), 2**63 - 1


class AuditLog:
    """Append-only. Events are stored in the order in which they were added."""

    def __init__(self, database: Database, clock: Clock, new_salt: NewSalt) -> None:
        self._database = database
        self._clock = clock
        self._new_salt = new_salt
        self._noted: set[asyncio.Future[None]] = set()
        self._failure: BaseException | None = None

    async def record(self, event: AuditEvent) -> None:
        """Stores an event. When this returns it is on the disk. Raises StorageError."""
        link = loose(event, self._new_salt())
        try:
            await self._database.write(lambda tx: _append(tx, link))
        except Exception:
            self._failure = None  # an earlier failed `note` is reported here
            raise
        self._tell_failure()

    def note(self, event: AuditEvent) -> None:
        """Stores an event with the next write. A failure is raised by the next `record` or `settled`."""
        link = loose(event, self._new_salt())  # now, because the caller may change the details later
        try:
            future = self._database.enqueue(lambda tx: _append(tx, link))
        except StorageError as error:
            self._failure = error
            return
        self._noted.add(future)
        future.add_done_callback(self._was_noted)

    async def settled(self) -> None:
        """Returns when all noted events are on the disk. Raises StorageError."""
        await self._caught_up()
        self._tell_failure()

    async def rows(
        self, *, limit: int = 50, session: str = "", run: str = "", tool: str = "", before: int = 0
    ) -> list[AuditRow]:
        """The newest rows that fit, newest first. `run` may be a prefix of an id; `before` is a seq for paging."""
        query = "audit.newest_links_of_session" if session else "audit.newest_links"
        values = {"limit": limit, "session": session, "run": run, "tool": tool, "before": before or AFTER_ALL}
        await self._caught_up()
        return await self._database.read(lambda tx: [row_of(Link(*row)) for row in tx.each(query, **values)])

    async def commands(self, *, agent: str = "", limit: int = 10_000) -> list[PastCommand]:
        """Commands of tool calls, whether they ran or not, newest first.

        Commands whose plan was erased or cannot be read are left out.
        """
        prefix = f"agent:{agent}:" if agent else ""
        await self._caught_up()
        return await self._database.read(
            lambda tx: past_commands(map(Link._make, tx.each("audit.commands", prefix=prefix)), limit)
        )

    async def verify(self, *, expect: str = "") -> AuditReport:
        """Recomputes the chain. With `expect`, that hash must be in it, or its end was cut off.

        Details that are erased during the check are named by later rows, so it continues to the end of the chain at
        that time.
        """
        await self._caught_up()
        walk = ChainCheck(expect)

        def look(tx: Transaction) -> bool:
            before = walk.reached
            found = tx.each("audit.links_after", after=before or BEFORE_ALL, limit=PIECE)
            return walk.along(Link(*row) for row in found) and walk.reached > before

        while await self._database.read(look):
            pass
        return walk.end(await self._database.read(lambda tx: tx.value("audit.stray_details")))

    async def erase(self, seqs: Sequence[int]) -> int:
        """Removes the details of these rows. Returns how many had some. A row of kind `erase` lists them."""

        def work(tx: Transaction) -> int:
            with tx.overwriting():
                gone = [seq for seq in sorted(set(seqs)) if tx.run("audit.erase_details", seq=seq)]
            for event in erasures(gone, self._clock.now_ms()):
                _append(tx, loose(event, self._new_salt()))
            return len(gone)

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
            raise failure


def _append(tx: Transaction, link: Link) -> None:
    seq, previous = tx.one("audit.last_link") or (0, BEGINNING.encode())
    row = linked(link, seq + 1, previous)
    texts = {name: value.decode() for name, value in row._asdict().items() if isinstance(value, bytes)}
    values = texts | {"seq": row.seq, "at": int(row.at)}
    tx.run("audit.add_link", **values)
    tx.run("audit.add_details", **values)
