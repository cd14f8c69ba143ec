"""Settings of a plugin, checked by the JSON Schema of its manifest.

The manifest is somebody else's, so only keywords whose work is linear in the settings are understood; a schema with
another one is refused with its name, and one that never ends is cut off.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

from palinurus.domain.errors import BadRequest

MOST_STEPS = 10_000
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "object": (dict,),
    "array": (list,), "null": (type(None),),
}  # fmt: skip
_KNOWN = frozenset({
    "type", "properties", "required", "additionalProperties", "items", "enum", "const", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems", "anyOf", "oneOf", "allOf",
    "$ref", "$defs", "definitions", "title", "description", "default", "examples", "format", "$schema", "$id",
    "$comment", "deprecated", "readOnly",
})  # fmt: skip
_BOUNDS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "minimum": (operator.ge, "is less than"),
    "maximum": (operator.le, "is more than"),
    "exclusiveMinimum": (operator.gt, "is not more than"),
    "exclusiveMaximum": (operator.lt, "is not less than"),
}
_SIZES: dict[str, tuple[type[str | list[Any]], Callable[[int, int], bool], str]] = {
    "minLength": (str, operator.ge, "is shorter than"),
    "maxLength": (str, operator.le, "is longer than"),
    "minItems": (list, operator.ge, "has fewer items than"),
    "maxItems": (list, operator.le, "has more items than"),
}


def check_settings(schema: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """What is wrong with the settings, a line each. Raises BadRequest for a schema that cannot be used; its shape was
    checked when it was read."""
    return list(_Checker(schema).check(schema, settings, ""))


def with_defaults(schema: Any, settings: Any, depth: int = 0) -> Any:
    """The settings, and the defaults of what they do not say."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not isinstance(settings, dict) or depth > 20:
        return settings
    filled = dict(settings)
    for key, part in properties.items():
        if key in filled:
            filled[key] = with_defaults(part, filled[key], depth + 1)
        elif isinstance(part, dict) and "default" in part:
            filled[key] = part["default"]
    return filled


class _Checker:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._steps = 0

    def check(self, schema: Any, value: Any, where: str, depth: int = 0) -> Iterator[str]:
        if isinstance(schema, dict):
            self._steps += len(schema) + sum(len(each) for each in schema.values() if isinstance(each, list))
        self._steps += 1
        if self._steps > MOST_STEPS or depth > 50:
            raise BadRequest("its configSchema is too large or never ends")
        if schema is False:
            yield f"{where or 'it'} is not allowed"
        if isinstance(schema, bool):
            return
        _refuse_unknown(schema)
        if "$ref" in schema:
            yield from self.check(self._found(schema["$ref"]), value, where, depth + 1)
        yield from self._check_several(schema, value, where, depth)
        if (wrong := _wrong(schema, value)) is not None:
            yield f"{where or 'it'} {wrong}"
        elif isinstance(value, dict):
            yield from self._check_object(schema, value, where, depth)
        elif isinstance(value, list) and "items" in schema:
            for number, each in enumerate(value):
                yield from self.check(schema["items"], each, f"{where}[{number}]", depth + 1)

    def _check_several(self, schema: dict[str, Any], value: Any, where: str, depth: int) -> Iterator[str]:
        for each in schema.get("allOf", ()):
            yield from self.check(each, value, where, depth + 1)
        for several in ("anyOf", "oneOf"):
            fits = [not list(self.check(each, value, where, depth + 1)) for each in schema.get(several, ())]
            if fits and (fits.count(True) != 1 if several == "oneOf" else not any(fits)):
                yield f"{where or 'it'} is none of what is allowed"

    def _check_object(self, schema: dict[str, Any], value: dict[str, Any], where: str, depth: int) -> Iterator[str]:
        properties = schema.get("properties", {})
        for key in schema.get("required", ()):
            if key not in value:
                yield f"{_at(where, key)} is missing"
        for key, each in value.items():
            if key in properties:
                yield from self.check(properties[key], each, _at(where, key), depth + 1)
            else:
                more = schema.get("additionalProperties", True)
                if more is False:
                    yield f"{_at(where, key)} is unknown"
                else:
                    yield from self.check(more, each, _at(where, key), depth + 1)

    def _found(self, ref: Any) -> Any:
        if not isinstance(ref, str) or not ref.startswith("#/"):
            raise BadRequest(f"its configSchema refers to {str(ref)[:80]!r}, which is not in it")
        found: Any = self._root
        for step in ref[2:].split("/"):
            found = found.get(step) if isinstance(found, dict) else None
        if found is None:
            raise BadRequest(f"its configSchema refers to {ref[:80]!r}, which is not in it")
        return found


def _refuse_unknown(schema: Any) -> None:
    if unknown := sorted(key for key in schema if key not in _KNOWN and not key.startswith("x-")):
        raise BadRequest(f"its configSchema uses {unknown[0]!r}, which is not supported")


def _at(where: str, key: str) -> str:
    return f"{where}.{key[:80]}" if where else key[:80]


def _wrong(schema: dict[str, Any], value: Any) -> str | None:
    said = schema.get("type")
    kinds = [said] if isinstance(said, str) else said or []
    if kinds and not any(_is(kind, value) for kind in kinds):
        return f"is not {' or '.join(map(str, kinds))}"
    if "const" in schema and value != schema["const"]:
        return f"is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        return f"is none of {', '.join(map(str, schema['enum'][:20]))}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        for key, (fits, told) in _BOUNDS.items():
            if isinstance(bound := schema.get(key), int | float) and not fits(value, bound):
                return f"{told} {bound}"
    for key, (kind, holds, told) in _SIZES.items():
        if isinstance(value, kind) and isinstance(bound := schema.get(key), int) and not holds(len(value), bound):
            return f"{told} {bound}"
    return None


def _is(kind: Any, value: Any) -> bool:
    if isinstance(value, bool):
        return bool(kind == "boolean")
    return isinstance(value, _TYPES.get(kind, ()))
