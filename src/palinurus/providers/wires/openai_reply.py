"""A reply gathered from the chunks of the OpenAI wire.

Servers differ in how they stream tool calls: deltas of parallel calls interleaved by index, whole calls in one delta,
the index left out, the id repeated in every delta, one index for all calls. `CallSlots` makes one list of all of them.

A reply is whole when a `finish_reason` was seen and the body ended cleanly; `[DONE]` alone proves nothing.
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
    MAX_CALLS,
    Gathered,
    never_ended,
    not_this_wire,
    nothing_came,
    own_id,
    read_arguments,
    read_json,
    stop_of,
)


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


_decode_chunk = msgspec.json.Decoder(Chunk).decode


class CallSlot:
    """One tool call in the making."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.raw: list[str] = []
        self.looks = 0  # how often it was asked whether the arguments are whole already

    def add(self, delta: CallDelta) -> None:
        self.id = self.id or delta.id or ""
        if not (function := delta.function):
            return
        if function.name and function.name != self.name and not self.raw:
            self.name += function.name
        if isinstance(function.arguments, dict):
            self.raw = [msgspec.json.encode(function.arguments).decode()]
        elif function.arguments:
            self.raw.append(function.arguments)

    def is_whole(self) -> bool:
        """Whether a delta that names the call again must begin another one. Asked without end it would be quadratic."""
        self.looks += 1
        return self.looks <= MAX_CALLS and isinstance(read_json("".join(self.raw)), dict)


class CallSlots:
    """The calls of one reply, in the order in which they began."""

    def __init__(self) -> None:
        self._slots: list[CallSlot] = []
        self._by_index: dict[int, CallSlot] = {}

    def add(self, delta: CallDelta) -> None:
        slot = self._slot(delta)
        if delta.index is not None:
            self._by_index[delta.index] = slot
        slot.add(delta)

    def _slot(self, delta: CallDelta) -> CallSlot:
        named = bool(delta.function and delta.function.name)
        if delta.index is None:
            known = self._with_id(delta.id) if delta.id else None
            last = self._slots[-1] if self._slots and not delta.id and not named else None
            return known or last or self._open()
        slot = self._by_index.get(delta.index)
        if slot is None:
            return self._open()
        other_id = bool(delta.id and slot.id and delta.id != slot.id)
        restarted = not delta.id and named and slot.is_whole()
        return self._open() if named and (other_id or restarted) else slot

    def __len__(self) -> int:
        return len(self._slots)

    def _with_id(self, call_id: str) -> CallSlot | None:
        return next((slot for slot in reversed(self._slots) if slot.id == call_id), None)

    def _open(self) -> CallSlot:
        self._slots.append(CallSlot())
        return self._slots[-1]

    def finished(self, *, cut: bool, fresh: str) -> tuple[ToolCall, ...]:
        """The calls, each with an id of its own; `fresh` starts the ids of calls that came without one."""
        taken: set[str] = set()
        return tuple(
            ToolCall(
                own_id(slot.id, taken, f"{slot.id or fresh}_{number}"),
                slot.name or "unknown",
                read_arguments("".join(slot.raw), cut=cut),
            )
            for number, slot in enumerate(self._slots)
        )


def _size(delta: CallDelta) -> int:
    if delta.function is None:
        return 0
    arguments = delta.function.arguments
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments) if arguments else ""
    return len(text) + len(delta.function.name or "")


class OpenAIReply:
    """Implements Gatherer."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._slots = CallSlots()
        self._usage = Usage()
        self._finish = ""
        self._understood = False
        self.held = 0
        self.done = False  # the server said [DONE]

    @property
    def text(self) -> str:
        return "".join(self._text)

    def add(self, payload: bytes) -> list[ReplyEvent]:
        if payload.startswith(b"[DONE]"):
            self.done = True
            return []
        try:
            chunk = _decode_chunk(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise not_this_wire(self._call, payload) from None
        if chunk.error or chunk.object == "error":
            raise failure_in_stream(chunk.error or chunk.message, self._call)
        if chunk.usage:
            self._usage = chunk.usage.counted()
        if not chunk.choices:
            return []
        self._understood = True
        return self._take(chunk.choices[0])

    def _take(self, choice: ChunkChoice) -> list[ReplyEvent]:
        self._finish = choice.finish_reason or self._finish
        delta = choice.delta or choice.message
        if choice.index or delta is None:  # a second choice was never asked for
            return []
        events: list[ReplyEvent] = []
        if thought := delta.reasoning_content or delta.reasoning:
            self._thinking.append(thought)
            self.held += len(thought)
            events.append(ThinkingTextDelta(thought))
        content = delta.content
        text = content if isinstance(content, str) else "".join(part.text or "" for part in content or ())
        if text := text or delta.refusal or "":
            self._text.append(text)
            self.held += len(text)
            events.append(TextDelta(text))
        for call in delta.tool_calls or ():
            self._slots.add(call)
            self.held += _size(call)
        return events

    @property
    def calls(self) -> int:
        return len(self._slots)

    def cut(self) -> None:
        self._finish = "length"

    def finish(self, *, now_ms: int) -> Gathered:
        self._check_end()
        cut = self._finish == "length"
        thinking = (Thinking("".join(self._thinking)),) if self._thinking else ()
        text = (Text(self.text),) if self._text else ()
        content = (*thinking, *text, *self._slots.finished(cut=cut, fresh=f"call_{now_ms:x}"))
        return Gathered(content, self._usage, stop_of(content, cut=cut))

    def _check_end(self) -> None:
        if not self._understood:
            raise nothing_came(self._call)
        if not self._finish:
            raise never_ended(self._call)
        if self._finish == "content_filter":
            raise failure(self._call, Failure.REFUSAL)
        if self._finish == "error":
            raise failure(self._call, Failure.OVERLOAD, "the provider broke the answer off")
