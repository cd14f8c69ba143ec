"""The web application: routes, the checks of every request, and the WebSocket.

Host and Origin are checked before routing, on HTTP and on the WebSocket upgrade. Credentials are sent in the
Authorization header or in the connect frame. A cookie counts only at the WebSocket and the dashboard's routes, and only
from a page of this gateway (auth/guard.py). A URL that contains a credential is refused, because URLs end up in logs.

A module of routes has `routes(gateway)` and a tuple `ROUTE_DOCS`; an extension has a RouteProvider. runtime/gateway.py
joins them, and the OpenAPI document lists them. A route without a RouteDoc is listed all the same, with the first line
of its docstring.

Here are the routes for health, schema and the document itself. They need no credential and say nothing about the home.
A gateway that is starting or shutting down is alive but not ready: it answers, and accepts nothing new.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct, field
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from palinurus import __version__
from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.gateway import protocol
from palinurus.gateway.auth.guard import Guard, Principal, cookie_of
from palinurus.gateway.protocol import Connect, EventFrame, HelloOk, Problem, Refused, ResponseFrame, problem
from palinurus.gateway.websocket.methods import GatewayContext, Methods
from palinurus.gateway.websocket.socket import Sockets, SocketWire
from palinurus.operations.scopes import Scope as Right

METHODS = b"GET, POST, DELETE"
# Headers that a page may read besides the usual ones.
SHOWN = b"retry-after, x-request-id, x-should-retry, request-id, www-authenticate, mcp-session-id"
SECONDS = b"600"  # that a browser may remember the answer
MOST_NAMES = 64  # of headers; clients of OpenAI send about a dozen
_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")
Raw = list[tuple[bytes, bytes]]


def is_preflight(method: str, headers: Headers) -> bool:
    return method == "OPTIONS" and "access-control-request-method" in headers


def allow_origin(origin: str) -> Raw:
    """The headers by which a browser shows the answer to its page."""
    named = origin.encode("latin-1")
    return [
        (b"access-control-allow-origin", named),
        (b"access-control-expose-headers", SHOWN),
        (b"vary", b"Origin"),
    ]


def allow_request(headers: Headers) -> Raw:
    """What the page may send: any header that it asks for. A header grants nothing; the token in it does."""
    asked = headers.get("access-control-request-headers", "")[:4_096].split(",")[:MOST_NAMES]
    names = [name.strip() for name in asked if _NAME.fullmatch(name.strip())]
    answer = [
        (b"access-control-allow-methods", METHODS),
        (b"access-control-allow-headers", ", ".join(names).encode()),
        (b"access-control-max-age", SECONDS),
    ]
    if headers.get("access-control-request-private-network") == "true":  # a public page that calls this machine
        answer.append((b"access-control-allow-private-network", b"true"))
    return answer


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
ONCE = ("host", "origin", "authorization", "x-api-key")
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
        headers = Headers(scope=scope)
        origin = self._guard.address.allowed_origin(headers)
        answer = _Answer(send, allow_origin(origin) if origin else [])
        scope["app"] = self  # makes the router raise HTTPException
        try:
            self._check(scope)
            if origin and scope["type"] == "http" and is_preflight(scope["method"], headers):
                return await _answer_preflight(headers, answer)
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
            raise Refused(400, "WRONG_HOST", "a request has one Host, one Origin and one credential of a kind")
        self._guard.address.check(headers)
        named = {name.lower() for name, _ in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)}
        if named & CREDENTIALS or ("code" in named and scope["path"] in LOGIN):
            raise Refused(400, "TOKEN_IN_URL", "a credential does not belong in a URL: use a header")
        if scope["type"] == "http":
            _check_length(headers, MAX_BODY)


class _Answer:
    """Sends the response with our headers, and knows whether it has begun."""

    def __init__(self, send: Send, more: Raw) -> None:
        self._send = send
        self._more = more
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            known = {name for name, _ in message["headers"]}
            extra = [header for header in HEADERS if header[0] not in known]
            message = {**message, "headers": [*message["headers"], *extra, *self._more]}
        self.started = True
        await self._send(message)


async def _answer_preflight(headers: Headers, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": allow_request(headers)})
    await send({"type": "http.response.body", "body": b""})


class BoundedBody:
    """The request body up to a size: the Content-Length may be wrong or missing."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._left = MAX_BODY

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise _too_large(MAX_BODY)
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
    body = problem(error)
    if isinstance(error, Refused) and error.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    if body.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(msgspec.json.encode(body), body.status, headers, media_type="application/problem+json")


