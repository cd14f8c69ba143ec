"""The form that a request wants its reply to have: JSON, perhaps of a schema.

The model is told so in words, and forced where its wire can do that. Either way the reply is checked before the client
gets it, so it is never sent in pieces. Of a schema is checked what OpenAI's strict schemas may contain: no patterns, no
formats, no ranges.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from palinurus.domain.errors import BadRequest
from palinurus.domain.messages import ReplyFormat
from palinurus.extensions.openai_api.client_tools import MAX_DEPTH, is_deep
from palinurus.extensions.openai_api.errors import ApiError

MOST_STEPS = 20_000  # of one check: choices in a schema that refers to itself multiply
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "number": (int, float),
    "integer": int,
}  # fmt: skip


def read_format(form: Mapping[str, Any] | None) -> ReplyFormat | None:
    """Of `response_format`, of `text.format` and of Anthropic's `output_config.format`. Raises BadRequest."""
    kind = (form or {}).get("type")
    if form is None or kind in (None, "text"):
        return None
    if kind == "json_object":
        return ReplyFormat()
    if kind != "json_schema":
        raise BadRequest(f"replies of the type {str(kind)[:40]!r} are not supported", hint="json_object, json_schema")
    inner = form.get("json_schema")
    wrapper = inner if isinstance(inner, dict) else form
    schema, name = wrapper.get("schema"), str(wrapper.get("name") or "reply")
    if not isinstance(schema, dict) or is_deep(schema):
        raise BadRequest(f"json_schema has no schema, or one that is nested more than {MAX_DEPTH} deep")
    if not _NAME.fullmatch(name):
        raise BadRequest(f"not a name of a schema: {name[:80]!r}", hint="up to 64 letters, digits, - and _")
    return ReplyFormat(schema, name, bool(wrapper.get("strict")))


def describe_format(form: ReplyFormat | None) -> str:
    """For models that cannot be forced."""
    if form is None:
        return ""
    if form.schema is None:
        return "Answer with one JSON object and nothing else."
    schema = msgspec.json.encode(form.schema).decode()
    return f"Answer with one JSON value and nothing else. It must match this JSON Schema:\n{schema}"


def read_formed_reply(form: ReplyFormat, text: str) -> str:
    """The JSON of a reply, without the fence that models like to put around it. Raises ApiError."""
    text = text.strip()
    fenced = _FENCED.fullmatch(text)
    text = fenced[1].strip() if fenced else text
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise _refused("it is not JSON") from None
    schema = {"type": "object"} if form.schema is None else form.schema
    try:
        problem = next(SchemaCheck(schema).problems(value, schema, "$"), "")
    except (TypeError, AttributeError):  # a keyword has a value that it cannot have
        raise ApiError(400, "json_schema is not a JSON Schema", param="response_format") from None
    if problem:
        raise _refused(problem)
    return text


def _refused(why: str) -> ApiError:
    message = f"the model's reply does not have the requested format: {why}"
    return ApiError(502, message, code="invalid_reply_format", retry=False)


class SchemaCheck:
    """Checks one value. A check that takes too many steps ends without a problem."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._steps = 0

    def problems(self, value: Any, schema: Any, where: str, depth: int = 0) -> Iterator[str]:
        """What does not match, the first first."""
        self._steps += 1
        if not isinstance(schema, dict) or self._steps > MOST_STEPS or depth > MAX_DEPTH:
            return
        self._steps += sum(len(each) for each in schema.values() if isinstance(each, list)) // 100
        yield from _own_problems(value, schema, where)
        if isinstance(target := schema.get("$ref"), str):
            yield from self.problems(value, self._referred(target), where, depth + 1)
        for options in (schema.get("anyOf"), schema.get("oneOf")):
            if options and all(any(self.problems(value, option, where, depth + 1)) for option in options):
                yield f"{where} matches none of the choices"
        for part in schema.get("allOf") or ():
            yield from self.problems(value, part, where, depth + 1)
        if isinstance(value, dict):
            yield from self._members(value, schema, where, depth + 1)
        elif isinstance(value, list):
            for at, item in enumerate(value):
                yield from self.problems(item, schema.get("items"), f"{where}[{at}]", depth + 1)

    def _members(self, value: dict[str, Any], schema: dict[str, Any], where: str, depth: int) -> Iterator[str]:
        known, others = schema.get("properties") or {}, schema.get("additionalProperties")
        yield from (f"{where}.{name} is missing" for name in schema.get("required") or () if name not in value)
        for name, item in value.items():
            if name not in known and others is False:
                yield f"{where}.{name[:80]} is not in the schema"
            yield from self.problems(item, known.get(name, others), f"{where}.{name[:80]}", depth)

    def _referred(self, target: str) -> Any:
        found: Any = self._root
        for part in target.removeprefix("#").split("/")[1:]:
            found = found.get(part) if isinstance(found, dict) else None
        return found


def _own_problems(value: Any, schema: dict[str, Any], where: str) -> Iterator[str]:
    kinds = schema.get("type")
    if kinds and not any(_is_kind(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        yield f"{where} is not {kinds}"
    if "const" in schema and value != schema["const"]:
        yield f"{where} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where} is none of {schema['enum']!r}"


def _is_kind(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return kind not in _TYPES or isinstance(value, _TYPES[kind])
