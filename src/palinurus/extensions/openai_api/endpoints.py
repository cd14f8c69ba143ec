"""/v1/chat/completions, /v1/completions and /v1/responses: one message in, one reply out, whole or streamed.

Nothing is stored for a response: its id contains its run, and `previous_response_id` continues the session of that run.
A session has no branches: it always continues at its end.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palinurus.dispatch.runs import Run
from palinurus.domain.errors import BadRequest, Failure
from palinurus.domain.events import RunResult
from palinurus.domain.keys import SessionKey
from palinurus.extensions.openai_api import messages
from palinurus.extensions.openai_api.client_tools import arguments_of, find_run, named_calls, read_tools
from palinurus.extensions.openai_api.errors import ApiError, error_of_result, openai_body
from palinurus.extensions.openai_api.messages import (
    ChatRequest,
    ClientHistory,
    ClientMessage,
    CompletionRequest,
    ResponsesRequest,
)
from palinurus.extensions.openai_api.reply_format import read_format
from palinurus.extensions.openai_api.run import RunRequest, StartedRun, start_run
from palinurus.extensions.openai_api.stream import EventStream, whole_answer
from palinurus.gateway.http.app import read_json, reply
from palinurus.gateway.websocket.methods import GatewayContext

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
RESPONSES = "/v1/responses"
_ID = re.compile(r"resp_([0-9a-f]{16})")
_encode = msgspec.json.encode


async def complete(gateway: GatewayContext, request: Request) -> Response:
    body: ChatRequest = await read_json(request, ChatRequest)
    if body.n not in (None, 1):
        raise BadRequest(f"n is {body.n}, but an agent gives one answer", hint="leave n out")
    if body.functions:
        raise BadRequest("functions is an older form that is not supported", hint="send them as tools")
    if "audio" in (body.modalities or ()):
        raise BadRequest("replies are text, not audio", hint="leave modalities out")
    history = messages.read_messages(body.messages)
    tools = () if body.tool_choice == "none" else read_tools(body.tools or ())
    form = read_format(body.response_format)
    wanted = RunRequest(body.model, history, tools, body.user or "", body.tool_choice, form=form)
    started = await start_run(gateway, request, wanted)
    with_usage = bool(body.stream_options and body.stream_options.include_usage)
    writer = ChatWriter(started, body.model or "palinurus", with_usage=with_usage)
    return EventStream(started, writer) if body.stream else await whole_answer(started, writer, request)


class ChatWriter:
    """Implements stream.RunWriter."""

    id_prefix = "chatcmpl"
    chunk = "chat.completion.chunk"

    def __init__(self, started: StartedRun, model: str, *, with_usage: bool = False) -> None:
        run = started.run
        self._about = {"id": f"{self.id_prefix}-{run.id}", "created": run.accepted_at // 1000, "model": model}
        self._with_usage = with_usage

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def say(self, text: str) -> bytes:
        return self._chunk({"content": text})

    def end(self, result: RunResult) -> bytes:
        calls = [{"index": index, **call} for index, call in enumerate(_chat_calls(result))]
        tool_calls = self._chunk({"tool_calls": calls}) if calls else b""
        finish = self._chunk({}, _reason(result))
        usage = self._event(choices=[], usage=_chat_usage(result)) if self._with_usage else b""
        return tool_calls + finish + usage + b"data: [DONE]\n\n"

    def fail(self, error: ApiError) -> bytes:
        return b"data: " + openai_body(error) + b"\n\n"

    def refuse(self, error: ApiError) -> bytes:
        return openai_body(error)

    def whole(self, result: RunResult) -> dict[str, Any]:
        calls = _chat_calls(result)
        content = result.text or (None if calls else "")
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        message |= {"tool_calls": calls} if calls else {}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(result)}
        return {"object": "chat.completion", **self._about, "choices": [choice], "usage": _chat_usage(result)}

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return self._event(choices=[choice], **({"usage": None} if self._with_usage else {}))

    def _event(self, **more: Any) -> bytes:
        return b"data: " + _encode({"object": self.chunk, **self._about, **more}) + b"\n\n"


async def complete_text(gateway: GatewayContext, request: Request) -> Response:
    """The oldest of OpenAI's formats: a text, and what comes after it."""
    body: CompletionRequest = await read_json(request, CompletionRequest)
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    if len(prompts) != 1 or not isinstance(prompts[0], str) or not prompts[0].strip():
        raise BadRequest("prompt must be one text, not empty and not tokens", hint="send a request for each")
    if body.suffix or body.echo or (body.n or 1) > 1 or (body.best_of or 1) > 1:
        raise BadRequest("suffix, echo, n and best_of are not supported", hint="an agent answers a message, once")
    history = ClientHistory((ClientMessage("user", prompts[0]),))
    started = await start_run(gateway, request, RunRequest(body.model, history, (), body.user or ""))
    with_usage = bool(body.stream_options and body.stream_options.include_usage)
    writer = CompletionWriter(started, body.model or "palinurus", with_usage=with_usage)
    return EventStream(started, writer) if body.stream else await whole_answer(started, writer, request)