def reply(payload: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(payload), status, headers, media_type="application/json")


def bearer_of(request: Request) -> str:
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if kind.lower() == "bearer" else ""


def authenticate(gateway: GatewayContext, request: Request, scope: Right) -> Principal:
    """Who sends the request; called before its body is read. Raises Refused and MissingScope."""
    bearer = bearer_of(request)
    own = request.headers.get("x-api-key", "").strip()  # where Anthropic's clients put it
    principal = gateway.guard.identify((bearer, own), peer_of(request))
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
    if not any_type and media_type(request) != JSON:
        raise Refused(415, "WRONG_TYPE", "the body must be application/json")
    return parse_json(await read_body(request, most=most, seconds=seconds), kind)


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_body(request: Request, *, most: int, seconds: float = BODY_SECONDS) -> bytes:
    """Raises Refused for a body that is too large, as soon as that is known, or too slow."""
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
    return bytes(body)


def parse_json(body: bytes, kind: Any) -> Any:
    """Raises BadRequest."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body: {error}") from None


JSON = "application/json"
PROBLEM = "application/problem+json"
Stage = Literal["starting", "ready", "leaving"]


class RouteDoc(Struct, frozen=True):
    """One route. `body` and `result` are types that msgspec can describe; None is no body, or any result."""

    method: str  # GET, POST
    path: str  # as Starlette writes it: /v1/models/{model:path}
    about: str
    scope: Right | None  # None: open to everybody
    body: Any = None
    result: Any = None
    gives: tuple[str, ...] = (JSON,)  # media types of a good answer
    statuses: tuple[int, ...] = (200,)
    fails: Any = None  # the type of its errors, where they are not only problems


class RouteProvider(Struct, frozen=True):
    """Routes that an extension adds to the gateway, with their documentation."""

    make: Callable[[GatewayContext], Sequence[BaseRoute]]
    docs: Sequence[RouteDoc]


def openapi(routes: Iterable[BaseRoute], docs: Iterable[RouteDoc]) -> dict[str, Any]:
    rows = [*docs]
    known = {(row.method, row.path) for row in rows}
    rows += [row for route in routes if isinstance(route, Route) for row in _undocumented(route, known)]
    kinds = [kind for row in rows for kind in (row.body, row.result, row.fails) if kind is not None]
    shapes, components = msgspec.json.schema_components([*kinds, Problem], ref_template="#/components/schemas/{name}")
    schemas = iter(shapes)
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        body = next(schemas) if row.body is not None else None
        result = next(schemas) if row.result is not None else {}
        failed = {JSON: {"schema": next(schemas)}} if row.fails is not None else {}
        methods = paths.setdefault(_PARAMETER.sub(r"{\1}", row.path), {})
        methods[row.method.lower()] = _operation(row, body, result, failed)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Palinurus gateway", "version": __version__},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": components, "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(row: RouteDoc, body: Any, result: Any, failed: dict[str, Any]) -> dict[str, Any]:
    content = {kind: {"schema": result if kind == JSON else {}} for kind in row.gives}
    success = {"description": "as requested", **({"content": content} if content else {})}
    failure = {"description": "a problem", "content": {PROBLEM: {"schema": _PROBLEM}, **failed}}
    operation: dict[str, Any] = {
        "summary": row.about,
        "responses": {str(status): success for status in row.statuses} | {"default": failure},
    }
    if row.scope is not None:
        operation |= {"security": [{"bearer": []}], "x-scope": row.scope}
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": body}}}
    if names := _PARAMETER.findall(row.path):
        kind = {"in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        operation["parameters"] = [{"name": name, **kind} for name in names]
    return operation


_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")  # {model:path}, which OpenAPI writes {model}
_PROBLEM = {"$ref": "#/components/schemas/Problem"}


def _undocumented(route: Route, known: set[tuple[str, str]]) -> Iterable[RouteDoc]:
    about = (route.endpoint.__doc__ or route.name).strip().splitlines()[0]
    for method in sorted((route.methods or set()) - {"HEAD"}):
        if (method, route.path) not in known:
            yield RouteDoc(method, route.path, about, "admin")


class RequestFrame(Struct, frozen=True, tag_field="type", tag="req"):
    """protocol.RequestFrame for the schema; the real one has the parameters as raw bytes."""

    id: str
    method: str
    params: dict[str, Any] = {}
    idempotency_key: str = field(name="idempotencyKey", default="")


FRAMES: tuple[Any, ...] = (RequestFrame, ResponseFrame, EventFrame, Connect, HelloOk)


class Alive(Struct, frozen=True):
    ok: bool
    status: str


def health_routes(stage: Callable[[], Stage], trouble: Callable[[], str]) -> list[BaseRoute]:
    """`trouble` says in one line why the gateway cannot accept work. It may block: it is called in a thread."""

    async def alive(_: Request) -> Response:
        return reply(Alive(ok=True, status="live"))

    async def ready(_: Request) -> Response:
        now: str = stage()
        if now == "ready":
            now = await asyncio.to_thread(trouble) or now
        return reply(Alive(ok=now == "ready", status=now), 200 if now == "ready" else 503)

    async def started(_: Request) -> Response:
        now = stage()
        return reply(Alive(ok=now != "starting", status=now), 503 if now == "starting" else 200)

    kinds = (("/healthz", alive), ("/health", alive), ("/readyz", ready), ("/ready", ready), ("/startupz", started))
    return [Route(path, handler) for path, handler in kinds]


def reading_routes(
    methods: Methods, routes: Sequence[BaseRoute], docs: Sequence[RouteDoc], events: Sequence[str]
) -> list[BaseRoute]:
    """/schema and /openapi.json. Made on the first request: most gateways never get one."""
    made: dict[str, bytes] = {}

    async def page(name: str, make: Callable[[], Any]) -> Response:
        if name not in made:  # in a thread: it takes long
            made[name] = await asyncio.to_thread(lambda: msgspec.json.encode(make()))
        return Response(made[name], media_type="application/json")

    async def schema(_: Request) -> Response:
        return await page("schema", lambda: socket_schema(methods, events))

    async def document(_: Request) -> Response:
        return await page("openapi", lambda: openapi([*routes, *own], [*docs, *ROUTE_DOCS]))

    own: list[BaseRoute] = [Route("/schema", schema), Route("/openapi.json", document)]
    return own


def socket_schema(methods: Methods, events: Sequence[str]) -> dict[str, Any]:
    """The frames and methods of the WebSocket as JSON Schema, from the types that parse them."""
    sizes = {"newest": protocol.PROTOCOL, "oldest": protocol.OLDEST_PROTOCOL, "maxFrame": protocol.MAX_FRAME}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "version": __version__,
        "protocol": sizes,
        "events": list(events),
        **methods.schema(FRAMES),
    }


ROUTE_DOCS = (
    RouteDoc("GET", "/healthz", "Whether the gateway is alive.", None, result=Alive),
    RouteDoc("GET", "/health", "The same.", None, result=Alive),
    RouteDoc("GET", "/readyz", "Whether it accepts work now.", None, result=Alive, statuses=(200, 503)),
    RouteDoc("GET", "/ready", "The same.", None, result=Alive, statuses=(200, 503)),
    RouteDoc("GET", "/startupz", "Whether it has started.", None, result=Alive, statuses=(200, 503)),
    RouteDoc("GET", "/schema", "The frames and methods of the WebSocket.", None, result=dict[str, Any]),
    RouteDoc("GET", "/openapi.json", "This document.", None, result=dict[str, Any]),
)
