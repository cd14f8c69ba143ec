"""The OpenAI Responses wire: the provider, replies built from its events, and the rendering of a request.

Nothing is stored at the provider (`store: false`), so a request holds the whole conversation, as on the other wires.
A reply is a list of items. Reasoning comes encrypted; it is stored as the item that came, and sent back only to the
model that made it, before the item that followed it. Items are identified by their index, so their deltas may be
interleaved. Servers that send no deltas, or only the last event, are understood too: what an item holds at its end
counts where nothing of it had come before. A reply is complete after `response.completed` or `response.incomplete`.

Tools are not `strict`, which is this wire's default: it would refuse schemas with optional arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.errors import Failure
from palinurus.domain.messages import AssistantMessage, Image, Text, Thinking, ToolCall, ToolResult, Usage, UserMessage
from palinurus.providers.provider import ANY_TOOL, ModelRequest, TextDelta, ThinkingTextDelta
from palinurus.providers.wires.failures import Call, failure, failure_in_stream
from palinurus.providers.wires.http import Post, WireProvider
from palinurus.providers.wires.rendering import (
    EFFORTS,
    NO_OUTPUT,
    NOTHING_SAID,
    CallIds,
    Part,
    as_json,
    is_whole,
    result_text,
    tool_name,
    user_content,
    written_by,
)
from palinurus.providers.wires.reply import ContentBlock, Gatherer, read_arguments, read_json

Deltas = list[TextDelta | ThinkingTextDelta]
BREAK = "\n\n"  # between the parts of a summary


class ItemPart(Struct):
    text: str | None = None
    refusal: str | None = None


class Item(Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | dict[str, Any] | None = None
    content: list[ItemPart] | None = None  # of a message; of reasoning that can be read
    summary: list[ItemPart] | None = None
    encrypted_content: str | None = None


class InputDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class WireUsage(Struct):
    input_tokens: int | None = None
    input_tokens_details: InputDetails | None = None
    output_tokens: int | None = None

    def counted(self) -> Usage:
        details = self.input_tokens_details or InputDetails()
        read, written = details.cached_tokens or 0, details.cache_write_tokens or 0
        return Usage(max((self.input_tokens or 0) - read - written, 0), self.output_tokens or 0, read, written)


class IncompleteDetails(Struct):
    reason: str | None = None


class WireResponse(Struct):
    status: str | None = None
    output: list[Item] | None = None
    usage: WireUsage | None = None
    error: Any = None
    incomplete_details: IncompleteDetails | None = None


class Event(WireResponse):
    """An event, or the response itself when it is not streamed."""

    type: str = ""
    object: str | None = None
    output_index: int = 0
    delta: str | None = None
    item: Item | None = None
    response: WireResponse | None = None
    code: Any = None  # of an error, like the next one
    message: Any = None


class Slot(Struct):
    """One item under construction."""

    kind: str
    words: list[str] = []
    call_id: str = ""
    name: str = ""
    raw: list[str] = []
    signature: str | None = None


_SAYS = ("response.output_text.delta", "response.refusal.delta")
_THINKS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ENDS = ("response.completed", "response.incomplete", "response.failed")


class ResponsesReply(Gatherer):
    decoder = msgspec.json.Decoder(Event)
    length_stops = ("max_output_tokens", "max_tokens")
    needs_done = True

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._slots: dict[int, Slot] = {}

    @property
    def text(self) -> str:
        return "".join("".join(slot.words) for slot in self._slots.values() if slot.kind == "message")

    @property
    def calls(self) -> int:
        return sum(slot.kind == "function_call" for slot in self._slots.values())

    def take(self, event: Event) -> Deltas:
        if event.object == "response":
            return self._end(event)
        if event.type == "error" or (event.error and not event.type):
            said = event.error or {"code": event.code, "message": event.message}
            raise failure_in_stream(said, self._call)
        self._understood = self._understood or event.type.startswith("response.")
        if event.type in _ENDS and event.response:
            return self._end(event.response)
        if event.type == "response.output_item.added" and event.item:
            self._slots[event.output_index] = Slot(
                event.item.type, call_id=event.item.call_id or "", name=event.item.name or ""
            )
        elif event.type == "response.output_item.done" and event.item:
            return self._close(event.output_index, event.item)
        return self._grow(event) if event.delta or event.type.endswith("summary_part.added") else []

    def _grow(self, event: Event) -> Deltas:
        delta = event.delta or ""
        if event.type in _SAYS:
            self._slot(event.output_index, "message").words.append(delta)
            return [TextDelta(delta)]
        if event.type in _THINKS:
            self._slot(event.output_index, "reasoning").words.append(delta)
            return [ThinkingTextDelta(delta)]
        if event.type == "response.reasoning_summary_part.added":
            slot = self._slot(event.output_index, "reasoning")
            if not slot.words:
                return []
            slot.words.append(BREAK)
            return [ThinkingTextDelta(BREAK)]
        if event.type == "response.function_call_arguments.delta":
            self._slot(event.output_index, "function_call").raw.append(delta)
            self.held += len(delta)
        return []

    def _slot(self, index: int, kind: str) -> Slot:
        return self._slots.setdefault(index, Slot(kind))

    def _close(self, index: int, item: Item) -> Deltas:
        """What the finished item says where no delta said it. Its reasoning is complete only here."""
        slot = self._slot(index, item.type)
        slot.kind = item.type
        if item.type == "function_call":
            slot.call_id, slot.name = item.call_id or slot.call_id, item.name or slot.name
            if item.arguments and not slot.raw:
                whole = item.arguments
                slot.raw = [whole if isinstance(whole, str) else msgspec.json.encode(whole).decode()]
                self.held += len(slot.raw[0])
            return []
        if item.type == "reasoning" and item.encrypted_content:
            slot.signature = _signature(item)
            self.held += len(slot.signature)
        text = BREAK.join(_texts(item.summary)) or "".join(_texts(item.content))
        if slot.words or not text or item.type not in ("message", "reasoning"):
            return []
        slot.words.append(text)
        return [TextDelta(text)] if item.type == "message" else [ThinkingTextDelta(text)]

    def _end(self, response: WireResponse) -> Deltas:
        self._understood = self.done = True
        if response.error:
            raise failure_in_stream(response.error, self._call)
        if response.usage:
            self._usage = response.usage.counted()
        why = response.incomplete_details.reason if response.incomplete_details else None
        self._stop = why or response.status or ""
        known = self._slots.keys()
        missing = [(at, item) for at, item in enumerate(response.output or ()) if at not in known]
        return [delta for at, item in missing for delta in self._close(at, item)]

    def check_stop(self) -> None:
        if self._stop == "content_filter":
            raise failure(self._call, Failure.REFUSAL)
        if self._stop not in ("completed", *self.length_stops):
            raise failure(self._call, Failure.OVERLOAD, f"the provider ended the answer early: {self._stop}")

    def blocks(self, *, cut: bool) -> Iterator[ContentBlock]:
        for _, slot in sorted(self._slots.items()):
            words = "".join(slot.words)
            if slot.kind == "message" and words:
                yield Text(words)
            elif slot.kind == "reasoning" and (words or slot.signature):
                yield Thinking(words, slot.signature)
            elif slot.kind == "function_call":
                yield ToolCall(slot.call_id, slot.name or "unknown", read_arguments("".join(slot.raw), cut=cut))


def _texts(parts: Sequence[ItemPart] | None) -> list[str]:
    return [text for part in parts or () if (text := part.text or part.refusal)]


def _signature(item: Item) -> str:
    """The reasoning as it is sent back."""
    summary = [{"type": "summary_text", "text": text} for text in _texts(item.summary)]
    known = {"type": "reasoning", "id": item.id or "", "summary": summary}
    return msgspec.json.encode({**known, "encrypted_content": item.encrypted_content}).decode()


WIRE = "openai-responses"  # the name that OpenClaw's config and transcripts use


def to_responses(request: ModelRequest, *, provider: str) -> bytes:
    """The JSON body of a streaming request. Never raises for stored messages."""
    body: dict[str, Any] = {"model": request.model}
    if request.head.system:
        body["instructions"] = request.head.system
    body["input"] = list(_items(request, provider))
    if request.head.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": spec.name,
                "description": spec.description,
                "parameters": spec.parameters,
                "strict": False,
            }
            for spec in request.head.tools
        ]
    if choice := request.tool_choice:
        body["tool_choice"] = "required" if choice == ANY_TOOL else {"type": "function", "name": choice}
    if form := request.reply_format:
        schema = {"type": "json_schema", "name": form.name, "schema": form.schema, "strict": form.strict}
        body["text"] = {"format": schema if form.schema else {"type": "json_object"}}
    body |= {"stream": True, "store": False}
    if request.max_tokens is not None:
        body["max_output_tokens"] = request.max_tokens
    if effort := EFFORTS.get(request.thinking):  # models without reasoning refuse both
        body["reasoning"] = {"effort": effort, "summary": "auto"}
        body["include"] = ["reasoning.encrypted_content"]
    return as_json(body)


def _items(request: ModelRequest, provider: str) -> Iterator[Part]:
    ids = CallIds()
    for message in request.messages:
        if isinstance(message, UserMessage):
            yield {"type": "message", "role": "user", "content": _content(user_content(message)) or NOTHING_SAID}
        elif isinstance(message, ToolResult):
            call_id = ids.of_result(message.tool_call_id)
            yield {"type": "function_call_output", "call_id": call_id, "output": _output(message)}
        else:
            own = written_by(message, wire=WIRE, provider=provider, model=request.model)
            yield from _assistant(message, ids, own)


def _content(content: str | Sequence[Text | Image]) -> str | list[Part]:
    if isinstance(content, str):
        return content
    return [
        {"type": "input_text", "text": block.text}
        if isinstance(block, Text)
        else {
            "type": "input_image",
            "image_url": f"data:{block.mime_type};base64,{block.data}",
            "detail": "auto",
        }
        for block in content
    ]


def _output(result: ToolResult) -> str | list[Part]:
    if isinstance(result.content, str) or not any(isinstance(block, Image) for block in result.content):
        text = result_text(result)
        return f"ERROR: {text}" if result.is_error else text or NO_OUTPUT
    return _content(result.content)


def _assistant(message: AssistantMessage, ids: CallIds, own: bool) -> list[Part]:
    items: list[Part] = []
    for block in message.content:
        if isinstance(block, ToolCall):
            arguments = as_json(block.arguments).decode()
            called = {"call_id": ids.of_call(block.id), "name": tool_name(block.name), "arguments": arguments}
            items.append({"type": "function_call", **called})
        elif isinstance(block, Text):
            if block.text:
                items.append({"type": "message", "role": "assistant", "content": block.text})
        elif own and is_whole(block):
            thought = read_json(block.thinking_signature or "")
            if isinstance(thought, dict) and thought.get("encrypted_content"):
                items.append(thought)
    while items and items[-1]["type"] == "reasoning":  # the wire refuses one that nothing follows
        items.pop()
    return items


class ResponsesProvider(WireProvider):
    wire = WIRE

    def post(self, request: ModelRequest) -> Post:
        return Post("/responses", to_responses(request, provider=self.name), ResponsesReply)
