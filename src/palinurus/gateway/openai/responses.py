"""POST /v1/responses: what chat completions do, in the shape of OpenAI's newer endpoint.

Nothing is stored for it: the id of a response names its run, the run its session, and `previous_response_id` goes on
there. A conversation has no branches: whichever of its responses is named, it goes on from where it stands.
"""

from __future__ import annotations

import re

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.keys import SessionKey
from palinurus.gateway.http.app import read_json
from palinurus.gateway.openai.asking import Wish, ask
from palinurus.gateway.openai.calls import of_responses
from palinurus.gateway.openai.entry import let_in
from palinurus.gateway.openai.history import Talk, of_items
from palinurus.gateway.openai.response_events import ResponseTeller
from palinurus.gateway.openai.shapes import ResponsesRequest
from palinurus.gateway.openai.stream import Gone, Nobody, Stream, finished
from palinurus.gateway.openai.troubles import Trouble, failure, of_result
from palinurus.gateway.openai.wishes import further
from palinurus.gateway.talk.desk import Desk

PATH = "/v1/responses"
_ID = re.compile(r"resp_([0-9a-f]{16})")


async def respond(desk: Desk, request: Request) -> Response:
    let_in(desk, request, "write")
    body: ResponsesRequest = await read_json(request, ResponsesRequest)
    asked = await ask(desk, request, await _wish(desk, body))
    teller = ResponseTeller(asked, body)
    if body.stream:
        return Stream(asked, teller)
    try:
        result = await finished(asked, request.receive)
    except Gone:
        return Nobody()
    headers = {"x-request-id": asked.run.id}
    if trouble := of_result(result):
        return failure(trouble, headers)
    return Response(msgspec.json.encode(teller.whole(result)), 200, headers, media_type="application/json")


async def _wish(desk: Desk, body: ResponsesRequest) -> Wish:
    _check(body)
    talk = of_items(body.input)
    told = "\n\n".join(part for part in (body.instructions or "", talk.instructions) if part)
    asked_for = further(told, body.tool_choice, body.text.format if body.text else None)
    tools = () if body.tool_choice == "none" else of_responses(body.tools or ())
    continues = await _session_of(desk, body.previous_response_id) if body.previous_response_id else None
    return Wish(body.model, Talk(talk.lines, asked_for), tools, body.user or "", continues)


def _check(body: ResponsesRequest) -> None:
    """What would change the meaning of a request is not passed over in silence."""
    if body.background:
        raise BadRequest("background responses are not served here", hint="stream it, or wait for it")
    if body.conversation is not None:
        raise BadRequest("conversations of OpenAI are not kept here", hint="previous_response_id, or user, goes on")


async def _session_of(desk: Desk, response_id: str) -> SessionKey:
    found = _ID.fullmatch(response_id)
    try:
        if found:
            return (await desk.house.dispatcher.find(found[1])).key
    except NotFound:
        pass
    raise Trouble(
        404,
        f"the response {response_id[:80]!r} is not known here",
        code="previous_response_not_found",
        param="previous_response_id",
    )
