"""The web application: routes, the checks that every request passes, and the WebSocket beside them.

Host and Origin are checked before anything is routed, on HTTP and on the upgrade alike. Credentials travel in the
Authorization header or in the connect frame. A cookie counts at the WebSocket and for the page's own routes only, and
only when the page that asks is our own (door/cookies.py), so no other site rides on one. An address that carries a
credential is refused, because addresses are written to logs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.gateway.door.access import Principal
from palinurus.gateway.door.cookies import cookie_of
from palinurus.gateway.door.guard import Guard, Refused
from palinurus.gateway.door.refusals import problem
from palinurus.gateway.frames.outgoing import Gone
from palinurus.gateway.talk.desk import Desk
from palinurus.gateway.talk.socket import Sockets
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
LOGIN = ("/login", "/page/login")  # where the code is one, too: it belongs into the fragment, which is not sent
ONCE = ("host", "origin", "authorization")
BY_PROXY = ("forwarded", "x-forwarded-for", "x-real-ip")


def make_app(desk: Desk, sockets: Sockets, routes: Sequence[BaseRoute]) -> ASGIApp:
    async def talk(websocket: WebSocket) -> None:
        await websocket.accept()
        await sockets.serve(StarletteWire(websocket, cookie_of(websocket, desk.guard.place)))

    async def told(_: Request, error: Exception) -> Response:
        return refuse(error)

    handled: dict[Any, Any] = dict.fromkeys((Refused, PalinurusError, HTTPException, Exception), told)
    app = Starlette(
        routes=[*routes, WebSocketRoute("/", talk), WebSocketRoute("/ws", talk)], exception_handlers=handled
    )
    app.router.redirect_slashes = False
    return Checked(app, desk.guard)


class Checked:
    """What every request passes: the place it names, the size of its body, and errors told as problems."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        answer = _Answer(send)
        try:
            self._check(scope)
            await self._app(scope, _Bounded(receive) if scope["type"] == "http" else receive, answer)
        except Refused as error:
            log.debug("refused %s: %s", scope["path"][:200], error.message)
            await refuse(error)(scope, receive, answer)
        except (ClientDisconnect, WebSocketDisconnect):
            pass  # it has gone in the middle of its request
        except Exception:  # the edge of the house: a mistake of ours costs one request, and is told once
            log.exception("the request for %s failed", scope["path"][:200])
            if not answer.started:
                await refuse(PalinurusError("this request failed by a mistake of the gateway"))(scope, receive, answer)
        return None

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if any(len(headers.getlist(name)) > 1 for name in ONCE):
            raise Refused(400, "WRONG_HOST", "a request names one host, one origin and one credential")
        self._guard.place.check(headers)
        named = {name.lower() for name, _ in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)}
        if named & CREDENTIALS or ("code" in named and scope["path"] in LOGIN):
            raise Refused(400, "TOKEN_IN_URL", "a credential does not belong into an address: use a header")
        if scope["type"] == "http":
            told = headers.get("content-length", "0")
            if not told.isdigit() or len(told) > 12 or int(told) > MAX_BODY:
                raise _too_large()


class _Answer:
    """Sends the answer with our headers on it, and knows whether it has begun."""

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


class _Bounded:
    """The body, up to a size; a client may lie about its length or tell none."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._room = MAX_BODY

    async def __call__(self) -> Message:
        message = await self._receive()
        self._room -= len(message.get("body", b""))
        if self._room < 0:
            raise _too_large()
        return message


def _too_large() -> Refused:
    return Refused(413, "TOO_LARGE", f"the body is larger than {MAX_BODY // 1024 // 1024} MiB")


def refuse(error: Exception) -> Response:
    """Any error as a problem (RFC 9457)."""
    headers: dict[str, str] = {}
    if isinstance(error, HTTPException):
        headers = dict(error.headers or {})
        codes = {404: "NOT_FOUND", 405: "WRONG_METHOD"}
        error = Refused(error.status_code, codes.get(error.status_code, "INVALID_REQUEST"), error.detail)
    elif not isinstance(error, Refused | PalinurusError):
        error = PalinurusError("this request failed by a mistake of the gateway")
    status, body = problem(error)
    if isinstance(error, Refused) and error.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(msgspec.json.encode(body), status, headers, media_type="application/problem+json")


def reply(payload: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(payload), status, headers, media_type="application/json")


def who(desk: Desk, request: Request, scope: Right) -> Principal:
    """Whose request it is, with the right to make it. Raises Refused. Asked before the body is read."""
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    principal = desk.guard.principal(secret.strip() if kind.lower() == "bearer" else "", peer_of(request))
    if not principal.may(scope):
        raise Refused(403, "FORBIDDEN", f"this needs the scope {scope}", details={"code": "MISSING_SCOPE"})
    request.scope["principal"] = principal.id  # for the log
    return principal


def peer_of(connection: Request | WebSocket) -> str:
    """The address of the other side; empty when a proxy stands between, for then it may be anywhere."""
    if any(name in connection.headers for name in BY_PROXY):
        return ""
    return connection.client.host if connection.client else ""


async def read_json(request: Request, kind: Any) -> Any:
    """The body as a typed record. Raises BadRequest. Other sites' forms cannot send this content type unasked."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "WRONG_TYPE", "the body must be application/json")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await request.body()
    except TimeoutError:
        raise Refused(408, "TIMEOUT", "the body did not come in time") from None
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body: {error}") from None


class StarletteWire:
    """Implements talk.socket.Wire."""

    def __init__(self, websocket: WebSocket, cookie: str) -> None:
        self._websocket = websocket
        self.cookie = cookie
        self._connection = websocket.scope.get("state", {}).get("connection")  # connections.Connection

    @property
    def peer(self) -> str:
        return peer_of(self._websocket)

    async def receive(self) -> str | bytes:
        try:
            message = await self._websocket.receive()
        except RuntimeError as error:  # asked again after it had closed
            raise Gone from error
        if message["type"] == "websocket.disconnect":
            raise Gone
        return message.get("text") or message.get("bytes") or ""

    async def send(self, text: str) -> None:
        try:
            await self._websocket.send_text(text)
        except (WebSocketDisconnect, RuntimeError) as error:  # Starlette tells a closed one in both ways
            raise Gone from error

    def admit(self, size: int) -> None:
        if self._connection is not None:
            self._connection.admit(size)

    async def close(self, code: int, reason: str) -> None:
        if self._websocket.application_state is WebSocketState.CONNECTED:
            try:
                await self._websocket.close(code, reason)
            except (WebSocketDisconnect, RuntimeError) as error:
                raise Gone from error

    def abort(self) -> None:
        if self._connection is not None:
            self._connection.abort()
