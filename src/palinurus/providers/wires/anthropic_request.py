"""Renders a request for the Anthropic Messages wire.

Consecutive messages of one role are merged here, and only here: the wire wants all results of a reply in the one user
message after it. Block by block, a longer conversation still starts with the shorter one (promise 20), except for the
cache markers, which move.

Thinking is sent back, unchanged, only to the model that produced it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from palinurus.domain.messages import (
    AssistantMessage,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import Head, ModelRequest
from palinurus.providers.wires.rendering import (
    NO_OUTPUT,
    NOTHING_SAID,
    CallIds,
    as_json,
    is_whole,
    merge_roles,
    tool_name,
    user_content,
    written_by,
)

WIRE = "anthropic-messages"  # the name that OpenClaw's transcripts use
CACHED = {"type": "ephemeral"}
MAX_TOKENS = 8_000  # of an answer, by default; the wire requires a number
MAX_TOKENS_WITH_EFFORT = 32_000  # including thinking, which these models count
LEAST_BUDGET = 1_024
Block = dict[str, Any]


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
    Mind(
        re.compile(r"claude-((opus|sonnet|haiku)-([5-9]|[1-9]\d)(?!\d)|[a-z]+-preview|fable|mythos)"),
        efforts=_efforts("xhigh", "max"),
    ),
    Mind(re.compile(""), budgets=BUDGETS),  # Claude 3.7 to 4.5, and models of other vendors on this wire
)


def to_anthropic(request: ModelRequest, *, provider: str) -> bytes:
    """The JSON body of a streaming request. Never raises for stored messages."""
    messages = merge_roles(_rendered(request, provider), "content", _text)
    _mark(messages)
    body: dict[str, Any] = {"model": request.model, **_limits(request, provider)}
    body |= _head(request.head)
    body["messages"] = messages
    body["stream"] = True
    return as_json(body)


def _head(head: Head) -> dict[str, Any]:
    """Tools precede the system prompt in the cache, so one marker at the end covers both."""
    tools = [_tool(spec) for spec in head.tools]
    if head.system.strip():
        system = [{"type": "text", "text": head.system, "cache_control": CACHED}]
        return {"system": system} | ({"tools": tools} if tools else {})
    if tools:
        tools[-1]["cache_control"] = CACHED
        return {"tools": tools}
    return {}


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.description, "input_schema": {"type": "object", **spec.parameters}}


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
    return {
        "max_tokens": request.max_tokens or MAX_TOKENS + budget,
        "thinking": {"type": "enabled", "budget_tokens": budget},
    }


def _may_think(request: ModelRequest, provider: str) -> bool:
    """Whether thinking is allowed: a turn that another model began without thinking cannot continue with it on this
    wire.
    """
    turn: list[Message] = []
    for message in reversed(request.messages):
        if isinstance(message, UserMessage):
            break
        turn.append(message)
    if not turn or not isinstance(turn[-1], AssistantMessage):
        return True
    first = _assistant(turn[-1], CallIds(), _is_own(turn[-1], request, provider))
    return bool(first) and first[0]["type"] in ("thinking", "redacted_thinking")


def _rendered(request: ModelRequest, provider: str) -> Iterator[tuple[str, list[Block]]]:
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


def _user(message: UserMessage) -> list[Block]:
    content = user_content(message)
    blocks = [_text(content)] if isinstance(content, str) else [_block(block) for block in content]
    return [block for block in blocks if _says_something(block)] or [_text(NOTHING_SAID)]


def _assistant(message: AssistantMessage, ids: CallIds, own: bool) -> list[Block]:
    blocks: list[Block] = []
    for block in message.content:
        if isinstance(block, ToolCall):
            name, call_id = tool_name(block.name), ids.of_call(block.id)
            blocks.append({"type": "tool_use", "id": call_id, "name": name, "input": block.arguments})
        elif isinstance(block, Text):
            blocks.append(_text(block.text))
        elif own and is_whole(block):
            blocks.append(_thought(block))
    blocks = [block for block in blocks if _says_something(block)]
    while blocks and "thinking" in blocks[-1]["type"]:  # the wire refuses a message that ends with thinking
        blocks.pop()
    return blocks


def _thought(block: Thinking) -> Block:
    if block.redacted:
        return {"type": "redacted_thinking", "data": block.thinking_signature}
    return {"type": "thinking", "thinking": block.thinking, "signature": block.thinking_signature}


def _result(result: ToolResult, ids: CallIds) -> Block:
    content = (Text(result.content),) if isinstance(result.content, str) else result.content
    blocks = [block for block in map(_block, content) if _says_something(block)] or [_text(NO_OUTPUT)]
    found: Block = {"type": "tool_result", "tool_use_id": ids.of_result(result.tool_call_id), "content": blocks}
    return found | ({"is_error": True} if result.is_error else {})


def _block(block: Text | Image) -> Block:
    if isinstance(block, Text):
        return _text(block.text)
    return {"type": "image", "source": {"type": "base64", "media_type": block.mime_type, "data": block.data}}


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _says_something(block: Block) -> bool:
    """Whether a text is not blank: the wire refuses blank texts."""
    return block["type"] != "text" or bool(block["text"].strip())


def _mark(messages: list[dict[str, Any]]) -> None:
    """Sets cache markers: at the end, for the next request, and where the last request ended."""
    ends = [message["content"] for message in messages if message["role"] == "user"]
    for content in ends[-2:]:
        content[-1] = {**content[-1], "cache_control": CACHED}
