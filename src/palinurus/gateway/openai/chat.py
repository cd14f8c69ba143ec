"""POST /v1/chat/completions: one message in, one reply out, whole or in pieces."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palinurus.domain.errors import BadRequest, Failure
from palinurus.domain.events import RunResult
from palinurus.gateway.http.app import read_json
from palinurus.gateway.openai.asking import Asked, Wish, ask
from palinurus.gateway.openai.calls import arguments_of, named_calls, of_chat
from palinurus.gateway.openai.entry import let_in
from palinurus.gateway.openai.history import Talk, of_messages
from palinurus.gateway.openai.shapes import ChatRequest
from palinurus.gateway.openai.stream import Gone, Nobody, Stream, finished
from palinurus.gateway.openai.troubles import Trouble, failure, of_result
from palinurus.gateway.openai.wishes import further
from palinurus.gateway.talk.desk import Desk

PATH = "/v1/chat/completions"
_encode = msgspec.json.encode


async def complete(desk: Desk, request: Request) -> Response:
    let_in(desk, request, "write")
    body: ChatRequest = await read_json(request, ChatRequest)
    if body.n not in (None, 1):
        raise BadRequest(f"n is {body.n}: an agent gives one answer", hint="leave it out")
    talk = of_messages(body.messages)
    tools = () if body.tool_choice == "none" else of_chat(body.tools or ())
    asked_for = further(talk.instructions, body.tool_choice, body.response_format)
    wish = Wish(body.model, Talk(talk.lines, asked_for), tools, body.user or "")
    asked = await ask(desk, request, wish)
    with_usage = bool(body.stream_options and body.stream_options.include_usage)
    teller = ChatTeller(asked, body.model or "palinurus", with_usage=with_usage)
    if body.stream:
        return Stream(asked, teller)
    try:
        result = await finished(asked, request.receive)
    except Gone:
        return Nobody()
    headers = {"x-request-id": asked.run.id}
    if trouble := of_result(result):
        return failure(trouble, headers)
    return Response(_encode(teller.whole(result)), 200, headers, media_type="application/json")


class ChatTeller:
    """Implements stream.Teller. What is the same in all chunks of an answer is made once."""

    def __init__(self, asked: Asked, model: str, *, with_usage: bool = False) -> None:
        run = asked.run
        self._about = {"id": f"chatcmpl-{run.id}", "created": run.accepted_at // 1000, "model": model}
        self._with_usage = with_usage
        about = _encode({"object": "chat.completion.chunk", **self._about})[1:-1]
        self._before = b"data: {" + about + b',"choices":[{"index":0,"delta":'
        self._between = b',"finish_reason":'
        self._after = b'}],"usage":null}\n\n' if with_usage else b"}]}\n\n"
        self._last = b"data: {" + about + b',"choices":[],"usage":'

    def begin(self) -> bytes:
        return self._chunk(b'{"role":"assistant","content":""}')

    def say(self, text: str) -> bytes:
        return self._chunk(b'{"content":' + _encode(text) + b"}")

    def end(self, result: RunResult) -> bytes:
        calls = [{"index": index, **call} for index, call in enumerate(_calls(result))]
        said = self._chunk(_encode({"tool_calls": calls})) if calls else b""
        ended = self._chunk(b"{}", _encode(_reason(result)))
        counted = self._last + _encode(usage_of(result)) + b"}\n\n" if self._with_usage else b""
        return said + ended + counted + b"data: [DONE]\n\n"

    def fail(self, trouble: Trouble) -> bytes:
        return b"data: " + trouble.body + b"\n\n"

    def whole(self, result: RunResult) -> dict[str, Any]:
        calls = _calls(result)
        message = {"role": "assistant", "content": result.text or (None if calls else ""), "refusal": None}
        choice = {
            "index": 0,
            "message": {**message, "tool_calls": calls} if calls else message,
            "logprobs": None,
            "finish_reason": _reason(result),
        }
        return {"object": "chat.completion", **self._about, "choices": [choice], "usage": usage_of(result)}

    def _chunk(self, delta: bytes, reason: bytes = b"null") -> bytes:
        return self._before + delta + self._between + reason + self._after


def _calls(result: RunResult) -> list[dict[str, Any]]:
    return [
        {
            "id": named,
            "type": "function",
            "function": {"name": call.name, "arguments": arguments_of(call)},
        }
        for named, call in named_calls(result)
    ]


def _reason(result: RunResult) -> str:
    if result.error_kind == Failure.REFUSAL:
        return "content_filter"
    if result.calls:
        return "tool_calls"
    return "length" if result.stop_reason == "length" else "stop"


def usage_of(result: RunResult) -> dict[str, Any]:
    """Tokens of the whole turn, all its model calls together. What a cache served or kept is part of the prompt."""
    usage = result.usage
    prompt = usage.input + usage.cache_read + usage.cache_write
    return {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output,
        "total_tokens": prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
    }
