"""One connection to a server, from its start to its end, in a task of its own.

The package `mcp` wants its scopes entered and left by the same task, so this task does nothing else: it connects,
asks for the tools, and then waits until it is closed or the server is gone. Requests are made by other tasks.

The package is an extra that is loaded when a server is first used. It takes more than a second to import, so that
happens in a thread. Its log lines go to our log; we report what matters ourselves.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Awaitable, Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from palinurus import __version__
from palinurus.domain.errors import BadRequest, ConfigError, PalinurusError
from palinurus.extensions.mcp.settings import ServerSettings
from palinurus.extensions.mcp.transport import child_streams, remote_streams

if TYPE_CHECKING:
    import anyio
    from mcp.client.session import ClientSession
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

INSTALL_HINT = "install it: pip install 'palinurus[mcp]'"
NOT_INSTALLED = "the config names MCP servers, but the package mcp is not installed"
_MODULES = ("anyio", "mcp", "mcp.client.streamable_http", "mcp.shared.jsonrpc_dispatcher")
_one_at_a_time = threading.Lock()
START_SECONDS = 60.0  # a package runner may have to download the server first
LEAVE_SECONDS = 1.5
MAX_PAGES = 32
MAX_NAMED = 4_096  # tools that are read; far fewer are used
VERSION_HEADER = "mcp-protocol-version"
log = logging.getLogger(__name__)


class ServerListing(Struct, frozen=True):
    """What a server lists, as it sent it."""

    tools: list[Any]
    prompts: list[Any]
    has_resources: bool


Listed = Callable[[ServerListing], Awaitable[None]]
"""Gets what the server lists, before anything of it is used."""


def is_package_installed() -> bool:
    return find_spec("mcp") is not None


async def load_package(*further: str) -> None:
    """Imports the package off the loop. Raises ConfigError if it is not installed."""
    if not is_package_installed():
        raise ConfigError(NOT_INSTALLED, hint=INSTALL_HINT)
    await asyncio.to_thread(_import, (*_MODULES, *further))


def _import(modules: Iterable[str]) -> None:
    with _one_at_a_time:
        for name in modules:
            import_module(name)
        theirs = logging.getLogger("mcp")
        if theirs.propagate:
            theirs.propagate = False
            theirs.addHandler(_QuietHandler())


class _QuietHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log.info("%s: %s", record.name, record.getMessage(), exc_info=record.exc_info)


class ServerGone(PalinurusError):
    """A server that does not answer, or no longer."""


class ServerConnection:
    """A running connection. `started` is set when calls may be made or when `reason` says why none can."""

    def __init__(self, settings: ServerSettings, listed: Listed, auth: Callable[[], Any] = lambda: None) -> None:
        self.started = asyncio.Event()
        self.reason = ""  # why it has ended; empty while it is open
        self.is_stale = False  # the server has reported that its tools changed
        self.about = ""  # the name that the server reports
        self._settings = settings
        self._listed = listed
        self._auth = auth  # of requests to an address
        self._over = asyncio.Event()
        self._leaves = False
        self._scope: anyio.CancelScope | None = None
        self._session: ClientSession | None = None
        self._dispatcher: JSONRPCDispatcher[Any] | None = None
        self._task = asyncio.create_task(self._live(), name=f"mcp {settings.name}")

    @property
    def is_alive(self) -> bool:
        return not self._task.done() and not self._over.is_set()

    async def relist(self) -> None:
        """Requests the tools again and reports them. Raises PalinurusError."""
        self.is_stale = False
        tools, prompts = await self._pages("tools"), await self._pages("prompts")
        await self._listed(ServerListing(tools, prompts, self._has("resources")))

    async def close(self) -> None:
        """Closes it within two seconds."""
        self._leaves = True
        self._over.set()
        if not self.started.is_set():
            (self._scope or self._task).cancel()
        done, _ = await asyncio.wait({self._task}, timeout=LEAVE_SECONDS)
        if not done:
            if self._scope is not None:
                self._scope.cancel()
            await asyncio.wait({self._task}, timeout=LEAVE_SECONDS / 3)

    async def _live(self) -> None:
        try:
            await load_package()
            await self._converse()
            self._end("it was closed" if self._leaves else "the connection ended")
        except Exception as error:  # any error of the package, the network or the server ends only this connection
            log.info("MCP server %s: the connection failed", self._settings.name, exc_info=True)
            self._end(_failure_text(error))
        finally:
            self._end("it was cancelled")
            self._session = None
            self.started.set()

    def _end(self, reason: str) -> None:
        """Ends it. The first reason counts: later ones follow from it."""
        self.reason = self.reason or reason
        self._over.set()

    async def _converse(self) -> None:
        import anyio
        from mcp.client.session import ClientSession
        from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
        from mcp.types import Implementation

        far = self._settings.url
        streams = remote_streams(self._settings, self._auth()) if far else child_streams(self._settings, self._end)
        with anyio.fail_after(START_SECONDS) as self._scope:
            async with streams as (incoming, outgoing):
                self._dispatcher = JSONRPCDispatcher(incoming, outgoing)
                async with ClientSession(
                    dispatcher=self._dispatcher,
                    client_info=Implementation(name="palinurus", version=__version__),
                    message_handler=self._on_message,
                ) as session:
                    await self._greet(session)
                    self._session = session
                    await self.relist()
                    self._scope.deadline = math.inf
                    self.started.set()
                    await self._over.wait()

    async def _greet(self, session: ClientSession) -> None:
        """Does the handshake that every server knows, or the newer one for servers that dropped the old."""
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

    async def _on_message(self, message: object) -> None:
        from mcp.types import PromptListChangedNotification, ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification | PromptListChangedNotification):
            self.is_stale = True

    def _has(self, capability: str) -> bool:
        session = self._session
        return session is not None and getattr(session.server_capabilities, capability, None) is not None

    async def _pages(self, what: str) -> list[Any]:
        named: list[Any] = []
        cursor: Any = None
        for _ in range(MAX_PAGES if self._has(what) else 0):
            page = await self.ask(f"{what}/list", {"cursor": cursor} if cursor else {})
            found, cursor = (page.get(what), page.get("nextCursor")) if isinstance(page, dict) else (None, None)
            named += found if isinstance(found, list) else []
            if not cursor or len(named) > MAX_NAMED:
                break
        return named[:MAX_NAMED]

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Sends one request and returns the raw answer. Cancelling tells the server to cancel. Raises ServerGone if
        there is no connection, and PalinurusError for a refusal."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED
        from pydantic import ValidationError  # installed with mcp

        session, dispatcher = self._session, self._dispatcher
        if session is None or dispatcher is None:
            raise ServerGone(self.reason or "it is not connected")
        try:
            if session.discover_result is not None:
                return await _ask_as_of_2026(session, method, params)
            # Bypasses the package's parsing of the answer, which rejects a whole listing because of one odd schema.
            headers = {VERSION_HEADER: session.protocol_version or ""}
            return await dispatcher.send_raw_request(method, params, {"headers": headers})
        except MCPError as error:
            if error.code != CONNECTION_CLOSED:
                raise BadRequest(str(error)[:2_000]) from error
            await asyncio.wait({self._task}, timeout=LEAVE_SECONDS)  # the connection's own task knows why
            raise ServerGone(self.reason or str(error)) from error
        except ValidationError as error:
            raise BadRequest(f"its answer has an unknown form ({error.error_count()} faults)") from error


async def _ask_as_of_2026(session: ClientSession, method: str, params: dict[str, Any]) -> Any:
    """Sends a request with the fields that newer servers require, which only the package knows."""
    from mcp import types

    kinds: dict[str, tuple[Any, Any, Any]] = {
        "tools/list": (types.ListToolsRequest, types.PaginatedRequestParams, types.ListToolsResult),
        "tools/call": (types.CallToolRequest, types.CallToolRequestParams, types.CallToolResult),
        "prompts/list": (types.ListPromptsRequest, types.PaginatedRequestParams, types.ListPromptsResult),
        "prompts/get": (types.GetPromptRequest, types.GetPromptRequestParams, types.GetPromptResult),
        "resources/list": (types.ListResourcesRequest, types.PaginatedRequestParams, types.ListResourcesResult),
        "resources/read": (types.ReadResourceRequest, types.ReadResourceRequestParams, types.ReadResourceResult),
    }
    request, given, result = kinds[method]
    answer: types.Result = await session.send_request(request(params=given.model_validate(params)), result)
    return answer.model_dump(by_alias=True, mode="json", exclude_none=True)


def _failure_text(error: BaseException) -> str:
    """Returns the first error in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"it did not answer within {START_SECONDS:g} s"
    words = " ".join(str(error).split())[:500]
    return words if isinstance(error, PalinurusError) and words else f"{type(error).__name__}: {words}".rstrip(": ")
