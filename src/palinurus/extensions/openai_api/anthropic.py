"""POST /v1/messages: Anthropic's format, for programs that know only that one.

The same run as for OpenAI's endpoints, in other words: blocks instead of messages, results of tools inside a message of
the user, a named event for every piece of a stream. `metadata.user_id` names nobody's session: clients send it with
side requests too. Requests name a session by a header, by the result of an open call, or have one of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from palinurus.domain.errors import BadRequest, Failure
from palinurus.domain.events import RunResult
from palinurus.domain.messages import ToolCall
from palinurus.domain.tool import MALFORMED
from palinurus.extensions.openai_api import messages
from palinurus.extensions.openai_api.client_tools import named_calls, read_tools
from palinurus.extensions.openai_api.errors import ApiError, anthropic_body, anthropic_error
from palinurus.extensions.openai_api.messages import ChatTool, ClientCall, ClientHistory, ClientMessage, FunctionSpec
from palinurus.extensions.openai_api.reply_format import read_format
from palinurus.extensions.openai_api.run import RunRequest, StartedRun, ToolChoice, start_run
from palinurus.extensions.openai_api.stream import EventStream, whole_answer
from palinurus.gateway.http.app import read_json
from palinurus.gateway.websocket.methods import GatewayContext

MESSAGES = "/v1/messages"


class PictureSource(Struct, frozen=True):
    type: str
    media_type: str = ""
    data: str = ""
    url: str = ""

    def address(self, where: str) -> str:
        """The picture as a URL, as OpenAI's clients send it."""
        if self.type not in ("base64", "url"):
            raise BadRequest(f"{where}: pictures of the type {self.type[:40]!r} are not supported", hint="base64")
        return self.url if self.type == "url" else f"data:{self.media_type};base64,{self.data}"


class MessageBlock(Struct, frozen=True):
    """A part of a message. `type` says which other fields are used."""

    type: str
    text: str = ""
    source: PictureSource | None = None
    id: str = ""  # of a call, like the next two
    name: str = ""
    input: dict[str, Any] = {}
    tool_use_id: str = ""  # of a result, like the next two
    content: str | list[MessageBlock] | None = None
    is_error: bool | None = None


class InputMessage(Struct, frozen=True):
    role: str
    content: str | list[MessageBlock]


class InputTool(Struct, frozen=True):
    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class MessagesRequest(Struct, frozen=True):
    """POST /v1/messages."""

    messages: list[InputMessage]
    model: str = ""
    system: str | list[MessageBlock] | None = None
    stream: bool | None = None
    tools: list[InputTool] | None = None
    tool_choice: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None


async def answer_messages(gateway: GatewayContext, request: Request) -> Response:
    body: MessagesRequest = await read_json(request, MessagesRequest)
    choice = body.tool_choice or {}
    tools = () if choice.get("type") == "none" else read_tools(map(_function, body.tools or ()))
    history = read_history(body)
    form = read_format((body.output_config or {}).get("format") or body.output_format)
    run = RunRequest(body.model, history, tools, choice=_choice(choice), form=form)
    started = await start_run(gateway, request, run)
    writer = MessageWriter(started, body.model or "palinurus")
    return EventStream(started, writer) if body.stream else await whole_answer(started, writer, request)


def _choice(choice: dict[str, Any]) -> ToolChoice:
    """In OpenAI's words."""
    if choice.get("type") == "tool":
        return {"name": choice.get("name")}
    return "required" if choice.get("type") == "any" else None


def _function(tool: InputTool) -> ChatTool:
    kind = "function" if tool.type in (None, "custom") else tool.type
    return ChatTool(kind, FunctionSpec(tool.name, tool.description, tool.input_schema))


def read_history(body: MessagesRequest) -> ClientHistory:
    """Raises BadRequest for what cannot be read."""
    system = body.system or ""
    texts = [system] if isinstance(system, str) else [block.text for block in system]
    names = {
        block.id: block.name
        for message in body.messages
        if not isinstance(message.content, str)
        for block in message.content
        if block.type == "tool_use"
    }
    said = (each for at, message in enumerate(body.messages) for each in _messages(message, names, f"messages[{at}]"))
    return messages.make_history([*texts, *said])


