"""Renders a request for the Google Gemini wire.

Consecutive messages of one role are merged, because the wire wants all results of a reply in the one content after it.
Part by part, a longer conversation still starts with the shorter one (promise 20). Signed parts are sent back,
unchanged, only to the model that signed them. Thinking without a signature is a summary for people, and is not sent.

The wire refuses a request with an unknown JSON Schema keyword, so only known ones pass. Others are converted where
possible: references are inlined, constants become enums, exclusive limits inclusive ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from palinurus.domain.messages import AssistantMessage, Image, Text, ToolCall, ToolResult, UserMessage
from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import ModelRequest
from palinurus.providers.wires.rendering import (
    NO_OUTPUT,
    NOTHING_SAID,
    CallIds,
    Part,
    as_json,
    is_whole,
    merge_roles,
    result_text,
    tool_name,
    user_content,
    written_by,
)

Schema = dict[str, Any]
KEPT = frozenset(
    """
    type format title description nullable enum items minItems maxItems properties required minProperties
    maxProperties minimum maximum minLength maxLength pattern anyOf
    """.split()  # noqa: SIM905
)
FORMATS = {"string": ("enum", "date-time"), "integer": ("int32", "int64"), "number": ("float", "double")}


def to_google_schema(schema: Mapping[str, Any]) -> Schema:
    """The same schema, as far as the wire supports it. Never raises for JSON."""
    return _Cutter(schema).cut(schema, frozenset())


class _Cutter:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def cut(self, schema: Any, inside: frozenset[str]) -> Schema:
        """`inside`: the references that contain this part; a recursive one would have no end."""
        if not isinstance(schema, Mapping):  # `true` allows everything
            return {"type": "string"}
        written, inside = self._written_out(schema, inside)
        cut = {key: value for key, value in _narrowed(written).items() if key in KEPT}
        if isinstance(cut.get("properties"), Mapping):
            cut["properties"] = {name: self.cut(part, inside) for name, part in cut["properties"].items()}
        if cut.get("type") == "array":
            cut["items"] = self.cut(cut.get("items", True), inside)
        if "anyOf" in cut:
            cut = self._choice(cut, inside)
        return _consistent(cut)

    def _written_out(self, schema: Mapping[str, Any], inside: frozenset[str]) -> tuple[Schema, frozenset[str]]:
        """Inlines `$ref` and `allOf`."""
        found = dict(schema)
        while "$ref" in found or "allOf" in found:
            parts = _list(found.pop("allOf", ()))
            if reference := str(found.pop("$ref", "")):
                parts.append({"type": "object"} if reference in inside else self._target(reference))
                inside |= {reference}
            for part in parts:
                found = _joined(found, part) if isinstance(part, Mapping) else found
        return found, inside

    def _target(self, reference: str) -> Any:
        here: Any = self._root
        for name in filter(None, reference.removeprefix("#").split("/")):
            here = here.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(here, Mapping) else None
        return here

    def _choice(self, cut: Schema, inside: frozenset[str]) -> Schema:
        options = [option for option in _list(cut.pop("anyOf")) if option != {"type": "null"}]
        parts = [self.cut(option, inside) for option in options]
        return {**cut, **parts[0]} if len(parts) == 1 else {**cut, "anyOf": parts} if parts else cut


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _joined(left: Schema, right: Mapping[str, Any]) -> Schema:
    joined = {**right, **left}
    if isinstance(left.get("properties"), Mapping) and isinstance(right.get("properties"), Mapping):
        joined["properties"] = {**right["properties"], **left["properties"]}
        joined["required"] = [*_list(right.get("required")), *_list(left.get("required"))]
    return joined


def _narrowed(schema: Schema) -> Schema:
    """Converts unsupported keywords to supported ones."""
    found = dict(schema)
    if "const" in found:
        found.setdefault("enum", [found["const"]])
    if isinstance(found.get("oneOf"), list):
        found.setdefault("anyOf", found["oneOf"])
    step = 1 if found.get("type") == "integer" else 0
    for exclusive, inclusive, by in (("exclusiveMinimum", "minimum", step), ("exclusiveMaximum", "maximum", -step)):
        if isinstance(limit := found.get(exclusive), int | float) and not isinstance(limit, bool):
            found.setdefault(inclusive, limit + by)
    if isinstance(types := found.get("type"), list):
        real = [name for name in types if name != "null"]
        found["type"] = real[0] if real else "string"
        found["nullable"] = len(real) < len(types) or bool(found.get("nullable"))
    if isinstance(options := found.get("anyOf"), list) and {"type": "null"} in options:
        found["nullable"] = True
    if not isinstance(found.get("type"), str):
        found.pop("type", None)
        found |= {} if "anyOf" in found else {"type": _guessed(found)}
    return found


def _guessed(schema: Schema) -> str:
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def _consistent(cut: Schema) -> Schema:
    """Removes contradictions, which the wire refuses."""
    kind = cut.get("type", "")
    if "enum" in cut and (kind != "string" or not _are_names(cut["enum"])):
        del cut["enum"]
    if "format" in cut and cut["format"] not in FORMATS.get(kind, ()):
        del cut["format"]
    if not isinstance(cut.get("properties"), Mapping) or not cut["properties"]:
        cut.pop("properties", None)
    if "required" in cut:
        known = [name for name in _list(cut.pop("required")) if str(name) in cut.get("properties", {})]
        cut |= {"required": known} if known else {}
    if not cut.get("nullable", True):
        del cut["nullable"]
    return cut


def _are_names(values: Any) -> bool:
    return bool(_list(values)) and all(isinstance(value, str) and value for value in values)


WIRE = "google-generative-ai"  # the name that OpenClaw's transcripts use
UNSIGNED = "skip_thought_signature_validator"
"""Used where Gemini 3 wants a signature and there is none, because another model made the call."""

_BUDGETED = re.compile(r"gemini-2\.5")
_LEVELLED = re.compile(r"gemini-([3-9]|\d\d)|gemini-[a-z-]+-latest")
_LOW_OR_HIGH = re.compile(r"gemini-3-pro")
LEVELS = {"minimal": "low", "low": "low", "medium": "medium"} | dict.fromkeys(("high", "xhigh", "max", "ultra"), "high")
"""Thinking level -> `thinkingLevel` of Gemini 3; its own `minimal` is refused by half of the models."""

BUDGETS = {"adaptive": -1, "minimal": 512, "low": 2_048, "medium": 8_192} | dict.fromkeys(
    ("high", "xhigh", "max", "ultra"), 24_576
)
"""Thinking level -> `thinkingBudget` of Gemini 2.5. `off` sends nothing: the model's own default applies."""


def to_google(request: ModelRequest, *, provider: str) -> bytes:
    """The JSON body of a streaming request. Never raises for stored messages."""
    body: dict[str, Any] = {}
    if request.head.system:
        body["systemInstruction"] = {"parts": [{"text": request.head.system}]}
    if request.head.tools:
        body["tools"] = [{"functionDeclarations": [_tool(spec) for spec in request.head.tools]}]
    body["contents"] = merge_roles(_rendered(request, provider), "parts", _text)
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


def _rendered(request: ModelRequest, provider: str) -> Iterator[tuple[str, list[Part]]]:
    ids = CallIds()
    signs = bool(_LEVELLED.search(request.model))  # these accept images in results, too
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
        return [_text(content or NOTHING_SAID)]
    return [_picture(block) if isinstance(block, Image) else _text(block.text) for block in content]


def _text(text: str) -> Part:
    return {"text": text}


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
                parts.append(_signed(_text(block.text), signature))
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
