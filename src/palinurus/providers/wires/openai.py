"""The OpenAI chat-completions wire, which OpenRouter, Ollama, LM Studio and vLLM speak too.

Thinking is not sent back: this wire does not support it. Images that a tool returned become a placeholder line, because
the wire takes images from users only. Tool call ids that the wire would refuse are replaced, also in their results.

Servers differ in how they stream tool calls: deltas of parallel calls interleaved by index, whole calls in one delta,
the index left out, the id repeated in every delta, one index for all calls. `CallSlots` handles all of them.

A reply is complete after a `finish_reason` and a clean end of the body; `[DONE]` alone proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.errors import Failure
from palinurus.domain.messages import (
    AssistantMessage,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import ANY_TOOL, ModelRequest, TextDelta, ThinkingTextDelta
from palinurus.providers.wires.failures import Call, failure, failure_in_stream
from palinurus.providers.wires.http import Post, WireProvider
from palinurus.providers.wires.rendering import (
    EFFORTS,
    NO_OUTPUT,
    CallIds,
    as_json,
    result_text,
    tool_name,
    user_content,
)
from palinurus.providers.wires.reply import MAX_CALLS, ContentBlock, Gatherer, read_arguments, read_json


class FunctionDelta(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallDelta(Struct):
    index: int | None = None
    id: str | None = None
    function: FunctionDelta | None = None


class ContentPart(Struct):
    text: str | None = None


class Delta(Struct):
    content: str | list[ContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[CallDelta] | None = None


class ChunkChoice(Struct):
    index: int | None = 0
    delta: Delta | None = None
    message: Delta | None = None  # of an answer that is not streamed
    finish_reason: str | None = None


class PromptDetails(Struct):
    cached_tokens: int | None = None


class WireUsage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek's name for the same

    def counted(self) -> Usage:
        cached = self.prompt_cache_hit_tokens or 0
        if self.prompt_tokens_details:
            cached = self.prompt_tokens_details.cached_tokens or cached
        return Usage(
            input=max((self.prompt_tokens or 0) - cached, 0), output=self.completion_tokens or 0, cache_read=cached
        )


class Chunk(Struct):
    choices: list[ChunkChoice] | None = None
    usage: WireUsage | None = None
    error: Any = None
    object: str | None = None
    message: Any = None


class CallSlot(Struct):
    """One tool call under construction."""

    id: str = ""
    name: str = ""
    raw: list[str] = []
    looks: int = 0  # how often the arguments were tested for completeness

    def add(self, delta: CallDelta) -> int:
        """Returns how many characters of name and arguments came."""
        self.id = self.id or delta.id or ""
        name, arguments = (delta.function.name or "", delta.function.arguments) if delta.function else ("", "")
        if name != self.name and not self.raw:
            self.name += name
        if isinstance(arguments, dict):
            self.raw, arguments = [], msgspec.json.encode(arguments).decode()
        if arguments:
            self.raw.append(arguments)
        return len(name) + len(arguments or "")

    def is_whole(self) -> bool:
        """Whether a delta that names the call again must begin another one. The number of tests is limited, because
        they are quadratic.
        """
        self.looks += 1
        return self.looks <= MAX_CALLS and isinstance(read_json("".join(self.raw)), dict)


class CallSlots:
    """The calls of one reply."""

    def __init__(self) -> None:
        self.in_order: list[CallSlot] = []
        self._by_index: dict[int, CallSlot] = {}

    def add(self, delta: CallDelta) -> int:
        slot = self._slot(delta)
        if delta.index is not None:
            self._by_index[delta.index] = slot
        return slot.add(delta)

    def _slot(self, delta: CallDelta) -> CallSlot:
        named = bool(delta.function and delta.function.name)
        if delta.index is None:
            same = (slot for slot in reversed(self.in_order) if (slot.id == delta.id if delta.id else not named))
            return next(same, None) or self._open()
        slot = self._by_index.get(delta.index)
        if slot is None:
            return self._open()
        other_id = bool(delta.id and slot.id and delta.id != slot.id)
        restarted = not delta.id and named and slot.is_whole()
        return self._open() if named and (other_id or restarted) else slot

    def _open(self) -> CallSlot:
        self.in_order.append(CallSlot())
        return self.in_order[-1]


class OpenAIReply(Gatherer):
    decoder = msgspec.json.Decoder(Chunk)
    length_stops = ("length",)
    done_ends = True

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._slots = CallSlots()

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def calls(self) -> int:
        return len(self._slots.in_order)

    def take(self, chunk: Chunk) -> list[TextDelta | ThinkingTextDelta]:
        if chunk.error or chunk.object == "error":
            raise failure_in_stream(chunk.error or chunk.message, self._call)
        if chunk.usage:
            self._usage = chunk.usage.counted()
        if not chunk.choices:
            return []
        self._understood = True
        return self._take_choice(chunk.choices[0])

    def _take_choice(self, choice: ChunkChoice) -> list[TextDelta | ThinkingTextDelta]:
        self._stop = choice.finish_reason or self._stop
        delta = choice.delta or choice.message
        if choice.index or delta is None:  # only one choice was requested
            return []
        events: list[TextDelta | ThinkingTextDelta] = []
        if thought := delta.reasoning_content or delta.reasoning:
            self._thinking.append(thought)
            events.append(ThinkingTextDelta(thought))
        content = delta.content
        text = content if isinstance(content, str) else "".join(part.text or "" for part in content or ())
        if text := text or delta.refusal or "":
            self._text.append(text)
            events.append(TextDelta(text))
        for call in delta.tool_calls or ():
            self.held += self._slots.add(call)
        return events

    def check_stop(self) -> None:
        if self._stop == "content_filter":
            raise failure(self._call, Failure.REFUSAL)
        if self._stop == "error":
            raise failure(self._call, Failure.OVERLOAD, "the provider ended the answer early")

    def blocks(self, *, cut: bool) -> Iterator[ContentBlock]:
        if self._thinking:
            yield Thinking("".join(self._thinking))
        if self._text:
            yield Text(self.text)
        for slot in self._slots.in_order:
            yield ToolCall(slot.id, slot.name or "unknown", read_arguments("".join(slot.raw), cut=cut))


JSON_OBJECT = {"type": "json_object"}


def to_openai(request: ModelRequest, *, at_openai: bool = False) -> bytes:
    """The JSON body of a streaming request. Never raises for stored messages.

    Only OpenAI is asked for a format of replies: some others refuse one beside tools.
    """
    body: dict[str, Any] = {"model": request.model, "messages": list(_messages(request))}
    if request.head.tools:
        body["tools"] = [{"type": "function", "function": _function(spec)} for spec in request.head.tools]
    if choice := request.tool_choice:
        named = {"type": "function", "function": {"name": choice}}
        body["tool_choice"] = "required" if choice == ANY_TOOL else named
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    if request.max_tokens is not None:
        body["max_completion_tokens" if at_openai else "max_tokens"] = request.max_tokens
    if (form := request.reply_format) and at_openai:
        schema = {"name": form.name, "schema": form.schema, "strict": form.strict}
        body["response_format"] = {"type": "json_schema", "json_schema": schema} if form.schema else JSON_OBJECT
    if effort := EFFORTS.get(request.thinking):
        body["reasoning_effort"] = effort
    return as_json(body)


def _messages(request: ModelRequest) -> Iterator[dict[str, Any]]:
    if request.head.system:
        yield {"role": "system", "content": request.head.system}
    ids = CallIds()
    for message in request.messages:
        if rendered := _message(message, ids):
            yield rendered


def _message(message: Message, ids: CallIds) -> dict[str, Any] | None:
    if isinstance(message, UserMessage):
        content = user_content(message)
        return {"role": "user", "content": content if isinstance(content, str) else [_part(part) for part in content]}
    if isinstance(message, AssistantMessage):
        return _assistant(message, ids)
    return {"role": "tool", "tool_call_id": ids.of_result(message.tool_call_id), "content": _result(message)}


def _part(block: Text | Image) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    return {"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}}


def _assistant(message: AssistantMessage, ids: CallIds) -> dict[str, Any] | None:
    text = message.text
    calls = []
    for call in message.calls:
        function = {"name": tool_name(call.name), "arguments": as_json(call.arguments).decode()}
        calls.append({"id": ids.of_call(call.id), "type": "function", "function": function})
    if calls:
        return {"role": "assistant", "content": text or None, "tool_calls": calls}
    return {"role": "assistant", "content": text} if text else None  # several servers refuse an empty message


def _result(result: ToolResult) -> str:
    text = result_text(result)
    return f"ERROR: {text}" if result.is_error else text or NO_OUTPUT


def _function(spec: ToolSpec) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.description, "parameters": spec.parameters}


class OpenAIProvider(WireProvider):
    wire = "openai-completions"  # the name that OpenClaw's transcripts use

    def post(self, request: ModelRequest) -> Post:
        body = to_openai(request, at_openai=self.address.hostname == "api.openai.com")
        return Post("/chat/completions", body, OpenAIReply)