def _messages(message: InputMessage, names: dict[str, str], where: str) -> Iterator[ClientMessage | str]:
    """The results of tools in a message, each as a message of its own, then the message."""
    blocks = [MessageBlock("text", message.content)] if isinstance(message.content, str) else message.content
    if message.role == "system":
        yield _content(blocks, where)[0]
        return
    if message.role not in ("user", "assistant"):
        raise BadRequest(f"{where}.role: {message.role[:40]!r} is an unknown role", hint="user, or assistant")
    role: messages.Role = "user" if message.role == "user" else "assistant"
    others: list[MessageBlock] = []
    calls: list[ClientCall] = []
    for block in blocks:
        if block.type == "tool_result":
            yield _result(block, names, where)
        elif block.type == "tool_use":
            calls.append(ClientCall(block.id, block.name, msgspec.json.encode(block.input).decode()))
        elif block.type not in ("thinking", "redacted_thinking"):  # ours come from the transcript
            others.append(block)
    text, pictures = _content(others, where)
    yield ClientMessage(role, text, pictures, tuple(calls))


def _result(block: MessageBlock, names: dict[str, str], where: str) -> ClientMessage:
    inside = [MessageBlock("text", block.content)] if isinstance(block.content, str) else block.content or []
    text, pictures = _content(inside, where)
    name = names.get(block.tool_use_id) or "tool"
    return ClientMessage("tool", text, pictures, (), block.tool_use_id, name, is_error=bool(block.is_error))


def _content(blocks: list[MessageBlock], where: str) -> tuple[str, tuple[str, ...]]:
    """Text, and pictures as URLs."""
    texts: list[str] = []
    pictures: list[str] = []
    for at, block in enumerate(blocks):
        if block.type == "text":
            texts.append(block.text)
        elif block.type == "image" and block.source:
            pictures.append(block.source.address(f"{where}.content[{at}]"))
        else:
            raise BadRequest(f"{where}.content[{at}]: {block.type[:40]!r} is not supported", hint="text, or image")
    return "\n".join(text for text in texts if text), tuple(pictures)


class MessageWriter:
    """Implements stream.RunWriter."""

    def __init__(self, started: StartedRun, model: str) -> None:
        about = {"id": f"msg_{started.run.id}", "type": "message", "role": "assistant", "model": model}
        self._message: dict[str, Any] = {
            **about,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _no_usage(),
        }
        self._has_text = False

    def begin(self) -> bytes:
        return _event("message_start", message=self._message)

    def say(self, text: str) -> bytes:
        opened = b"" if self._has_text else _start(0, {"type": "text", "text": ""})
        self._has_text = True
        return opened + _delta(0, {"type": "text_delta", "text": text})

    def end(self, result: RunResult) -> bytes:
        closed = _event("content_block_stop", index=0) if self._has_text else b""
        calls = b"".join(_call(at, block) for at, block in enumerate(_calls(result), int(self._has_text)))
        delta = {"stop_reason": _reason(result), "stop_sequence": None}
        stopped = _event("message_delta", delta=delta, usage=_usage(result))
        return closed + calls + stopped + _event("message_stop")

    def fail(self, error: ApiError) -> bytes:
        return _event("error", error=anthropic_error(error))

    def refuse(self, error: ApiError) -> bytes:
        return anthropic_body(error)

    def whole(self, result: RunResult) -> dict[str, Any]:
        text = [{"type": "text", "text": result.text}] if result.text else []
        ended = {"stop_reason": _reason(result), "usage": _usage(result)}
        return {**self._message, "content": [*text, *_calls(result)], **ended}


def _calls(result: RunResult) -> list[dict[str, Any]]:
    """The calls for the client. Of arguments that were no JSON it gets the text."""
    return [
        {"type": "tool_use", "id": call_id, "name": call.name, "input": _input(call)}
        for call_id, call in named_calls(result)
    ]


def _input(call: ToolCall) -> dict[str, Any]:
    return {"text": call.arguments[MALFORMED]} if MALFORMED in call.arguments else call.arguments


def _call(at: int, block: dict[str, Any]) -> bytes:
    arguments = msgspec.json.encode(block["input"]).decode()
    delta = _delta(at, {"type": "input_json_delta", "partial_json": arguments})
    return _start(at, {**block, "input": {}}) + delta + _event("content_block_stop", index=at)


def _start(at: int, block: dict[str, Any]) -> bytes:
    return _event("content_block_start", index=at, content_block=block)


def _delta(at: int, delta: dict[str, Any]) -> bytes:
    return _event("content_block_delta", index=at, delta=delta)


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode({"type": kind, **fields}) + b"\n\n"


def _reason(result: RunResult) -> str:
    if result.error_kind == Failure.REFUSAL:
        return "refusal"
    if result.calls:
        return "tool_use"
    return "max_tokens" if result.stop_reason == "length" else "end_turn"


def _no_usage() -> dict[str, int]:
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    return dict.fromkeys(names, 0)


def _usage(result: RunResult) -> dict[str, int]:
    """Tokens of all model calls of the run."""
    usage = result.usage
    counts = (usage.input, usage.cache_write, usage.cache_read, usage.output)
    return dict(zip(_no_usage(), counts, strict=True))
