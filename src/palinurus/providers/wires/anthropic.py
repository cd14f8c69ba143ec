"""The Anthropic Messages wire: the provider, and replies built from its events.

Blocks are identified by index, so the deltas of several may be interleaved. Pings, empty deltas and unknown kinds of
blocks and events are skipped. A reply is complete after `message_stop`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.errors import Failure
from palinurus.domain.messages import Text, Thinking, ToolCall, Usage
from palinurus.providers.provider import ModelRequest, ReplyEvent, TextDelta, ThinkingTextDelta
from palinurus.providers.wires.anthropic_request import WIRE, to_anthropic
from palinurus.providers.wires.failures import Call, failure, failure_in_stream
from palinurus.providers.wires.http import UNKNOWN_WINDOW, Post, WireProvider
from palinurus.providers.wires.reply import ContentBlock, Gatherer, read_arguments

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


class MessageStart(Struct):
    usage: WireUsage | None = None


class Event(Struct):
    type: str = ""
    index: int = 0
    delta: Delta | None = None
    content_block: Block | None = None
    message: MessageStart | str | None = None
    usage: WireUsage | None = None
    error: Any = None
    content: list[Block] | None = None  # of an answer that is not streamed, like the next one
    stop_reason: str | None = None


_decode_event = msgspec.json.Decoder(Event).decode


class Slot(Struct):
    """One content block under construction."""

    kind: str
    words: list[str] = []
    signature: list[str] = []
    id: str = ""
    name: str = ""
    whole_input: Any = None  # if the arguments came with the start of the block
    raw_input: list[str] = []

    def arguments(self, *, cut: bool) -> dict[str, Any]:
        if not self.raw_input and isinstance(self.whole_input, dict) and self.whole_input:
            return read_arguments(msgspec.json.encode(self.whole_input).decode(), cut=cut)
        return read_arguments("".join(self.raw_input), cut=cut)


class AnthropicReply(Gatherer):
    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._slots: dict[int, Slot] = {}

    @property
    def text(self) -> str:
        return "".join("".join(slot.words) for slot in self._slots.values() if slot.kind == "text")

    def decode(self, payload: bytes) -> Event:
        return _decode_event(payload)

    def take(self, event: Event) -> list[ReplyEvent]:
        match event.type:
            case "content_block_delta":
                return self._grow(event.index, event.delta) if event.delta else []
            case "content_block_start":
                return self._start(event.index, event.content_block) if event.content_block else []
            case "message_start" | "message_delta":
                self._understood = True
                self._count(event.message.usage if isinstance(event.message, MessageStart) else event.usage)
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
        if slot is None:  # a server that sends no block starts
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
        """Merges counts, which only grow; a later event may omit a count or send 0."""
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

    def check_end(self) -> bool:
        if not self._stop or not self.done:
            raise self.never_ended()
        if self._stop == "refusal":
            raise failure(self._call, Failure.REFUSAL)
        return self._stop in CUT

    def blocks(self, *, cut: bool) -> Iterator[ContentBlock]:
        for _, slot in sorted(self._slots.items()):
            words, signature = "".join(slot.words), "".join(slot.signature) or None
            if slot.kind == "text" and words:
                yield Text(words)
            elif slot.kind == "thinking" and (words or signature):
                yield Thinking(words, signature)
            elif slot.kind == "redacted_thinking" and signature:
                yield Thinking("", signature, redacted=True)
            elif slot.kind == "tool_use":
                yield ToolCall(slot.id, slot.name or "unknown", slot.arguments(cut=cut))


VERSION = "2023-06-01"
OAUTH_BETA = "oauth-2025-04-20"
OAUTH_PREFIX = "sk-ant-oat"
CLAUDE_WINDOW = 200_000  # the smallest window of the Claude models


class AnthropicProvider(WireProvider):
    """The base URL may be given with or without `/v1`."""

    wire = WIRE

    @staticmethod
    def trimmed(base_url: str) -> str:
        return base_url.removesuffix("/v1")

    @staticmethod
    def headers(key: str) -> dict[str, str]:
        version = {"anthropic-version": VERSION}
        if key.startswith(OAUTH_PREFIX):
            return version | {"Authorization": f"Bearer {key}", "anthropic-beta": OAUTH_BETA}
        return version | ({"x-api-key": key} if key else {})

    @staticmethod
    def usual_window(model: str) -> int:
        return CLAUDE_WINDOW if model.startswith("claude") else UNKNOWN_WINDOW

    def post(self, request: ModelRequest) -> Post:
        return Post("/v1/messages", to_anthropic(request, provider=self.name), AnthropicReply)
