"""A reply gathered from the events of the Anthropic wire.

Blocks are known by their index, so the deltas of several may come interleaved. Pings, empty deltas and kinds of blocks
and events that we do not know are passed over. A reply is whole when `message_stop` was seen.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.errors import Failure
from palinurus.domain.messages import Text, Thinking, ToolCall, Usage
from palinurus.providers.provider import ReplyEvent, TextDelta, ThinkingTextDelta
from palinurus.providers.wires.failures import Call, failure, failure_in_stream
from palinurus.providers.wires.reply import (
    Gathered,
    never_ended,
    not_this_wire,
    nothing_came,
    own_id,
    read_arguments,
    stop_of,
)

CUT = ("max_tokens", "model_context_window_exceeded")


class Delta(Struct):
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class Block(Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None  # of redacted_thinking
    id: str | None = None
    name: str | None = None
    input: Any = None


class WireUsage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class Opening(Struct):
    usage: WireUsage | None = None


class Event(Struct):
    type: str = ""
    index: int = 0
    delta: Delta | None = None
    content_block: Block | None = None
    message: Opening | str | None = None
    usage: WireUsage | None = None
    error: Any = None
    content: list[Block] | None = None  # of an answer that is not streamed, like the next one
    stop_reason: str | None = None


_decode_event = msgspec.json.Decoder(Event).decode


class Slot:
    """One content block in the making."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.words: list[str] = []
        self.signature: list[str] = []
        self.id = ""
        self.name = ""
        self.whole_input: Any = None  # where the arguments came with the start of the block
        self.raw_input: list[str] = []

    def arguments(self, *, cut: bool) -> dict[str, Any]:
        if not self.raw_input and isinstance(self.whole_input, dict) and self.whole_input:
            return read_arguments(msgspec.json.encode(self.whole_input).decode(), cut=cut)
        return read_arguments("".join(self.raw_input), cut=cut)


class AnthropicReply:
    """Implements Gatherer."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._slots: dict[int, Slot] = {}
        self._usage = Usage()
        self._stop = ""
        self._understood = False
        self.held = 0
        self.done = False  # the server said message_stop

    @property
    def text(self) -> str:
        return "".join("".join(slot.words) for slot in self._slots.values() if slot.kind == "text")

    def add(self, payload: bytes) -> list[ReplyEvent]:
        try:
            event = _decode_event(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if payload.startswith(b"[DONE]"):  # said by servers that speak several wires
                return []
            raise not_this_wire(self._call, payload) from None
        match event.type:
            case "content_block_delta":
                return self._grow(event.index, event.delta) if event.delta else []
            case "content_block_start":
                return self._start(event.index, event.content_block) if event.content_block else []
            case "message_start" | "message_delta":
                self._understood = True
                self._count(event.message.usage if isinstance(event.message, Opening) else event.usage)
                self._stop = (event.delta and event.delta.stop_reason) or self._stop
            case "message_stop":
                self.done = True
            case "message":
                return self._whole(event)
            case _ if event.error or event.type == "error":
                raise failure_in_stream(event.error or event.message, self._call)
        return []

    def _whole(self, event: Event) -> list[ReplyEvent]:
        self._understood = self.done = True
        self._stop = event.stop_reason or ""
        self._count(event.usage)
        return [said for index, block in enumerate(event.content or ()) for said in self._start(index, block)]

    def _start(self, index: int, block: Block) -> list[ReplyEvent]:
        self._understood = True
        slot = self._slots[index] = Slot(block.type)
        slot.id, slot.name, slot.whole_input = block.id or "", block.name or "", block.input
        self.held += len(msgspec.json.encode(block.input)) if block.input else 0
        return self._grow(index, Delta(block.text, block.thinking, block.signature or block.data))

    def _grow(self, index: int, delta: Delta) -> list[ReplyEvent]:
        slot = self._slots.get(index)
        if slot is None:  # a server that opens no blocks
            slot = self._slots[index] = Slot("text" if delta.text else "thinking" if delta.thinking else "")
        self.held += sum(len(each or "") for each in (delta.text, delta.thinking, delta.signature, delta.partial_json))
        if delta.text:
            slot.words.append(delta.text)
            return [TextDelta(delta.text)]
        if delta.partial_json:
            slot.raw_input.append(delta.partial_json)
        if delta.signature:
            slot.signature.append(delta.signature)
        if delta.thinking:
            slot.words.append(delta.thinking)
            return [ThinkingTextDelta(delta.thinking)]
        return []

    def _count(self, usage: WireUsage | None) -> None:
        """Counts only grow; a later event may leave out, or give as 0, what an earlier one told."""
        if usage:
            self._usage = Usage(
                usage.input_tokens or self._usage.input,
                usage.output_tokens or self._usage.output,
                usage.cache_read_input_tokens or self._usage.cache_read,
                usage.cache_creation_input_tokens or self._usage.cache_write,
            )

    @property
    def calls(self) -> int:
        return sum(slot.kind == "tool_use" for slot in self._slots.values())

    def cut(self) -> None:
        self._stop, self.done = CUT[0], True

    def finish(self, *, now_ms: int) -> Gathered:
        if not self._understood:
            raise nothing_came(self._call)
        if not self._stop or not self.done:
            raise never_ended(self._call)
        if self._stop == "refusal":
            raise failure(self._call, Failure.REFUSAL)
        cut = self._stop in CUT
        content = self._content(cut, fresh=f"call_{now_ms:x}")
        return Gathered(content, self._usage, stop_of(content, cut=cut))

    def _content(self, cut: bool, fresh: str) -> tuple[Text | Thinking | ToolCall, ...]:
        content: list[Text | Thinking | ToolCall] = []
        taken: set[str] = set()
        for index, slot in sorted(self._slots.items()):
            words, signature = "".join(slot.words), "".join(slot.signature) or None
            if slot.kind == "text" and words:
                content.append(Text(words))
            elif slot.kind == "thinking" and (words or signature):
                content.append(Thinking(words, signature))
            elif slot.kind == "redacted_thinking" and signature:
                content.append(Thinking("", signature, redacted=True))
            elif slot.kind == "tool_use":
                call_id = own_id(slot.id, taken, f"{slot.id or fresh}_{index}")
                content.append(ToolCall(call_id, slot.name or "unknown", slot.arguments(cut=cut)))
        return tuple(content)
