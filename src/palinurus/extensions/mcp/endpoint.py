"""MCP over streamable HTTP at /mcp of the gateway: who asks, what they may do, and the transport of the package.

A caller has a token of the gateway, or one that it got by OAuth for this address (`authorization`). It is looked up
for every request, and a revoked one ends the streams that it opened. A session belongs to the credential that began it.
Host and Origin were checked before (gateway/http/app.py). The package is loaded at the first request.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from palinurus.domain.errors import MissingScope, PalinurusError
from palinurus.extensions.mcp.send import CallSlots, ServeOptions
from palinurus.gateway.auth.guard import LOOPBACK, Principal
from palinurus.gateway.http.app import bearer_of, peer_of, read_body, refuse
from palinurus.gateway.protocol import Refused
from palinurus.gateway.websocket.methods import GatewayContext
from palinurus.operations.table import Feed, Operation

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from palinurus.extensions.mcp.serve import McpCalls

PATH = "/mcp"
RESOURCE_METADATA = "/.well-known/oauth-protected-resource"
MAX_BODY = 1024 * 1024
BODY_SECONDS = 30.0
MAX_SESSIONS = 128
IDLE_SECONDS = 30 * 60.0
MAX_EVENTS = 512  # of one session, that a client may ask for again
MAX_EVENT_BYTES = 1024 * 1024
RETRY_MS = 1_000
CALLER = "palinurus.caller"  # the key of the principal in a request's scope
log = logging.getLogger(__name__)


def base_of(request: Request) -> str:
    """The address of the gateway as this client knows it. A name without a port is a proxy's, which has TLS."""
    host = request.headers["host"].lower()
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    by_proxy = name == host and name not in LOOPBACK
    return f"{'https' if request.url.scheme == 'https' or by_proxy else 'http'}://{host}"


def resource_of(request: Request) -> str:
    """The audience of tokens: this endpoint, at the address that the client uses."""
    return f"{base_of(request)}{PATH}"


def challenge(request: Request, error: Exception) -> str:
    """Where a client without a valid token learns how to get one (RFC 9728)."""
    where = f'resource_metadata="{base_of(request)}{RESOURCE_METADATA}{PATH}"'
    if isinstance(error, MissingScope):
        return f'Bearer error="insufficient_scope", scope="{error.scope}", {where}'
    wrong = ' error="invalid_token",' if bearer_of(request) else ""
    return f"Bearer{wrong} {where}"


class PrincipalCaller:
    """Runs operations with the rights of a client of the gateway."""

    def __init__(self, gateway: GatewayContext, principal: Principal) -> None:
        self._services = gateway.services
        self._caller = principal.caller

    async def call(self, operation: Operation[Any, Any], params: Any, idempotency_key: str = "") -> Any:
        self._caller.need(operation.scope, operation.name)
        return await operation.run(self._services, params, self._caller, idempotency_key)

    def follow(self, feed: Feed[Any, Any], params: Any) -> AsyncIterator[Any]:
        self._caller.need(feed.scope, feed.name)
        return feed.run(self._services, params, self._caller)


