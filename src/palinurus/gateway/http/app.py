"""The web application: routes, the checks of every request, and the WebSocket.

Host and Origin are checked before routing, on HTTP and on the WebSocket upgrade. Credentials are sent in the
Authorization header or in the connect frame. A cookie counts only at the WebSocket and the dashboard's routes, and only
from a page of this gateway (auth/guard.py). A URL that contains a credential is refused, because URLs end up in logs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Router, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.gateway.auth.errors import Refused, problem
from palinurus.gateway.auth.guard import Guard, cookie_of
from palinurus.gateway.auth.principal import Principal
from palinurus.gateway.websocket.methods import GatewayContext
from palinurus.gateway.websocket.socket import Sockets, SocketWire
from palinurus.operations.scopes import Scope as Right

log = logging.getLogger(__name__)

MAX_BODY = 20 * 1024 * 1024
BODY_SECONDS = 60.0
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
CREDENTIALS = frozenset({"token", "access_token", "auth_token", "password", "api_key", "apikey", "authorization"})
LOGIN = ("/login", "/page/login")  # a login code is a credential too: it belongs in the fragment, which is not sent
OUR_ERROR = "this request failed because of an error in the gateway"
ONCE = ("host", "origin", "authorization")
BY_PROXY = ("forwarded", "x-forwarded-for", "x-real-ip")


def make_app(gateway: GatewayContext, sockets: Sockets, routes: Sequence[BaseRoute]) -> ASGIApp:
    async def talk(websocket: WebSocket) -> None:
        await websocket.accept()
        await sockets.serve(SocketWire(websocket, peer_of(websocket), cookie_of(websocket, gateway.guard.address)))

    router = Router([*routes, WebSocketRoute("/", talk), WebSocketRoute("/ws", talk)], redirect_slashes=False)
    return RequestChecks(router, gateway.guard)


class RequestChecks:
    """Checks the address and the body size of every request, and turns errors into problem responses."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        answer = _Answer(send)
        scope["app"] = self  # makes the router raise HTTPException
        try:
            self._check(scope)
            await self._app(scope, BoundedBody(receive) if scope["type"] == "http" else receive, answer)
        except (ClientDisconnect, WebSocketDisconnect):
            pass  # in the middle of its request
        except Exception as error:
            if answer.started or not isinstance(error, Refused | PalinurusError | HTTPException):
                log.exception("the request for %s failed", scope["path"][:200])  # a bug of ours costs one request
            if not answer.started:
                await refuse(error)(scope, receive, answer)
        return None

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if any(len(headers.getlist(name)) > 1 for name in ONCE):
            raise Refused(400, "WRONG_HOST", "a request has one Host, one Origin and one Authorization header")
        self._guard.address.check(headers)
        named = {name.lower() for name, _ in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)}
        if named & CREDENTIALS or ("code" in named and scope["path"] in LOGIN):
            raise Refused(400, "TOKEN_IN_URL", "a credential does not belong in a URL: use a header")
        if scope["type"] == "http":
            _check_length(headers, MAX_BODY)


class _Answer:
    """Sends the response with our headers, and knows whether it has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            known = {name for name, _ in message["headers"]}
            extra = [header for header in HEADERS if header[0] not in known]
            message = {**message, "headers": [*message["headers"], *extra]}
        self.started = True
        await self._send(message)


class BoundedBody:
    """The request body up to a size: the Content-Length may be wrong or missing."""

    def __init__(self, receive: Receive, most: int = MAX_BODY) -> None:
        self._receive = receive
        self._most = self._left = most

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise _too_large(self._most)
        return message


def _check_length(headers: Headers, most: int) -> None:
    """Raises Refused, before anything of the body is read."""
    length = headers.get("content-length", "0")
    if not length.isdigit() or len(length) > 12 or int(length) > most:
        raise _too_large(most)


def _too_large(most: int) -> Refused:
    size = f"{most // 1024 // 1024} MiB" if most >= 1024 * 1024 else f"{most // 1024} KiB"
    return Refused(413, "TOO_LARGE", f"the body is larger than {size}")


def refuse(error: Exception) -> Response:
    """Any error as a problem response (RFC 9457)."""
    headers: dict[str, str] = {}
    if isinstance(error, HTTPException):
        headers = dict(error.headers or {})
        codes = {404: "NOT_FOUND", 405: "WRONG_METHOD"}
        error = Refused(error.status_code, codes.get(error.status_code, "INVALID_REQUEST"), error.detail)
    elif not isinstance(error, Refused | PalinurusError):
        error = PalinurusError(OUR_ERROR)
    status, body = problem(error)
    if isinstance(error, Refused) and error.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(msgspec.json.encode(body), status, headers, media_type="application/problem+json")


def reply(payload: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(payload), status, headers, media_type="application/json")


def authenticate(gateway: GatewayContext, request: Request, scope: Right) -> Principal:
    """Who sends the request; called before its body is read. Raises Refused and MissingScope."""
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    principal = gateway.guard.identify((secret.strip() if kind.lower() == "bearer" else "",), peer_of(request))
    principal.caller.need(scope, "this")
    request.scope["principal"] = principal.id  # for the log
    return principal


def peer_of(connection: Request | WebSocket) -> str:
    """The address of the client; empty behind a proxy, because then it is unknown."""
    if any(name in connection.headers for name in BY_PROXY):
        return ""
    return connection.client.host if connection.client else ""


async def read_json(
    request: Request, kind: Any, *, most: int = MAX_BODY, seconds: float = BODY_SECONDS, any_type: bool = False
) -> Any:
    """The body as a typed record. Forms of other sites cannot send this content type. Raises BadRequest and Refused."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not any_type and media_type != "application/json":
        raise Refused(415, "WRONG_TYPE", "the body must be application/json")
    _check_length(request.headers, most)
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > most:
                    raise _too_large(most)
    except TimeoutError:
        raise Refused(408, "TIMEOUT", "the body did not arrive in time") from None
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body: {error}") from None
