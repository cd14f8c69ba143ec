"""One conversation with a server, from its start to its end, in a task of its own.

The package wants its scopes entered and left by the same task, so this task does nothing else: it connects, asks for
the tools, and then waits until it is told to leave or the server is gone. Requests are made by whoever has one.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from palinurus import __version__
from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.tools.mcp import package
from palinurus.tools.mcp.child import child
from palinurus.tools.mcp.remote import remote
from palinurus.tools.mcp.settings import ServerSettings

if TYPE_CHECKING:
    import anyio
    from mcp.client.session import ClientSession
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

START_SECONDS = 60.0  # a package runner may have to fetch the server first
LEAVE_SECONDS = 1.5
MAX_PAGES = 32
MAX_NAMED = 4_096  # tools that are looked at; far fewer are kept
VERSION_HEADER = "mcp-protocol-version"

log = logging.getLogger(__name__)

Listed = Callable[[list[Any]], Awaitable[None]]
"""Told the tools that the server names, before anybody may call one."""


class ServerGone(PalinurusError):
    """A server that does not answer, or no longer."""


class Connection:
    """Is made running. `started` is set when calls may be made or when `reason` says why none can."""

    def __init__(self, settings: ServerSettings, listed: Listed) -> None:
        self.started = asyncio.Event()
        self.reason = ""  # why it has ended; empty while it lives
        self.is_stale = False  # the server has said that its tools are others now
        self.about = ""  # what the server calls itself
        self._settings = settings
        self._listed = listed
        self._over = asyncio.Event()
        self._leaves = False
        self._scope: anyio.CancelScope | None = None
        self._session: ClientSession | None = None
        self._dispatcher: JSONRPCDispatcher[Any] | None = None
        self._task = asyncio.create_task(self._live(), name=f"mcp {settings.name}")

    @property
    def is_alive(self) -> bool:
        return not self._task.done() and not self._over.is_set()

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """The answer as it was sent. Raises PalinurusError; cancelling it tells the server to give up."""
        return await self._ask("tools/call", {"name": tool, "arguments": dict(arguments)})

    async def relist(self) -> None:
        """Ask for the tools again, and have them told. Raises PalinurusError."""
        self.is_stale = False
        await self._listed(await self._pages())

    async def close(self) -> None:
        """Within two seconds nothing of it is left."""
        self._leaves = True
        self._over.set()
        if not self.started.is_set() and self._scope is not None:
            self._scope.cancel()
        elif not self.started.is_set():
            self._task.cancel()
        done, _ = await asyncio.wait({self._task}, timeout=LEAVE_SECONDS)
        if not done:
            if self._scope is not None:
                self._scope.cancel()
            await asyncio.wait({self._task}, timeout=LEAVE_SECONDS / 3)

    async def ended(self) -> None:
        await asyncio.wait({self._task}, timeout=LEAVE_SECONDS)

    async def _live(self) -> None:
        try:
            await package.load()
            await self._converse()
            self._end("it was asked to leave" if self._leaves else "the connection ended")
        except Exception as error:  # whatever the package, the network or the server did: it costs this connection
            log.info("MCP server %s: the connection failed", self._settings.name, exc_info=True)
            self._end(_told(error))
        finally:
            self._end("it was cancelled")
            self._session = None
            self.started.set()

    def _end(self, reason: str) -> None:
        """The first reason counts: what comes later follows from it."""
        self.reason = self.reason or reason
        self._over.set()

    async def _converse(self) -> None:
        import anyio
        from mcp.client.session import ClientSession
        from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
        from mcp.types import Implementation

        with anyio.fail_after(START_SECONDS) as self._scope:
            async with self._streams() as (incoming, outgoing):
                self._dispatcher = JSONRPCDispatcher(incoming, outgoing)
                async with ClientSession(
                    dispatcher=self._dispatcher,
                    client_info=Implementation(name="palinurus", version=__version__),
                    message_handler=self._hear,
                ) as session:
                    await self._greet(session)
                    self._session = session
                    await self.relist()
                    self._scope.deadline = math.inf
                    self.started.set()
                    await self._over.wait()

    def _streams(self) -> AbstractAsyncContextManager[tuple[Any, Any]]:
        return remote(self._settings) if self._settings.url else child(self._settings, self._end)

    async def _greet(self, session: ClientSession) -> None:
        """The handshake that every server knows; for those that know it no longer, the one that came after it."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        try:
            await session.initialize()
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                raise
            await session.discover()
        info = session.server_info
        self.about = f"{info.name} {info.version}".strip()[:200] if info else ""

    async def _hear(self, message: object) -> None:
        from mcp.types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self.is_stale = True

    async def _pages(self) -> list[Any]:
        session = self._session
        if session is None or session.server_capabilities is None or session.server_capabilities.tools is None:
            return []
        named: list[Any] = []
        cursor: Any = None
        for _ in range(MAX_PAGES):
            page = await self._ask("tools/list", {"cursor": cursor} if cursor else {})
            found = page.get("tools") if isinstance(page, dict) else None
            named += found if isinstance(found, list) else []
            cursor = page.get("nextCursor") if isinstance(page, dict) else None
            if not cursor or len(named) > MAX_NAMED:
                break
        return named[:MAX_NAMED]

    async def _ask(self, method: str, params: dict[str, Any]) -> Any:
        """One request. Raises ServerGone when there is nobody to answer, and PalinurusError for a refusal."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED
        from pydantic import ValidationError

        session, dispatcher = self._session, self._dispatcher
        if session is None or dispatcher is None:
            raise ServerGone(self.reason or "it is not connected")
        try:
            if session.discover_result is not None:
                return await _ask_as_of_2026(session, method, params)
            # Past the package's own reading of the answer, which throws a whole listing away for one odd schema.
            headers = {VERSION_HEADER: session.protocol_version or ""}
            return await dispatcher.send_raw_request(method, params, {"headers": headers})
        except MCPError as error:
            if error.code != CONNECTION_CLOSED:
                raise BadRequest(str(error)[:2_000]) from error
            await self.ended()  # its own task knows why
            raise ServerGone(self.reason or str(error)) from error
        except ValidationError as error:
            raise BadRequest(f"its answer is of no known form ({error.error_count()} faults)") from error


async def _ask_as_of_2026(session: ClientSession, method: str, params: dict[str, Any]) -> Any:
    """With what newer servers want in every request, which only the package knows."""
    from mcp import types

    answer: types.Result
    if method == "tools/list":
        answer = await session.list_tools(params=types.PaginatedRequestParams.model_validate(params))
    else:
        call = types.CallToolRequest(params=types.CallToolRequestParams.model_validate(params))
        answer = await session.send_request(call, types.CallToolResult)
    return answer.model_dump(by_alias=True, mode="json", exclude_none=True)


def _told(error: BaseException) -> str:
    """The first of what went wrong, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"it did not answer within {START_SECONDS:g} s"
    words = " ".join(str(error).split())[:500]
    return words if isinstance(error, PalinurusError) and words else f"{type(error).__name__}: {words}".rstrip(": ")