class McpEndpoint:
    """The route /mcp, as an ASGI application."""

    def __init__(self, gateway: GatewayContext) -> None:
        self._gateway = gateway
        self._manager: StreamableHTTPSessionManager | None = None
        self._runner: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._over = asyncio.Event()
        self._slots = CallSlots()
        self._answering: dict[str, set[asyncio.Task[None]]] = {}  # id of a credential -> what it asked for
        gateway.guard.on_revoked.append(self._revoked)
        gateway.on_close.append(self.close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            principal = self._authenticate(request)
            body = await read_body(request, most=MAX_BODY, seconds=BODY_SECONDS) if request.method == "POST" else b""
            manager = await self._started()
        except (Refused, PalinurusError) as error:
            answer = refuse(error)
            if answer.status_code in (401, 403):
                answer.headers["WWW-Authenticate"] = challenge(request, error)
            return await answer(scope, receive, send)
        scope[CALLER], scope["user"] = principal, _user(principal)
        work = asyncio.create_task(manager.handle_request(scope, _replayed(body, receive), send))
        await self._finish(principal, work)
        return None

    async def close(self) -> None:
        """Ends all sessions and streams."""
        self._over.set()
        for tasks in list(self._answering.values()):
            _cancel(tasks)
        if self._runner is not None:
            await asyncio.wait({self._runner}, timeout=2.0)

    def _authenticate(self, request: Request) -> Principal:
        guard = self._gateway.guard
        principal = guard.identify_for(resource_of(request), bearer_of(request), peer_of(request))
        principal.caller.need("read", "this")
        request.scope["principal"] = principal.id  # for the log
        return principal

    async def _finish(self, principal: Principal, work: asyncio.Task[None]) -> None:
        """Waits for an answer, which ends early when its credential does. What it left open is closed by the server."""
        keys = {each for each in principal.rests_on if each}
        for key in keys:
            self._answering.setdefault(key, set()).add(work)
        try:
            await asyncio.wait({work})
            if not work.cancelled():
                work.result()
        finally:
            work.cancel()
            for key in keys:
                if left := self._answering.get(key):
                    left.discard(work)
                if not left:
                    self._answering.pop(key, None)

    def _revoked(self, credential: str) -> None:
        _cancel(self._answering.get(credential, set()))

    async def _started(self) -> StreamableHTTPSessionManager:
        """The transport. Raises ConfigError if the package is not installed, and Refused when the gateway leaves."""
        from palinurus.extensions.mcp.connection import load_package

        await load_package("mcp_types", "mcp.server.lowlevel", "mcp.server.streamable_http_manager")
        async with self._starting:
            if self._over.is_set():
                raise Refused(503, "UNAVAILABLE", "the gateway is shutting down")
            if self._manager is None:
                ready: asyncio.Future[StreamableHTTPSessionManager] = asyncio.get_running_loop().create_future()
                self._runner = asyncio.create_task(self._run(ready), name="mcp over http")
                self._manager = await ready
            return self._manager

    async def _run(self, ready: asyncio.Future[StreamableHTTPSessionManager]) -> None:
        """The package wants its scope entered and left by one task."""
        from palinurus.extensions.mcp.serve import make_server_for

        manager = _manager(make_server_for(self._calls_of))
        async with manager.run():
            ready.set_result(manager)
            await self._over.wait()

    def _calls_of(self, context: Any) -> McpCalls:
        """Who asks, with the rights of the very request."""
        from palinurus.extensions.mcp.serve import McpCalls

        principal: Principal = context.request.scope[CALLER]
        # By name only: whoever holds the owner's secret shall not let its own calls pass.
        approvals = "approvals" in principal.scopes and "admin" not in principal.scopes
        options = ServeOptions(read_only=not principal.may("write"), approvals=approvals)
        return McpCalls(PrincipalCaller(self._gateway, principal), options, self._gateway.new_id, self._slots)


def _cancel(tasks: set[asyncio.Task[None]]) -> None:
    for task in list(tasks):
        task.cancel()


def _user(principal: Principal) -> Any:
    """The caller in the package's form: a session can be used only by the one that began it. A program that has
    renewed its token is the same one."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    return AuthenticatedUser(
        AccessToken(token="", client_id=principal.device_id or principal.id, scopes=sorted(principal.scopes))
    )


def _replayed(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    """The body that was read already, and what comes after it."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


def _manager(server: Any) -> StreamableHTTPSessionManager:
    from mcp.server.streamable_http import EventMessage, EventStore
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    class EventLog(EventStore):
        """The last events of one session, for a client whose connection broke."""

        def __init__(self) -> None:
            self._events: OrderedDict[str, tuple[str, Any, int]] = OrderedDict()  # id -> stream, message, size
            self._size = 0

        async def store_event(self, stream_id: str, message: Any) -> str:
            size = len(message.model_dump_json(by_alias=True)) if message is not None else 0
            event_id = secrets.token_hex(12)
            self._events[event_id] = stream_id, message, size
            self._size += size
            while len(self._events) > MAX_EVENTS or (self._size > MAX_EVENT_BYTES and len(self._events) > 1):
                _, (_, _, old) = self._events.popitem(last=False)
                self._size -= old
            return event_id

        async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
            if last_event_id not in self._events:
                return None
            stream, passed = self._events[last_event_id][0], False
            for event_id, (of, message, _) in list(self._events.items()):
                if passed and of == stream and message is not None:
                    await send_callback(EventMessage(message, event_id))
                passed = passed or event_id == last_event_id
            return stream

    class SessionManager(StreamableHTTPSessionManager):
        """Gives each session a log of its own: ids of streams are the same in all of them."""

        @property
        def event_store(self) -> EventStore | None:
            return EventLog()

        @event_store.setter
        def event_store(self, _: EventStore | None) -> None: ...

    return SessionManager(
        server,
        session_idle_timeout=IDLE_SECONDS,
        max_sessions=MAX_SESSIONS,
        max_request_body_size=MAX_BODY,
        retry_interval=RETRY_MS,
    )
