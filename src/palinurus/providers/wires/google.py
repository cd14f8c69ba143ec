"""The Google Gemini wire: the provider, and replies built from its chunks. The key is sent in a header only.

Calls arrive whole, often without an id. A signed part is stored as a separate block, because it must be sent back
unchanged; unsigned pieces are joined. A reply is complete after a `finishReason` and a clean end of the body.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from palinurus.domain.errors import Failure
from palinurus.domain.messages import Text, Thinking, ToolCall, Usage
from palinurus.providers.provider import ModelRequest, ReplyEvent, TextDelta, ThinkingTextDelta
from palinurus.providers.wires.failures import Call, failure, failure_in_stream
from palinurus.providers.wires.google_request import WIRE, to_google
from palinurus.providers.wires.http import UNKNOWN_WINDOW, Post, WireProvider
from palinurus.providers.wires.reply import ContentBlock, Gatherer, read_arguments

REFUSED = frozenset(
    """
    SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT
    IMAGE_RECITATION MODEL_ARMOR
    """.split()  # noqa: SIM905
)
BAD_CALL = frozenset(
    """
    MALFORMED_FUNCTION_CALL UNEXPECTED_TOOL_CALL TOO_MANY_TOOL_CALLS MISSING_THOUGHT_SIGNATURE MALFORMED_RESPONSE
    """.split()  # noqa: SIM905
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


class ReplyCandidate(Struct, rename="camel"):
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
    candidates: list[ReplyCandidate] | None = None
    usage_metadata: UsageMetadata | None = None
    prompt_feedback: PromptFeedback | None = None
    error: Any = None


_decode_chunks = msgspec.json.Decoder(Chunk | list[Chunk]).decode


class GoogleReply(Gatherer):
    """This wire has no final event: the body just ends."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._content: list[ContentBlock] = []
        self._pieces: list[str] = []  # of an unfinished text or thinking
        self._thinks = False  # whether the pieces are thinking
        self._why = ""

    @property
    def text(self) -> str:
        pieces = () if self._thinks else self._pieces
        return "".join([*(block.text for block in self._content if isinstance(block, Text)), *pieces])

    @property
    def calls(self) -> int:
        return sum(isinstance(block, ToolCall) for block in self._content)

    def decode(self, payload: bytes) -> list[Chunk]:
        found = _decode_chunks(payload)
        return [found] if isinstance(found, Chunk) else found  # some servers send the whole stream as one array

    def take(self, chunks: list[Chunk]) -> list[ReplyEvent]:
        return [event for chunk in chunks for event in self._take(chunk)]

    def _take(self, chunk: Chunk) -> list[ReplyEvent]:
        if chunk.error:
            raise failure_in_stream(chunk.error, self._call)
        if chunk.usage_metadata:
            self._usage = chunk.usage_metadata.counted()
        if chunk.prompt_feedback and (reason := chunk.prompt_feedback.block_reason):
            detail = chunk.prompt_feedback.block_reason_message or ""
            raise failure(self._call, Failure.REFUSAL, f"{reason} {detail}".strip())
        if not chunk.candidates:
            return []
        self._understood = True
        candidate = chunk.candidates[0]
        if candidate.index:  # only one candidate was requested
            return []
        self._stop = candidate.finish_reason or self._stop
        self._why = candidate.finish_message or self._why
        parts = candidate.content.parts if candidate.content else None
        return [event for part in parts or () for event in self._part(part)]

    def _part(self, part: Part) -> list[ReplyEvent]:
        if part.function_call:
            self._close()
            call = part.function_call
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
        """Joins the unsigned pieces so far into a block."""
        if self._pieces:
            text = "".join(self._pieces)
            self._content.append(Thinking(text) if self._thinks else Text(text))
            self._pieces = []

    def cut(self) -> None:
        self._stop = "MAX_TOKENS"

    def check_end(self) -> bool:
        if not self._stop:
            raise self.never_ended()
        detail = f"{self._stop} {self._why}".strip()
        if self._stop in REFUSED:
            raise failure(self._call, Failure.REFUSAL, detail)
        if self._stop in BAD_CALL:
            raise failure(self._call, Failure.MALFORMED, f"an invalid tool call: {detail}", hint="try again")
        if self._stop not in ("STOP", "MAX_TOKENS"):
            raise failure(self._call, Failure.OVERLOAD, f"the provider broke the answer off: {detail}")
        return self._stop == "MAX_TOKENS"

    def blocks(self, *, cut: bool) -> list[ContentBlock]:
        self._close()
        return self._content


def _arguments(args: Any) -> dict[str, Any]:
    if args is None:
        return {}
    return read_arguments(msgspec.json.encode(args).decode(), cut=False)


GEMINI_WINDOW = 1_048_576


class GoogleProvider(WireProvider):
    """The base URL may be given with or without its version."""

    wire = WIRE

    @staticmethod
    def headers(key: str) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    @staticmethod
    def usual_window(model: str) -> int:
        return GEMINI_WINDOW if model.removeprefix("models/").startswith("gemini") else UNKNOWN_WINDOW

    def post(self, request: ModelRequest) -> Post:
        version = "" if self.address.path.strip("/") else "/v1beta"
        model = quote(request.model.removeprefix("models/"), safe="")
        path = f"{version}/models/{model}:streamGenerateContent?alt=sse"
        return Post(path, to_google(request, provider=self.name), GoogleReply)
