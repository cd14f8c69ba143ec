"""POST /tools/invoke: what a program may call is said in reach.py, how it is done in invoking.py."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message

from palinurus.gateway.door.guard import Refused
from palinurus.gateway.http.app import read_json, who
from palinurus.gateway.http.documented import JSON, PROBLEM, Documented
from palinurus.gateway.invoke.invoking import PATH, Invocations, Invoke, Invoked
from palinurus.gateway.talk.desk import Desk

MAX_BODY = 2 * 1024 * 1024


def _bounded(request: Request) -> Request:
    """The same request with a body of at most so much."""
    too_large = Refused(413, "TOO_LARGE", f"the body is larger than {MAX_BODY // 1024 // 1024} MiB")
    told = request.headers.get("content-length", "0")
    if told.isdigit() and int(told) > MAX_BODY:
        raise too_large
    room = MAX_BODY

    async def receive() -> Message:
        nonlocal room
        message = await request.receive()
        room -= len(message.get("body", b""))
        if room < 0:
            raise too_large
        return message

    return Request(request.scope, receive)


def routes(desk: Desk) -> Sequence[BaseRoute]:
    invocations = Invocations(desk)

    async def invoke(request: Request) -> Response:
        """Call a tool."""
        principal = who(desk, request, "write")
        answer = await invocations.invoke(principal, await read_json(_bounded(request), Invoke))
        return Response(bytes(answer.body), answer.status, media_type=JSON if answer.status == 200 else PROBLEM)

    return [Route(PATH, invoke, methods=["POST"])]


DOCUMENTED = (
    Documented(
        "POST",
        PATH,
        "Call a tool of an agent, under its policy and the list of this route.",
        "write",
        Invoke,
        Invoked,
    ),
)
