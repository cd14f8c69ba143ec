"""How the gateway is doing, for those who watch it, and what it speaks, for those who want to learn it.

Alive and ready are two things: a gateway that is starting or leaving is alive, answers who asks, and takes nothing
new. These routes are open to everybody who may name this host, and tell nothing about the home.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from palinurus import __version__
from palinurus.gateway.frames.protocol import (
    MAX_FRAME,
    OLDEST_PROTOCOL,
    PROTOCOL,
    Connect,
    EventFrame,
    HelloOk,
    ResponseFrame,
)
from palinurus.gateway.http.app import reply
from palinurus.gateway.http.documented import Documented, openapi
from palinurus.gateway.talk.methods import Methods

Stage = Literal["starting", "ready", "leaving"]


class RequestFrame(Struct, frozen=True, tag_field="type", tag="req"):
    """protocol.RequestFrame as others see it; there the parameters are raw bytes until their type is known."""

    id: str
    method: str
    params: dict[str, Any] = {}


FRAMES: tuple[Any, ...] = (RequestFrame, ResponseFrame, EventFrame, Connect, HelloOk)


class Alive(Struct, frozen=True):
    ok: bool
    status: str


def health_routes(stage: Callable[[], Stage], trouble: Callable[[], str]) -> list[BaseRoute]:
    """`trouble` says in one line what keeps a gateway from taking work. It may block: it is asked in a thread."""

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
    methods: Methods, routes: Sequence[BaseRoute], told: Sequence[Documented], events: Sequence[str]
) -> list[BaseRoute]:
    """/schema and /openapi.json. Made when first asked for: most gateways never are."""
    made: dict[str, bytes] = {}

    async def page(name: str, make: Callable[[], Any]) -> Response:
        if name not in made:  # in a thread: it takes longer than anybody should wait for the loop
            made[name] = await asyncio.to_thread(lambda: msgspec.json.encode(make()))
        return Response(made[name], media_type="application/json")

    async def schema(_: Request) -> Response:
        return await page("schema", lambda: socket_schema(methods, events))

    async def document(_: Request) -> Response:
        return await page("openapi", lambda: openapi([*routes, *own], [*told, *DOCUMENTED]))

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


DOCUMENTED = (
    Documented("GET", "/healthz", "Whether the gateway is alive.", None, result=Alive),
    Documented("GET", "/health", "The same.", None, result=Alive),
    Documented("GET", "/readyz", "Whether it takes work now.", None, result=Alive, statuses=(200, 503)),
    Documented("GET", "/ready", "The same.", None, result=Alive, statuses=(200, 503)),
    Documented("GET", "/startupz", "Whether it has started.", None, result=Alive, statuses=(200, 503)),
    Documented("GET", "/schema", "The frames and methods of the WebSocket.", None, result=dict[str, Any]),
    Documented("GET", "/openapi.json", "This document.", None, result=dict[str, Any]),
)
