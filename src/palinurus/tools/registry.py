"""Tools made of typed functions, and the one place where a call meets its tool.

A tool is an async function: its first parameter is the ToolRun, the others are its arguments. What the model is told
comes from the signature, and so does the check of what the model sends:

    @tool("read", "Read a text file.")
    async def read(run: ToolRun, path: Annotated[str, "relative to the workspace"], offset: int = 1) -> ToolOutput: ...

A mistake of the model comes back to it as a result that says what to mend.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from palinurus.domain.errors import ConfigError, PalinurusError
from palinurus.domain.messages import ToolCall
from palinurus.domain.tool import MALFORMED, Prepared, Tool, ToolOutput, ToolRun, ToolSpec
from palinurus.tools.results import Clip, ResultShelf

log = logging.getLogger(__name__)
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
            if reason := prepared.refusal or prepared.ask or (run.untrusted and prepared.when_untrusted):
                return failed(reason)
            return await prepared.run()

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


class Registry:
    """The tools of an agent, by name."""

    def __init__(self, tools: Iterable[Tool] = (), *, shelf: ResultShelf | None = None) -> None:
        self._tools: dict[str, Tool] = {}
        self._shelf = shelf  # where what is cut off can be read
        for each in sorted(tools, key=lambda tool: tool.spec.name):
            if each.spec.name in self._tools:
                raise ConfigError(f"two tools are called {each.spec.name}", hint="rename or remove one of them")
            self._tools[each.spec.name] = each
        self._specs = tuple(each.spec for each in self._tools.values())

    def specs(self) -> tuple[ToolSpec, ...]:
        """Sorted by name, so that the head of a request is the same bytes however the tools were gathered."""
        return self._specs

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def with_tools(self, more: Iterable[Tool]) -> Registry:
        return Registry([*self._tools.values(), *more], shelf=self._shelf)

    def all(self) -> tuple[Tool, ...]:
        return tuple(self._tools.values())

    def unknown(self, name: str) -> str:
        return f"there is no tool called {name[:80]!r}; the tools are: {', '.join(self._tools) or 'none'}"

    async def run(self, run: ToolRun, call: ToolCall) -> ToolOutput:
        """Run one call, whoever may. Raises nothing but cancellation; every failure is a result."""
        found = self.get(call.name)
        if found is None:
            return failed(self.unknown(call.name))
        return await self.execute(run, call, lambda: found.run(run, call.arguments))

    async def execute(self, run: ToolRun, call: ToolCall, work: Callable[[], Awaitable[ToolOutput]]) -> ToolOutput:
        """Do a tool's work and make a result of whatever comes of it. Raises nothing but cancellation."""
        try:
            output = await work()
        except PalinurusError as error:
            output = failed(str(error))
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            output = failed(f"{call.name} gave up: something that it waited for was cancelled")
        except Exception as error:
            # A tool may be anyone's code. Its mistake costs this result, not the turn that asked for it.
            log.exception("the tool %s failed", call.name)
            output = failed(f"{call.name} failed by a mistake of its own: {type(error).__name__}: {error}")
        return await Clip(run, call.name, outside=self._is_outside(call.name), shelf=self._shelf)(output)

    def _is_outside(self, name: str) -> bool:
        found = self.get(name)
        return found is not None and found.outside


def _is_cancelled() -> bool:
    """Whether somebody cancelled this task; a tool may also run into a cancellation of its own making."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _arguments_type(name: str, function: Callable[..., Any]) -> type[Struct]:
    hints = typing.get_type_hints(function, include_extras=True)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        kind = _described(hints[parameter.name])
        if parameter.default is inspect.Parameter.empty:
            fields.append((parameter.name, kind))
        else:
            fields.append((parameter.name, kind, parameter.default))
    return msgspec.defstruct(name, fields, kw_only=True, frozen=True, forbid_unknown_fields=True)


def _described(hint: Any) -> Any:
    """A plain string beside a type is its description."""
    if typing.get_origin(hint) is not Annotated:
        return hint
    kind, *notes = typing.get_args(hint)
    for note in notes:
        kind = Annotated[kind, Meta(description=note) if isinstance(note, str) else note]
    return kind


def _schema(arguments: type[Struct]) -> dict[str, Any]:
    """The JSON Schema in one piece and without titles: every character of it is sent with every request."""
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
        if key != "title"
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
