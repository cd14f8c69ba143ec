"""A reply gathered from the chunks of the Google Gemini wire.

Calls come whole, often without an id. A signed part is kept as a block of its own, because it must go back as it came;
unsigned pieces are joined. A reply is whole when a `finishReason` was seen and the body ended cleanly.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.errors import Failure, ProviderError
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

REFUSED = frozenset(
    [
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "MODEL_ARMOR",
    ]
)
BAD_CALL = frozenset(
    [
        "MALFORMED_FUNCTION_CALL",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
        "MALFORMED_RESPONSE",
    ]
)


class FunctionCall(Struct):
    name: str | None = None
    args: Any = None
    id: str | None = None


class Part(Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None


class Content(Struct):
    parts: list[Part] | None = None


class Candidate(Struct, rename="camel"):
    index: int | None = 0
    content: Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class UsageMetadata(Struct, rename="camel"):
    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None

    def counted(self) -> Usage:
        cached = self.cached_content_token_count or 0
        return Usage(
            input=max((self.prompt_token_count or 0) - cached, 0) + (self.tool_use_prompt_token_count or 0),
            output=(self.candidates_token_count or 0) + (self.thoughts_token_count or 0),
            cache_read=cached,
        )


class PromptFeedback(Struct, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class Chunk(Struct, rename="camel"):
    candidates: list[Candidate] | None = None
    usage_metadata: UsageMetadata | None = None
    prompt_feedback: PromptFeedback | None = None
    error: Any = None


_decode_chunks = msgspec.json.Decoder(Chunk | list[Chunk]).decode


class GoogleReply:
    """Implements Gatherer."""

    done = False  # this wire has no last word; the body just ends

    def __init__(self, call: Call) -> None:
        self._call = call
        self._content: list[Text | Thinking | ToolCall] = []
        self._pieces: list[str] = []  # of a text or thought that goes on
        self._thinks = False  # whether the pieces are thoughts
        self._usage = Usage()
        self._finish = ""
        self._why = ""
        self._understood = False
        self.held = 0
        self.calls = 0

    @property
    def text(self) -> str:
        pieces = () if self._thinks else self._pieces
        return "".join([*(block.text for block in self._content if isinstance(block, Text)), *pieces])

    def add(self, payload: bytes) -> list[ReplyEvent]:
        try:
            found = _decode_chunks(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if payload.startswith(b"[DONE]"):  # said by servers that speak several wires
                return []
            raise not_this_wire(self._call, payload) from None
        if isinstance(found, Chunk):
            return self._take(found)
        return [event for chunk in found for event in self._take(chunk)]  # the whole stream as one array

    def _take(self, chunk: Chunk) -> list[ReplyEvent]:
        if chunk.error:
            raise failure_in_stream(chunk.error, self._call)
        if chunk.usage_metadata:
            self._usage = chunk.usage_metadata.counted()
        if chunk.prompt_feedback and (reason := chunk.prompt_feedback.block_reason):
            told = chunk.prompt_feedback.block_reason_message or ""
            raise failure(self._call, Failure.REFUSAL, f"{reason} {told}".strip())
        if not chunk.candidates:
            return []
        self._understood = True
        candidate = chunk.candidates[0]
        if candidate.index:  # a second answer was never asked for
            return []
        self._finish = candidate.finish_reason or self._finish
        self._why = candidate.finish_message or self._why
        parts = candidate.content.parts if candidate.content else None
        return [event for part in parts or () for event in self._part(part)]

    def _part(self, part: Part) -> list[ReplyEvent]:
        if part.function_call:
            self._close()
            call = part.function_call
            self.calls += 1
            self.held += len(msgspec.json.encode(call.args))
            self._content.append(
                ToolCall(call.id or "", call.name or "unknown", _arguments(call.args), part.thought_signature)
            )
            return []
        text = part.text or ""
        self.held += len(text)
        thinks = bool(part.thought)
        if thinks != self._thinks or part.thought_signature:
            self._close()
            self._thinks = thinks
        if part.thought_signature:
            signed = Thinking if thinks else Text
            self._content.append(signed(text, part.thought_signature))
        elif text:
            self._pieces.append(text)
        if not text:
            return []
        return [ThinkingTextDelta(text) if thinks else TextDelta(text)]

    def _close(self) -> None:
        """The unsigned pieces so far are a block."""
        if self._pieces:
            text = "".join(self._pieces)
            self._content.append(Thinking(text) if self._thinks else Text(text))
            self._pieces = []

    def cut(self) -> None:
        self._finish = "MAX_TOKENS"

    def finish(self, *, now_ms: int) -> Gathered:
        if not self._understood:
            raise nothing_came(self._call)
        if error := self._broken_off():
            raise error
        self._close()
        taken: set[str] = set()
        content = tuple(
            msgspec.structs.replace(block, id=own_id(block.id, taken, f"{block.id or f'call_{now_ms:x}'}_{number}"))
            if isinstance(block, ToolCall)
            else block
            for number, block in enumerate(self._content)
        )
        return Gathered(content, self._usage, stop_of(content, cut=self._finish == "MAX_TOKENS"))

    def _broken_off(self) -> ProviderError | None:
        if not self._finish:
            return never_ended(self._call)
        told = f"{self._finish} {self._why}".strip()
        if self._finish in REFUSED:
            return failure(self._call, Failure.REFUSAL, told)
        if self._finish in BAD_CALL:
            return failure(self._call, Failure.MALFORMED, f"a tool call that makes no sense: {told}", hint="try again")
        if self._finish not in ("STOP", "MAX_TOKENS"):
            return failure(self._call, Failure.OVERLOAD, f"the provider broke the answer off: {told}")
        return None


def _arguments(args: Any) -> dict[str, Any]:
    if args is None:
        return {}
    return read_arguments(msgspec.json.encode(args).decode(), cut=False)
