"""Traces of runs in `home.sqlite`: the last five thousand. They ride along with whatever is written next."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import apsw
import msgspec

from palinurus.domain.errors import StorageError
from palinurus.ledger.trace import RunTrace, Status
from palinurus.storage.database import Database
from palinurus.storage.queries import load_queries

log = logging.getLogger(__name__)

SQL = load_queries("traces.sql")
KEPT = 5_000  # about a kilobyte each, 60 at most
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(RunTrace)


class SqliteTraces:
    """Implements dispatch.traces.TraceStore."""

    def __init__(self, database: Database, *, kept: int = KEPT) -> None:
        self._database = database
        self._kept = kept
        self._noted: set[asyncio.Future[None]] = set()

    def note(self, trace: RunTrace) -> None:
        try:
            future = self._database.enqueue(lambda connection: self._keep(connection, trace))
        except StorageError as error:
            log.info("the trace of run %s is not kept: %s", trace.run_id, error)
            return
        self._noted.add(future)
        future.add_done_callback(self._was_noted)

    async def recent(self, *, limit: int, session: str = "", status: Status | None = None) -> list[RunTrace]:
        return await self._traces("traces_recent", limit=limit, session=session, status=status or "")

    async def find(self, beginning: str) -> list[RunTrace]:
        return await self._traces("traces_beginning", beginning=beginning)

    def _keep(self, connection: apsw.Connection, trace: RunTrace) -> None:
        """On the writer's thread, encoding included: the turn has gone on long ago."""
        values = {
            "run_id": trace.run_id,
            "session_key": trace.session_key,
            "status": trace.status,
            "row": _encoder.encode(trace).decode(),
        }
        connection.execute(SQL["keep_trace"], values)
        connection.execute(SQL["forget_traces"], {"kept": self._kept})

    def _was_noted(self, future: asyncio.Future[None]) -> None:
        self._noted.discard(future)
        error = None if future.cancelled() else future.exception()
        if error is not None:
            log.info("the trace of a run is not kept: %s", error)

    async def _traces(self, query: str, **values: Any) -> list[RunTrace]:
        if self._noted:
            await self._database.flush()

        def work(connection: apsw.Connection) -> list[RunTrace]:
            return [trace for (row,) in connection.execute(SQL[query], values) if (trace := _decoded(row))]

        return await self._database.read(work)


def _decoded(row: str) -> RunTrace | None:
    """A trace that cannot be read is one that is no longer kept."""
    try:
        return _decoder.decode(row)
    except msgspec.DecodeError as error:
        log.info("a trace cannot be read: %s", error)
        return None
