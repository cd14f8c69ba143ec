"""The Google Gemini wire: the provider, replies built from its chunks, and the rendering of a request.

The key is sent in a header only. Calls arrive whole, often without an id. A signed part is stored as a separate block,
because it must be sent back unchanged, and only to the model that signed it; unsigned pieces are joined. Thinking
without a signature is a summary for people, and is not sent. A reply is complete after a `finishReason` and a clean end
of the body.

Consecutive messages of one role are merged in a request, because the wire wants all results of a reply in the one
content after it. Part by part, a longer conversation still starts with the shorter one (promise 20). The wire refuses a
request with an unknown JSON Schema keyword, so only known ones pass. Others are converted where possible: references
are inlined, constants become enums, exclusive limits inclusive ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from palinurus.domain.errors import Failure
from palinurus.domain.messages import AssistantMessage, Image, Text, Thinking, ToolCall, ToolResult, Usage, UserMessage
from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import ANY_TOOL, ModelRequest, TextDelta, ThinkingTextDelta
from palinurus.providers.wires.failures import Call, failure, failure_in_stream
from palinurus.providers.wires.http import Post, WireProvider
from palinurus.providers.wires.rendering import (
    NO_OUTPUT,
    NOTHING_SAID,
    CallIds,
    as_json,
    is_whole,
    merge_roles,
    result_text,
    tool_name,
    user_content,
    written_by,
)
from palinurus.providers.wires.reply import ContentBlock, Gatherer, read_arguments

Json = dict[str, Any]
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


class GoogleReply(Gatherer):
    """This wire has no final event: the body just ends."""

    decoder = msgspec.json.Decoder(Chunk | list[Chunk])  # some servers send the whole stream as one array
    length_stops = ("MAX_TOKENS",)

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

    def take(self, found: Chunk | list[Chunk]) -> list[TextDelta | ThinkingTextDelta]:
        chunks = found if isinstance(found, list) else [found]
        return [event for chunk in chunks for event in self._take(chunk)]

    def _take(self, chunk: Chunk) -> list[TextDelta | ThinkingTextDelta]:
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

    def _part(self, part: Part) -> list[TextDelta | ThinkingTextDelta]:
        if call := part.function_call:
            self._close()
            raw = "" if call.args is None else msgspec.json.encode(call.args).decode()
            self.held += len(raw)
            arguments = read_arguments(raw, cut=False)
            self._content.append(ToolCall(call.id or "", call.name or "unknown", arguments, part.thought_signature))
            return []
        text, thinks = part.text or "", bool(part.thought)
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

    def check_stop(self) -> None:
        detail = f"{self._stop} {self._why}".strip()
        if self._stop in REFUSED:
            raise failure(self._call, Failure.REFUSAL, detail)
        if self._stop in BAD_CALL:
            raise failure(self._call, Failure.MALFORMED, f"an invalid tool call: {detail}", hint="try again")
        if self._stop not in ("STOP", "MAX_TOKENS"):
            raise failure(self._call, Failure.OVERLOAD, f"the provider ended the answer early: {detail}")

    def blocks(self, *, cut: bool) -> list[ContentBlock]:
        self._close()
        return self._content


KEPT = frozenset(
    """
    type format title description nullable enum items minItems maxItems properties required minProperties
    maxProperties minimum maximum minLength maxLength pattern anyOf
    """.split()  # noqa: SIM905
)
FORMATS = {"string": ("enum", "date-time"), "integer": ("int32", "int64"), "number": ("float", "double")}


def to_google_schema(schema: Mapping[str, Any]) -> Json:
    """The same schema, as far as the wire supports it. Never raises for JSON."""
    return _Cutter(schema).cut(schema, frozenset())


class _Cutter:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def cut(self, schema: Any, inside: frozenset[str]) -> Json:
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

    def _written_out(self, schema: Mapping[str, Any], inside: frozenset[str]) -> tuple[Json, frozenset[str]]:
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

    def _choice(self, cut: Json, inside: frozenset[str]) -> Json:
        options = [option for option in _list(cut.pop("anyOf")) if option != {"type": "null"}]
        parts = [self.cut(option, inside) for option in options]
        return {**cut, **parts[0]} if len(parts) == 1 else {**cut, "anyOf": parts} if parts else cut


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _joined(left: Json, right: Mapping[str, Any]) -> Json:
    joined = {**right, **left}
    if isinstance(left.get("properties"), Mapping) and isinstance(right.get("properties"), Mapping):
        joined["properties"] = {**right["properties"], **left["properties"]}
        joined["required"] = [*_list(right.get("required")), *_list(left.get("required"))]
    return joined


def _narrowed(schema: Json) -> Json:
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
        guess = "object" if "properties" in found else "array" if "items" in found else "string"
        found |= {} if "anyOf" in found else {"type": guess}
    return found


def _consistent(cut: Json) -> Json:
    """Removes contradictions, which the wire refuses."""
    kind = cut.get("type", "")
    names = _list(cut.get("enum"))
    if kind != "string" or not names or not all(isinstance(name, str) and name for name in names):
        cut.pop("enum", None)
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


WIRE = "google-generative-ai"  # the name that OpenClaw's transcripts use
UNSIGNED = "skip_thought_signature_validator"
"""Used where Gemini 3 wants a signature and there is none, because another model made the call."""

_BUDGETED = re.compile(r"gemini-2\.5")
_LEVELLED = re.compile(r"gemini-([3-9]|\d\d)|gemini-[a-z-]+-latest")
_LOW_OR_HIGH = re.compile(r"gemini-3-pro")
_HIGH = ("high", "xhigh", "max", "ultra")
LEVELS = {"minimal": "low", "low": "low", "medium": "medium"} | dict.fromkeys(_HIGH, "high")
"""Thinking level -> `thinkingLevel` of Gemini 3; its own `minimal` is refused by half of the models."""

BUDGETS = {"adaptive": -1, "minimal": 512, "low": 2_048, "medium": 8_192} | dict.fromkeys(_HIGH, 24_576)
"""Thinking level -> `thinkingBudget` of Gemini 2.5. `off` sends nothing: the model's own default applies."""


