"""One configured server over the life of the house: what tools it has, whether it can be reached, and how it is called.

It is started by the first call, and kept. When it crashes the next call starts it again, at once the first time and
then after pauses that grow.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.domain.errors import PalinurusError
from palinurus.domain.function_tool import failed
from palinurus.domain.tool import MALFORMED, ToolOutput
from palinurus.tools.mcp.connection import Connection, ServerGone
from palinurus.tools.mcp.listing import Listing, Shelf, read_listing
from palinurus.tools.mcp.results import outside, read_result
from palinurus.tools.mcp.settings import ServerSettings

FIRST_SECONDS = 10.0  # that a turn waits for a server of which nothing is known yet
AGAIN_SECONDS = 2.0  # that a turn waits for a server that says its tools have changed
OLD_MS = 24 * 3600 * 1000  # a listing of that age is asked for again, without waiting
LONGEST_PAUSE = 60.0

log = logging.getLogger(__name__)


class ServerStanding(Struct, frozen=True, rename="camel"):
    """How a server stands, for people."""

    name: str
    transport: str  # stdio | http
    where: str
    state: str  # connected | starting | idle | failed | unknown
    about: str = ""  # what it calls itself, while connected
    trouble: str = ""
    listed_at: int = 0  # milliseconds; 0: never
    tools: tuple[str, ...] = ()  # as models call them
    left_out: int = 0


class McpServer:
    def __init__(
        self, settings: ServerSettings, shelf: Shelf, clock: Clock, *, first_seconds: float = FIRST_SECONDS
    ) -> None:
        self.settings = settings
        self.listing: Listing | None = None
        self.trouble = ""  # why it could not be reached the last time
        self._shelf = shelf
        self._clock = clock
        self._first_seconds = first_seconds
        self._connection: Connection | None = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._failures = 0
        self._not_before = 0
        self._waited = False
        self._closed = False

    async def load(self) -> None:
        """Take up what is kept of it."""
        self.listing = await asyncio.to_thread(self._shelf.load, self.settings.fingerprint)

    async def refresh(self) -> None:
        """Before a turn: find out what must be known, and start finding out what may be. Waits for a bounded time."""
        live = self._connection if self._connection and self._connection.is_alive else None
        if live and live.started.is_set() and live.is_stale:
            await self._within(AGAIN_SECONDS, live.relist())
        elif self.listing is None and not self._waited:
            self._waited = True
            await self._within(self._first_seconds, self._connected())
        elif live is None and self._is_due() and self._clock.now_ms() >= self._not_before:
            self._keep(self._connected())  # in the background: this turn goes on with what is known

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
        """Whatever goes wrong is a result. Cancelled, it tells the server and returns at once."""
        if MALFORMED in arguments:
            return failed(f"the arguments were not JSON: {str(arguments[MALFORMED])[:200]!r}")
        limit, name = self.settings.timeout_seconds, self.settings.name
        work = self._keep(self._called(tool, arguments))
        try:
            done, _ = await asyncio.wait({work}, timeout=limit)
        finally:
            work.cancel()  # of no effect when it is done
        if not done:
            return outside(name, f"{name} did not answer within {limit:g} s; it was told to give up", is_error=True)
        try:
            return await read_result(name, work.result())
        except PalinurusError as error:
            return outside(name, f"{name}: {self._shelf.redact(str(error))}", is_error=True)

    async def test(self) -> None:
        """Reach it now, whatever was before, and ask for its tools. Raises PalinurusError."""
        self._not_before = 0
        connection = await self._connected()
        await connection.relist()
        self._failures, self.trouble = 0, ""

    def standing(self, names: tuple[str, ...]) -> ServerStanding:
        listing, live = self.listing, self._connection if self._connection and self._connection.is_alive else None
        state = "failed" if self.trouble else "idle" if listing else "unknown"
        if live is not None:
            state = "connected" if live.started.is_set() else "starting"
        return ServerStanding(
            name=self.settings.name,
            transport=self.settings.transport,
            where=self._shelf.redact(self.settings.where),
            state=state,
            about=live.about if live else "",
            trouble=self.trouble,
            listed_at=listing.at if listing else 0,
            tools=names,
            left_out=listing.left_out if listing else 0,
        )

    async def close(self) -> None:
        self._closed = True
        for task in self._calls:
            task.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        if self._calls:
            await asyncio.wait(self._calls, timeout=0.5)

    def _is_due(self) -> bool:
        return self.listing is None or self._clock.now_ms() - self.listing.at > OLD_MS

    async def _called(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        connection = await self._connected()
        try:
            answer = await connection.call(tool, _as_json(arguments))
        except ServerGone as error:
            self._failed(connection)
            raise ServerGone(f"it broke off: {error}", hint="it is started again for the next call") from error
        self._failures, self.trouble = 0, ""
        return answer

    async def _connected(self) -> Connection:
        """The connection, made if there is none. Raises PalinurusError when it cannot be had now."""
        connection = self._connection
        if connection is not None and not connection.is_alive and not self._closed:
            self._failed(connection)  # while nobody looked
            connection = None
        if self._closed:
            raise ServerGone("this process is leaving")
        if connection is None:
            wait = self._not_before - self._clock.now_ms()
            if wait > 0:
                raise ServerGone(f"it cannot be reached: {self.trouble}", hint=f"tried again in {wait / 1000:.0f} s")
            connection = self._connection = Connection(self.settings, self._listed)
        await connection.started.wait()
        if connection.reason:
            self._failed(connection)
            raise ServerGone(f"it cannot be reached: {self.trouble}")
        return connection

    def _failed(self, connection: Connection) -> None:
        """Count it once, however many wait for it."""
        if connection is not self._connection:
            return
        self._connection = None
        self._failures += 1
        pause = min(LONGEST_PAUSE, 2.0 ** (self._failures - 2)) if self._failures > 1 else 0.0
        self._not_before = self._clock.now_ms() + int(pause * 1000)
        self.trouble = self._shelf.redact(connection.reason or "the connection ended")
        self._keep(connection.close())

    async def _listed(self, named: list[Any]) -> None:
        found = read_listing(named, at=self._clock.now_ms())
        self.listing = await asyncio.to_thread(self._shelf.keep, self.settings.fingerprint, found)
        self.trouble = ""

    async def _within(self, seconds: float, work: Any) -> None:
        """Wait for it so long; it goes on alone."""
        task = self._keep(work)
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if not done:
            self.trouble = self.trouble or f"it did not answer within {seconds:g} s"

    def _keep(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._let_go)
        return task

    def _let_go(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info("MCP server %s: %s", self.settings.name, error)


def _as_json(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What can go over a wire. Raises PalinurusError for half a character or a number beyond it."""
    try:
        return msgspec.json.decode(msgspec.json.encode(arguments), type=dict[str, Any])
    except (OverflowError, UnicodeError, RecursionError, msgspec.MsgspecError) as error:
        raise PalinurusError(f"the arguments cannot be sent: {error}") from error
