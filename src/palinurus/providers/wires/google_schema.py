"""JSON Schema cut down to what Gemini takes in a function declaration.

The wire refuses the whole request for one keyword that it does not know, so only known ones pass. What can be said in
other words is: references are written out, constants become enums, exclusive limits inclusive ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]

KEPT = frozenset(
    [
        "type",
        "format",
        "title",
        "description",
        "nullable",
        "enum",
        "items",
        "minItems",
        "maxItems",
        "properties",
        "required",
        "minProperties",
        "maxProperties",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
        "anyOf",
    ]
)
FORMATS = {"string": ("enum", "date-time"), "integer": ("int32", "int64"), "number": ("float", "double")}


def to_google_schema(schema: Mapping[str, Any]) -> Schema:
    """The same schema, as far as the wire can say it. Never raises for JSON."""
    return _Cutter(schema).cut(schema, frozenset())


class _Cutter:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def cut(self, schema: Any, inside: frozenset[str]) -> Schema:
        """`inside`: the references that this part belongs to; one that leads back to itself has no end."""
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
        """Without `$ref` and `allOf`: what they name stands here."""
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
    """Keywords that the wire lacks, in those that it has."""
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
    """Without what contradicts the rest: the wire checks that too."""
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