def to_google(request: ModelRequest, *, provider: str) -> bytes:
    """The JSON body of a streaming request. Never raises for stored messages."""
    body: dict[str, Any] = {}
    if request.head.system:
        body["systemInstruction"] = {"parts": [{"text": request.head.system}]}
    if request.head.tools:
        body["tools"] = [{"functionDeclarations": [_tool(spec) for spec in request.head.tools]}]
    if choice := request.tool_choice:
        named = {} if choice == ANY_TOOL else {"allowedFunctionNames": [choice]}
        body["toolConfig"] = {"functionCallingConfig": {"mode": "ANY", **named}}
    body["contents"] = merge_roles(_rendered(request, provider), "parts", _text)
    config: dict[str, Any] = {} if request.max_tokens is None else {"maxOutputTokens": request.max_tokens}
    if thinking := _thinking(request.model, request.thinking):
        config["thinkingConfig"] = {"includeThoughts": True, **thinking}
    if config:
        body["generationConfig"] = config
    return as_json(body)


def _tool(spec: ToolSpec) -> dict[str, Any]:
    schema = to_google_schema(spec.parameters)
    # A tool without parameters has no schema: an object without properties is refused.
    parameters = {"parameters": schema} if schema.get("properties") else {}
    return {"name": spec.name, "description": spec.description, **parameters}


def _thinking(model: str, level: str) -> dict[str, Any]:
    if _BUDGETED.search(model) and level in BUDGETS:
        return {"thinkingBudget": BUDGETS[level]}
    if _LEVELLED.search(model) and level in LEVELS:
        wanted = LEVELS[level]
        return {"thinkingLevel": "high" if wanted == "medium" and _LOW_OR_HIGH.search(model) else wanted}
    return {}


def _rendered(request: ModelRequest, provider: str) -> Iterator[tuple[str, list[Json]]]:
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


def _user(message: UserMessage) -> list[Json]:
    content = user_content(message)
    if isinstance(content, str):
        return [_text(content or NOTHING_SAID)]
    return [_picture(block) if isinstance(block, Image) else _text(block.text) for block in content]


def _text(text: str) -> Json:
    return {"text": text}


def _picture(image: Image) -> Json:
    return {"inlineData": {"mimeType": image.mime_type, "data": image.data}}


def _assistant(message: AssistantMessage, ids: CallIds, *, own: bool, signs: bool) -> list[Json]:
    parts: list[Json] = []
    first_call = True
    for block in message.content:
        if isinstance(block, ToolCall):
            signature = block.thought_signature if own else None
            stand_in = UNSIGNED if signs and first_call else None  # only the first of parallel calls is signed
            call = {"id": ids.of_call(block.id), "name": tool_name(block.name), "args": block.arguments}
            parts.append(_signed({"functionCall": call}, signature or stand_in))
            first_call = False
        elif isinstance(block, Text):
            signature = block.text_signature if own else None
            if block.text or signature:
                parts.append(_signed(_text(block.text), signature))
        elif own and is_whole(block):
            parts.append(_signed({"text": block.thinking, "thought": True}, block.thinking_signature))
    return parts


def _signed(part: Json, signature: str | None) -> Json:
    return {**part, "thoughtSignature": signature} if signature else part


def _result(result: ToolResult, ids: CallIds, *, pictures: bool) -> Json:
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


class GoogleProvider(WireProvider):
    """The base URL may be given with or without its version."""

    wire = WIRE
    family, family_window = ("gemini", "models/gemini"), 1_048_576
    key_header, key_prefix = "x-goog-api-key", ""

    def post(self, request: ModelRequest) -> Post:
        version = "" if self.address.path.strip("/") else "/v1beta"
        model = quote(request.model.removeprefix("models/"), safe="")
        path = f"{version}/models/{model}:streamGenerateContent?alt=sse"
        return Post(path, to_google(request, provider=self.name), GoogleReply)
