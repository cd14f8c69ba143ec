"""The Anthropic Messages wire: the provider, replies built from its events, and the rendering of a request.

Blocks of a reply are identified by index, so the deltas of several may be interleaved. Pings, empty deltas and unknown
kinds of blocks and events are skipped. A reply is complete after `message_stop`.

Consecutive messages of one role are merged in a request, and only there: the wire wants all results of a reply in the
one user message after it. Block by block, a longer conversation still starts with the shorter one (promise 20), except
for the cache markers, which move. Thinking is sent back, unchanged, only to the model that produced it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.errors import Failure
from palinurus.domain.messages import AssistantMessage, Image, Text, Thinking, ToolCall, ToolResult, Usage, UserMessage
from palinurus.providers.provider import ANY_TOOL, Head, ModelRequest, TextDelta, ThinkingTextDelta
from palinurus.providers.wires.failures import Call, failure, failure_in_stream
from palinurus.providers.wires.http import Post, WireProvider
from palinurus.providers.wires.rendering import (
    NO_OUTPUT,
    NOTHING_SAID,
    CallIds,
    Part,
    as_json,
    is_whole,
    merge_roles,
    tool_name,
    user_content,
    written_by,
)
from palinurus.providers.wires.reply import ContentBlock, Gatherer, read_arguments


class Delta(Struct):
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class Block(Delta):
    type: str = ""
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


class Slot(Struct):
    """One content block under construction."""

    kind: str
    words: list[str] = []
    signature: list[str] = []
    id: str = ""
    name: str = ""
    first_input: str = ""  # if the arguments came with the start of the block
    raw_input: list[str] = []


class AnthropicReply(Gatherer):
    decoder = msgspec.json.Decoder(Event)
    length_stops = ("max_tokens", "model_context_window_exceeded")
    needs_done = True

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._slots: dict[int, Slot] = {}

    @property
    def text(self) -> str:
        return "".join("".join(slot.words) for slot in self._slots.values() if slot.kind == "text")

    @property
    def calls(self) -> int:
        return sum(slot.kind == "tool_use" for slot in self._slots.values())

    def take(self, event: Event) -> list[TextDelta | ThinkingTextDelta]:
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

    def _whole(self, event: Event) -> list[TextDelta | ThinkingTextDelta]:
        self._understood = self.done = True
        self._stop = event.stop_reason or ""
        self._count(event.usage)
        return [said for index, block in enumerate(event.content or ()) for said in self._start(index, block)]

    def _start(self, index: int, block: Block) -> list[TextDelta | ThinkingTextDelta]:
        self._understood = True
        given = msgspec.json.encode(block.input).decode() if block.input and isinstance(block.input, dict) else ""
        self._slots[index] = Slot(block.type, id=block.id or "", name=block.name or "", first_input=given)
        self.held += len(given)
        return self._grow(index, Delta(block.text, block.thinking, block.signature or block.data))

    def _grow(self, index: int, delta: Delta) -> list[TextDelta | ThinkingTextDelta]:
        slot = self._slots.get(index)
        if slot is None:  # a server that sends no block starts
            slot = self._slots[index] = Slot("text" if delta.text else "thinking" if delta.thinking else "")
        self.held += len(delta.signature or "") + len(delta.partial_json or "")
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

    def check_stop(self) -> None:
        if self._stop == "refusal":
            raise failure(self._call, Failure.REFUSAL)

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
                raw = "".join(slot.raw_input) or slot.first_input
                yield ToolCall(slot.id, slot.name or "unknown", read_arguments(raw, cut=cut))


WIRE = "anthropic-messages"  # the name that OpenClaw's transcripts use
CACHED = {"type": "ephemeral"}
MAX_TOKENS = 8_000  # of an answer, by default; the wire requires a number
MAX_TOKENS_WITH_EFFORT = 32_000  # including thinking, which these models count
LEAST_BUDGET = 1_024


class Mind(Struct, frozen=True):
    """How thinking levels are sent to models of a kind."""

    models: re.Pattern[str]
    efforts: dict[str, str] = {}  # level -> output_config.effort, with adaptive thinking
    budgets: dict[str, int] = {}  # level -> thinking.budget_tokens


def _efforts(xhigh: str, most: str) -> dict[str, str]:
    low = {"minimal": "low", "low": "low", "medium": "medium", "high": "high"}
    return {"adaptive": "", **low, "xhigh": xhigh, "max": most, "ultra": most}


BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_000, "adaptive": 8_000, "high": 16_000} | dict.fromkeys(
    ("xhigh", "max", "ultra"),
    24_000,  # with an answer of MAX_TOKENS exactly the limit of Opus 4
)

# The first matching row decides. `off` sends nothing: the model's own default applies.
MINDS: tuple[Mind, ...] = (
    Mind(re.compile(r"claude-(2|instant|3-(?!7))")),  # models without thinking
    Mind(re.compile(r"sonnet-4[.-]6"), efforts=_efforts("high", "high")),
    Mind(re.compile(r"opus-4[.-]6"), efforts=_efforts("high", "max")),
    Mind(re.compile(r"(opus|sonnet|haiku)-4[.-]([7-9]|[1-9]\d)(?!\d)"), efforts=_efforts("xhigh", "max")),
    Mind(re.compile(r"claude-(opus|sonnet|haiku)-([5-9]|[1-9]\d)(?!\d)"), efforts=_efforts("xhigh", "max")),
    Mind(re.compile(r"claude-([a-z]+-preview|fable|mythos)"), efforts=_efforts("xhigh", "max")),
    Mind(re.compile(""), budgets=BUDGETS),  # Claude 3.7 to 4.5, and models of other vendors on this wire
)


def to_anthropic(request: ModelRequest, *, provider: str) -> bytes:
    """The JSON body of a streaming request. Never raises for stored messages."""
    messages = merge_roles(_rendered(request, provider), "content", _text)
    # Cache markers: at the end, for the next request, and where the last request ended.
    ends = [message["content"] for message in messages if message["role"] == "user"]
    for content in ends[-2:]:
        content[-1] = {**content[-1], "cache_control": CACHED}
    limits, head = _limits(request, provider), _head(request.head)
    choice = {} if "thinking" in limits else _choice(request.tool_choice)  # a model that thinks cannot be forced
    return as_json({"model": request.model, **limits, **head, **choice, "messages": messages, "stream": True})


def _choice(tool: str) -> dict[str, Any]:
    if not tool:
        return {}
    return {"tool_choice": {"type": "any"} if tool == ANY_TOOL else {"type": "tool", "name": tool}}


def _head(head: Head) -> dict[str, Any]:
    """Tools precede the system prompt in the cache, so one marker at the end covers both."""
    tools: list[Part] = [
        {"name": spec.name, "description": spec.description, "input_schema": {"type": "object", **spec.parameters}}
        for spec in head.tools
    ]
    system = [{**_text(head.system), "cache_control": CACHED}] if head.system.strip() else []
    if tools and not system:
        tools[-1]["cache_control"] = CACHED
    return {name: parts for name, parts in (("system", system), ("tools", tools)) if parts}


def _limits(request: ModelRequest, provider: str) -> dict[str, Any]:
    mind = next(mind for mind in MINDS if mind.models.search(request.model))
    if mind.efforts:
        limits: dict[str, Any] = {"max_tokens": request.max_tokens or MAX_TOKENS_WITH_EFFORT}
        effort = mind.efforts.get(request.thinking)
        if effort is not None:  # without `display` the newer models send empty thinking
            limits["thinking"] = {"type": "adaptive", "display": "summarized"}
        if effort:
            limits["output_config"] = {"effort": effort}
        return limits
    budget = mind.budgets.get(request.thinking, 0)
    if request.max_tokens:
        budget = min(budget, request.max_tokens // 2)
    if budget < LEAST_BUDGET or not _may_think(request, provider):
        return {"max_tokens": request.max_tokens or MAX_TOKENS}
    thinking = {"type": "enabled", "budget_tokens": budget}
    return {"max_tokens": request.max_tokens or MAX_TOKENS + budget, "thinking": thinking}


def _may_think(request: ModelRequest, provider: str) -> bool:
    """Whether thinking is allowed: a turn that another model began without thinking cannot continue with it on this
    wire.
    """
    turn = list(takewhile(lambda message: not isinstance(message, UserMessage), reversed(request.messages)))
    began = turn[-1] if turn else None
    if not isinstance(began, AssistantMessage):
        return True
    first = _assistant(began, CallIds(), _is_own(began, request, provider))
    return bool(first) and first[0]["type"] in ("thinking", "redacted_thinking")


def _rendered(request: ModelRequest, provider: str) -> Iterator[tuple[str, list[Part]]]:
    ids = CallIds()
    for message in request.messages:
        if isinstance(message, UserMessage):
            yield "user", _user(message)
        elif isinstance(message, ToolResult):
            yield "user", [_result(message, ids)]
        elif blocks := _assistant(message, ids, _is_own(message, request, provider)):
            yield "assistant", blocks


def _is_own(message: AssistantMessage, request: ModelRequest, provider: str) -> bool:
    return written_by(message, wire=WIRE, provider=provider, model=request.model)


def _user(message: UserMessage) -> list[Part]:
    content = user_content(message)
    blocks = [_text(content)] if isinstance(content, str) else [_block(block) for block in content]
    return [block for block in blocks if _says_something(block)] or [_text(NOTHING_SAID)]


def _assistant(message: AssistantMessage, ids: CallIds, own: bool) -> list[Part]:
    blocks: list[Part] = []
    for block in message.content:
        if isinstance(block, ToolCall):
            name, call_id = tool_name(block.name), ids.of_call(block.id)
            blocks.append({"type": "tool_use", "id": call_id, "name": name, "input": block.arguments})
        elif isinstance(block, Text):
            blocks.append(_text(block.text))
        elif own and is_whole(block) and block.redacted:
            blocks.append({"type": "redacted_thinking", "data": block.thinking_signature})
        elif own and is_whole(block):
            thought = {"thinking": block.thinking, "signature": block.thinking_signature}
            blocks.append({"type": "thinking", **thought})
    blocks = [block for block in blocks if _says_something(block)]
    while blocks and "thinking" in blocks[-1]["type"]:  # the wire refuses a message that ends with thinking
        blocks.pop()
    return blocks


def _result(result: ToolResult, ids: CallIds) -> Part:
    content = (Text(result.content),) if isinstance(result.content, str) else result.content
    blocks = [block for block in map(_block, content) if _says_something(block)] or [_text(NO_OUTPUT)]
    found: Part = {"type": "tool_result", "tool_use_id": ids.of_result(result.tool_call_id), "content": blocks}
    return found | ({"is_error": True} if result.is_error else {})


def _block(block: Text | Image) -> Part:
    if isinstance(block, Text):
        return _text(block.text)
    return {"type": "image", "source": {"type": "base64", "media_type": block.mime_type, "data": block.data}}


def _text(text: str) -> Part:
    return {"type": "text", "text": text}


def _says_something(block: Part) -> bool:
    """Whether a text is not blank: the wire refuses blank texts."""
    return block["type"] != "text" or bool(block["text"].strip())


VERSION = "2023-06-01"
OAUTH_BETA = "oauth-2025-04-20"
OAUTH_PREFIX = "sk-ant-oat"


class AnthropicProvider(WireProvider):
    """The base URL may be given with or without `/v1`."""

    wire = WIRE
    family, family_window = ("claude",), 200_000  # the smallest window of the Claude models
    key_header, key_prefix = "x-api-key", ""

    def headers(self, key: str) -> dict[str, str]:
        signed_in = {"Authorization": f"Bearer {key}", "anthropic-beta": OAUTH_BETA}
        by_key = signed_in if key.startswith(OAUTH_PREFIX) else super().headers(key)
        return {"anthropic-version": VERSION, **by_key}

    def post(self, request: ModelRequest) -> Post:
        version = "" if self._base_url.endswith("/v1") else "/v1"
        return Post(f"{version}/messages", to_anthropic(request, provider=self.name), AnthropicReply)
