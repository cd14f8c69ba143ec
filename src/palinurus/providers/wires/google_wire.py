"""A request as the bytes of the Google Gemini wire.

Neighbours of one role become one content here, and only here: the wire wants all results of a reply in the one content
behind it. Part by part, a longer conversation still starts with the shorter one (promise 20).

Signed parts go back, unchanged, to the model that signed them, and to no other. Thoughts without a signature are
summaries for people, and are not sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from palinurus.domain.messages import AssistantMessage, Image, Text, ToolCall, ToolResult, UserMessage
from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import ModelRequest
from palinurus.providers.wires.google_schema import to_google_schema
from palinurus.providers.wires.rendering import (
    NO_OUTPUT,
    NOT_SHOWN,
    NOTHING_SAID,
    CallIds,
    as_json,
    is_whole,
    result_text,
    tool_name,
    user_content,
    written_by,
)

WIRE = "google-generative-ai"  # the name that OpenClaw's transcripts use
UNSIGNED = "skip_thought_signature_validator"
"""Stands where Gemini 3 wants a signature and there is none, because somebody else made the call."""

_BUDGETED = re.compile(r"gemini-2\.5")
_LEVELLED = re.compile(r"gemini-([3-9]|\d\d)|gemini-[a-z-]+-latest")
_LOW_OR_HIGH = re.compile(r"gemini-3-pro")

LEVELS = {"minimal": "low", "low": "low", "medium": "medium"} | dict.fromkeys(("high", "xhigh", "max", "ultra"), "high")
"""Thinking level -> `thinkingLevel` of Gemini 3; its own `minimal` is refused by half of the models."""

BUDGETS = {"adaptive": -1, "minimal": 512, "low": 2_048, "medium": 8_192} | dict.fromkeys(
    ("high", "xhigh", "max", "ultra"), 24_576
)
"""Thinking level -> `thinkingBudget` of Gemini 2.5. `off` sends nothing anywhere: the model's own default holds."""

Part = dict[str, Any]


def to_google(request: ModelRequest, *, provider: str) -> bytes:
    """The JSON body of a streaming request. Never raises for what a stored message can hold."""
    body: dict[str, Any] = {}
    if request.head.system:
        body["systemInstruction"] = {"parts": [{"text": request.head.system}]}
    if request.head.tools:
        body["tools"] = [{"functionDeclarations": [_tool(spec) for spec in request.head.tools]}]
    body["contents"] = _merged(request, provider)
    if config := _generation(request):
        body["generationConfig"] = config
    return as_json(body)


def _tool(spec: ToolSpec) -> dict[str, Any]:
    schema = to_google_schema(spec.parameters)
    # A tool without parameters has no schema: an object without properties is refused.
    parameters = {"parameters": schema} if schema.get("properties") else {}
    return {"name": spec.name, "description": spec.description, **parameters}


def _generation(request: ModelRequest) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if request.max_tokens is not None:
        config["maxOutputTokens"] = request.max_tokens
    if thinking := _thinking(request.model, request.thinking):
        config["thinkingConfig"] = {"includeThoughts": True, **thinking}
    return config


def _thinking(model: str, level: str) -> dict[str, Any]:
    if _BUDGETED.search(model) and level in BUDGETS:
        return {"thinkingBudget": BUDGETS[level]}
    if _LEVELLED.search(model) and level in LEVELS:
        wanted = LEVELS[level]
        return {"thinkingLevel": "high" if wanted == "medium" and _LOW_OR_HIGH.search(model) else wanted}
    return {}


def _merged(request: ModelRequest, provider: str) -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = []
    for role, parts in _rendered(request, provider):
        if not contents and role != "user":
            contents.append({"role": "user", "parts": [{"text": NOT_SHOWN}]})
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"].extend(parts)
        else:
            contents.append({"role": role, "parts": parts})
    return contents or [{"role": "user", "parts": [{"text": NOTHING_SAID}]}]


def _rendered(request: ModelRequest, provider: str) -> Iterator[tuple[str, list[Part]]]:
    ids = CallIds()
    signs = bool(_LEVELLED.search(request.model))  # these read pictures in results, too
    for message in request.messages:
        if isinstance(message, UserMessage):
            yield "user", _user(message)
        elif isinstance(message, ToolResult):
            yield "user", [_result(message, ids, pictures=signs)]
        else:
            own = written_by(message, wire=WIRE, provider=provider, model=request.model)
            if parts := _assistant(message, ids, own=own, signs=signs):
                yield "model", parts


def _user(message: UserMessage) -> list[Part]:
    content = user_content(message)
    if isinstance(content, str):
        return [{"text": content or NOTHING_SAID}]
    return [_picture(block) if isinstance(block, Image) else {"text": block.text} for block in content]


def _picture(image: Image) -> Part:
    return {"inlineData": {"mimeType": image.mime_type, "data": image.data}}


def _assistant(message: AssistantMessage, ids: CallIds, *, own: bool, signs: bool) -> list[Part]:
    parts: list[Part] = []
    first_call = True
    for block in message.content:
        if isinstance(block, ToolCall):
            signature = block.thought_signature if own else None
            stand_in = UNSIGNED if signs and first_call else None  # only the first of parallel calls is signed
            parts.append(_signed(_call(block, ids), signature or stand_in))
            first_call = False
        elif isinstance(block, Text):
            signature = block.text_signature if own else None
            if block.text or signature:
                parts.append(_signed({"text": block.text}, signature))
        elif own and is_whole(block):
            parts.append(_signed({"text": block.thinking, "thought": True}, block.thinking_signature))
    return parts


def _call(call: ToolCall, ids: CallIds) -> Part:
    name, call_id = tool_name(call.name), ids.of_call(call.id)
    return {"functionCall": {"id": call_id, "name": name, "args": call.arguments}}


def _signed(part: Part, signature: str | None) -> Part:
    return {**part, "thoughtSignature": signature} if signature else part


def _result(result: ToolResult, ids: CallIds, *, pictures: bool) -> Part:
    images = [block for block in result.content if isinstance(block, Image)] if pictures else []
    text = (result.text if images else result_text(result)) or NO_OUTPUT
    response: dict[str, Any] = {
        "id": ids.of_result(result.tool_call_id),
        "name": tool_name(result.tool_name),
        "response": {"error" if result.is_error else "output": text},
    }
    if images:
        response["parts"] = [_picture(image) for image in images]
    return {"functionResponse": response}