class CompletionWriter(ChatWriter):
    """Implements stream.RunWriter."""

    id_prefix = "cmpl"
    chunk = "text_completion"

    def begin(self) -> bytes:
        return b""

    def whole(self, result: RunResult) -> dict[str, Any]:
        choice = _text_choice(result.text, _reason(result))
        return {"object": self.chunk, **self._about, "choices": [choice], "usage": _chat_usage(result)}

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> bytes:
        return self._event(choices=[_text_choice(delta.get("content", ""), reason)])


def _text_choice(text: str, reason: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}


def _chat_calls(result: RunResult) -> list[dict[str, Any]]:
    return [
        {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": arguments_of(call)}}
        for call_id, call in named_calls(result)
    ]


def _reason(result: RunResult) -> str:
    if result.error_kind == Failure.REFUSAL:
        return "content_filter"
    if result.calls:
        return "tool_calls"
    return "length" if result.stop_reason == "length" else "stop"


def _chat_usage(result: RunResult) -> dict[str, Any]:
    """Tokens of all model calls of the run. Cached tokens, read or written, are part of the prompt."""
    usage = result.usage
    prompt = usage.input + usage.cache_read + usage.cache_write
    return {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output,
        "total_tokens": prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
    }


async def respond(gateway: GatewayContext, request: Request) -> Response:
    body: ResponsesRequest = await read_json(request, ResponsesRequest)
    started = await start_run(gateway, request, await _run_request(gateway, body))
    writer = ResponseWriter(started, body)
    return EventStream(started, writer) if body.stream else await whole_answer(started, writer, request)


async def _run_request(gateway: GatewayContext, body: ResponsesRequest) -> RunRequest:
    _check(body)
    history = messages.read_items(body.input)
    instructions = "\n\n".join(part for part in (body.instructions or "", history.instructions) if part)
    tools = () if body.tool_choice == "none" else read_tools(body.tools or ())
    continues = await _session_of(gateway, body.previous_response_id) if body.previous_response_id else None
    history = ClientHistory(history.messages, instructions)
    form = read_format(body.text.format if body.text else None)
    return RunRequest(body.model, history, tools, body.user or "", body.tool_choice, continues, form)


def _check(body: ResponsesRequest) -> None:
    """Raises BadRequest for unsupported fields that change the meaning of a request."""
    if body.background:
        raise BadRequest("background responses are not supported", hint="stream the response, or wait for it")
    if body.conversation is not None:
        raise BadRequest("conversations of OpenAI are not supported", hint="use previous_response_id or user")


async def _session_of(gateway: GatewayContext, response_id: str) -> SessionKey:
    run = await _run_of(gateway, response_id)
    if run is None or await gateway.services.sessions.find(run.key) is None:  # archived since
        message = f"the response {response_id[:80]!r} is unknown"
        raise ApiError(404, message, code="previous_response_not_found", param="previous_response_id")
    return run.key


async def _run_of(gateway: GatewayContext, response_id: str) -> Run | None:
    found = _ID.fullmatch(response_id)
    return await find_run(gateway.services, found[1]) if found else None


async def show_response(gateway: GatewayContext, request: Request) -> Response:
    """A response again, from its run: without what only the request knew, such as its metadata."""
    response_id: str = request.path_params["response"]
    run = await _run_of(gateway, response_id)
    if run is None:
        raise ApiError(404, f"the response {response_id[:80]!r} is unknown", code="not_found")
    writer = ResponseWriter(
        StartedRun(run, stops_with_client=False), ResponsesRequest("", f"palinurus/{run.key.agent}")
    )
    return reply(writer.now(run.result))


class ResponseWriter:
    """Implements stream.RunWriter."""

    def __init__(self, started: StartedRun, body: ResponsesRequest) -> None:
        self._run = started.run
        self._body = body
        self._number = 0
        self._pieces: list[str] = []

    def whole(self, result: RunResult) -> dict[str, Any]:
        """The response, with the text of the last reply."""
        return self._ended(result, result.text)

    def now(self, result: RunResult | None) -> dict[str, Any]:
        """The response as it stands, whether or not its run has ended."""
        if result is None:
            return self._response("in_progress", [])
        error = error_of_result(result)
        return self.whole(result) if error is None else self._failed(error)

    def begin(self) -> bytes:
        begun = {"response": self._response("in_progress", [])}
        return self._event("response.created", **begun) + self._event("response.in_progress", **begun)

    def say(self, text: str) -> bytes:
        opened = b"" if self._pieces else self._open()
        self._pieces.append(text)
        return opened + self._event("response.output_text.delta", **self._place, delta=text, logprobs=[])

    def end(self, result: RunResult) -> bytes:
        closed = self._close() if self._pieces else b""
        first = 1 if self._pieces else 0
        calls = b"".join(self._call(first + index, item) for index, item in enumerate(_output_calls(result)))
        response = self._ended(result, "".join(self._pieces))
        kind = "response.completed" if response["status"] == "completed" else "response.incomplete"
        return closed + calls + self._event(kind, response=response) + b"data: [DONE]\n\n"

    def fail(self, error: ApiError) -> bytes:
        return self._event("response.failed", response=self._failed(error)) + b"data: [DONE]\n\n"

    def refuse(self, error: ApiError) -> bytes:
        return openai_body(error)

    def _failed(self, error: ApiError) -> dict[str, Any]:
        details = {"code": error.code or "server_error", "message": error.message}
        output = [self._message("".join(self._pieces), "incomplete")] if self._pieces else []
        return {**self._response("failed", output), "error": details}

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": f"msg_{self._run.id}", "output_index": 0, "content_index": 0}

    def _open(self) -> bytes:
        item = {**self._message("", "in_progress"), "content": []}
        added = self._event("response.output_item.added", output_index=0, item=item)
        return added + self._event("response.content_part.added", **self._place, part=_part(""))

    def _close(self) -> bytes:
        text = "".join(self._pieces)
        done = self._event("response.output_text.done", **self._place, text=text, logprobs=[])
        part = self._event("response.content_part.done", **self._place, part=_part(text))
        item = self._message(text, "completed")
        return done + part + self._event("response.output_item.done", output_index=0, item=item)

    def _call(self, index: int, item: dict[str, Any]) -> bytes:
        begun = {**item, "status": "in_progress", "arguments": ""}
        place = {"item_id": item["id"], "output_index": index}
        done = {**place, "name": item["name"], "arguments": item["arguments"]}
        return (
            self._event("response.output_item.added", output_index=index, item=begun)
            + self._event("response.function_call_arguments.delta", **place, delta=item["arguments"])
            + self._event("response.function_call_arguments.done", **done)
            + self._event("response.output_item.done", output_index=index, item=item)
        )

    def _event(self, kind: str, **data: Any) -> bytes:
        payload = _encode({"type": kind, "sequence_number": self._number, **data})
        self._number += 1
        return b"event: " + kind.encode() + b"\ndata: " + payload + b"\n\n"

    def _message(self, text: str, status: str) -> dict[str, Any]:
        message = {"id": f"msg_{self._run.id}", "type": "message", "role": "assistant", "status": status}
        return {**message, "content": [_part(text)]}

    def _ended(self, result: RunResult, text: str) -> dict[str, Any]:
        why = _incomplete(result)
        status = "incomplete" if why else "completed"
        calls = _output_calls(result)
        # There is always an item, because clients read the first one.
        output = [*([self._message(text, status)] if text or not calls else []), *calls]
        response = self._response(status, output)
        return {**response, "incomplete_details": {"reason": why} if why else None, "usage": _response_usage(result)}

    def _response(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        body = self._body
        return {
            "id": f"resp_{self._run.id}",
            "object": "response",
            "created_at": self._run.accepted_at // 1000,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "metadata": body.metadata or {},
            "model": body.model or "palinurus",
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": body.previous_response_id,
            "temperature": None,
            "tool_choice": body.tool_choice or "auto",
            "tools": body.tools or [],
            "top_p": None,
            "usage": None,
        }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _output_calls(result: RunResult) -> list[dict[str, Any]]:
    return [
        {
            "id": f"fc_{call_id.removeprefix('call_')}",
            "type": "function_call",
            "call_id": call_id,
            "name": call.name,
            "arguments": arguments_of(call),
            "status": "completed",
        }
        for call_id, call in named_calls(result)
    ]


def _incomplete(result: RunResult) -> str:
    return {"content_filter": "content_filter", "length": "max_output_tokens"}.get(_reason(result), "")


def _response_usage(result: RunResult) -> dict[str, Any]:
    usage = result.usage
    read = usage.input + usage.cache_read + usage.cache_write
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": usage.cache_read},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + usage.output,
    }
