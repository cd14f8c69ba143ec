"""Tools made of typed functions, in whichever room they live.

A tool is an async function: its first parameter is the ToolRun, the others are its arguments. What the model is told
comes from the signature, and so does the check of what the model sends:

    @tool("read", "Read a text file.")
    async def read(run: ToolRun, path: Annotated[str, "relative to the workspace"], offset: int = 1) -> ToolOutput: ...

A mistake of the model comes back to it as a result that says what to mend.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from palinurus.domain.tool import MALFORMED, Prepared, Tool, ToolOutput, ToolRun, ToolSpec

ToolFunction = Callable[..., Awaitable[ToolOutput]]
PreparingFunction = Callable[..., Awaitable[Prepared | ToolOutput]]
T = TypeVar("T")


def tool(name: str, description: str) -> Callable[[ToolFunction], Tool]:
    """Make a tool of the function below. Works for closures; the types in the signature must be global names."""

    def make(function: ToolFunction) -> Tool:
        spec, run = _checked(name, description, function)
        return Tool(spec, run)

    return make


def prepared_tool(name: str, description: str) -> Callable[[PreparingFunction], Tool]:
    """The same for a function that looks at a call and does not do it yet.

    Run without a gate, the tool does only what nobody needs to be asked about.
    """

    def make(function: PreparingFunction) -> Tool:
        spec, prepare = _checked(name, description, function)

        async def run(run: ToolRun, sent: Mapping[str, Any]) -> ToolOutput:
            prepared = await prepare(run, sent)
            if isinstance(prepared, ToolOutput):
                return prepared
            try:
                if reason := prepared.refusal or prepared.ask or (run.untrusted and prepared.when_untrusted):
                    return failed(reason)
                return await prepared.run()
            finally:
                prepared.release()

        return Tool(spec, run, prepare)

    return make


def _checked(
    name: str, description: str, function: Callable[..., Awaitable[T]]
) -> tuple[ToolSpec, Callable[[ToolRun, Mapping[str, Any]], Awaitable[T | ToolOutput]]]:
    """What a model is told about a function, and the function behind a check of what the model sends."""
    arguments = _arguments_type(name, function)
    spec = ToolSpec(name, description, _schema(arguments))

    async def call(run: ToolRun, sent: Mapping[str, Any]) -> T | ToolOutput:
        checked = _check(spec, arguments, sent)
        if isinstance(checked, ToolOutput):
            return checked
        return await function(run, **{field: getattr(checked, field) for field in arguments.__struct_fields__})

    return spec, call


def failed(text: str) -> ToolOutput:
    return ToolOutput(text, is_error=True)


def _arguments_type(name: str, function: Callable[..., Any]) -> type[Struct]:
    hints = typing.get_type_hints(function, include_extras=True)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        kind = _described(hints[parameter.name])
        if parameter.default is inspect.Parameter.empty:
            fields.append((parameter.name, kind))
        else:
            fields.append((parameter.name, kind, parameter.default))
    return msgspec.defstruct(name, fields, rename=_told, kw_only=True, frozen=True, forbid_unknown_fields=True)


def _told(name: str) -> str:
    """`from_` is called from: a parameter cannot be."""
    return name.rstrip("_")


def _described(hint: Any) -> Any:
    """A plain string beside a type is its description."""
    if typing.get_origin(hint) is not Annotated:
        return hint
    kind, *notes = typing.get_args(hint)
    for note in notes:
        kind = Annotated[kind, Meta(description=note) if isinstance(note, str) else note]
    return kind


def _schema(arguments: type[Struct]) -> dict[str, Any]:
    """The JSON Schema in one piece, without titles and without what goes without saying.

    Every character of it is sent with every request: that nothing is nothing by default need not be told.
    """
    (schema,), definitions = msgspec.json.schema_components([arguments], ref_template="{name}")
    flat = _inline(schema, definitions)
    flat.setdefault("required", [])
    # Through JSON and back, so that a schema read from a stored epoch equals the one made now: tuples become lists.
    as_stored: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(flat))
    return as_stored


def _inline(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inline(definitions[node["$ref"]], definitions)
    # `title` is dropped where it names a type; under `properties` the same word is somebody's argument.
    return {
        key: {name: _inline(each, definitions) for name, each in value.items()}
        if key == "properties"
        else _inline(value, definitions)
        for key, value in node.items()
        if key != "title" and not (key == "default" and not value) and not (key == "minimum" and value == 0)
    }


def _check(spec: ToolSpec, arguments: type[Struct], sent: Mapping[str, Any]) -> Struct | ToolOutput:
    if MALFORMED in sent:
        raw = str(sent[MALFORMED])
        return failed(f"the arguments of {spec.name} were not JSON: {raw[:200]!r}. {_usage(spec)}")
    known, required = spec.parameters["properties"], spec.parameters["required"]
    # Models send null for what they leave out.
    given = {name: value for name, value in sent.items() if value is not None or name in required}
    if unknown := [name for name in given if name not in known]:
        return failed(f"{spec.name} has no argument {unknown[0][:80]!r}. {_usage(spec)}")
    if lacking := [name for name in required if name not in given]:
        return failed(f"{spec.name} needs the argument {lacking[0]!r}. {_usage(spec)}")
    try:
        return msgspec.convert(given, arguments, strict=False)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        return failed(
            f"{spec.name}: the argument {where.rstrip('`')!r} is wrong: {what[:1].lower()}{what[1:]}. {_usage(spec)}"
        )


def _usage(spec: ToolSpec) -> str:
    required = spec.parameters["required"]
    parts = [
        f"{name} ({about.get('type', 'see schema')}{', required' if name in required else ''})"
        for name, about in spec.parameters["properties"].items()
    ]
    return f"Send one JSON object with: {', '.join(parts)}." if parts else "It takes no arguments: send {}."
