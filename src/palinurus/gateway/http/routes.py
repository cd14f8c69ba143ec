"""The OpenAPI document of the HTTP routes, and the routes for health, schema and the document itself.

A module of routes has `routes(gateway)` and a tuple `ROUTE_DOCS`; an extension has a RouteProvider. runtime/gateway.py
joins them. A route without a RouteDoc is listed all the same, with the first line of its docstring.

A gateway that is starting or shutting down is alive but not ready: it answers, and accepts nothing new. The routes here
need no credential and say nothing about the home.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct, field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from palinurus import __version__
from palinurus.gateway.http.app import reply
from palinurus.gateway.protocol import (
    MAX_FRAME,
    OLDEST_PROTOCOL,
    PROTOCOL,
    Connect,
    EventFrame,
    HelloOk,
    ResponseFrame,
)
from palinurus.gateway.websocket.methods import GatewayContext, Methods
from palinurus.operations.scopes import Scope

JSON = "application/json"
PROBLEM = "application/problem+json"
Stage = Literal["starting", "ready", "leaving"]


class RouteDoc(Struct, frozen=True):
    """One route. `body` and `result` are types that msgspec can describe; None is no body, or any result."""

    method: str  # GET, POST
    path: str  # as Starlette writes it: /v1/models/{model:path}
    about: str
    scope: Scope | None  # None: open to everybody
    body: Any = None
    result: Any = None
    gives: tuple[str, ...] = (JSON,)  # media types of a good answer
    statuses: tuple[int, ...] = (200,)
    fails: Any = None  # the type of its errors, where they are not only problems


class RouteProvider(Struct, frozen=True):
    """Routes that an extension adds to the gateway, with their documentation."""

    make: Callable[[GatewayContext], Sequence[BaseRoute]]
    docs: Sequence[RouteDoc]


class Problem(Struct, frozen=True, omit_defaults=True):
    """An error as in RFC 9457."""

    type: str
    title: str
    status: int
    code: str
    detail: str = ""


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
        paths.setdefault(_PARAMETER.sub(r"{\1}", row.path), {})[row.method.lower()] = _operation(
            row, body, result, failed
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Palinurus gateway", "version": __version__},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
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
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in names
        ]
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
    return [Route(path, handler, methods=["GET"]) for path, handler in kinds]


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

    own: list[BaseRoute] = [
        Route("/schema", schema, methods=["GET"]),
        Route("/openapi.json", document, methods=["GET"]),
    ]
    return own


def socket_schema(methods: Methods, events: Sequence[str]) -> dict[str, Any]:
    """The frames and methods of the WebSocket as JSON Schema, from the types that parse them."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "version": __version__,
        "protocol": {"newest": PROTOCOL, "oldest": OLDEST_PROTOCOL, "maxFrame": MAX_FRAME},
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
