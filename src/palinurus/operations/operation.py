"""`@operation`: one annotated async function is the operation, its schema, the WebSocket method and the plain command.

    @operation("sessions.rename", scope="write")
    async def rename(services: Services, session: SessionRef, name: Annotated[str, "what people see"]) -> Session:
        "Give a session a name."

The parameters after the first are those of the operation; the parameters' record and the checks are made from the
signature, camelCase on the wire. A whole record may be the only parameter. A function that returns an AsyncIterator is
a feed; a plain function blocks and is run in a thread. cli/command.py makes the command.

`caller: Caller` and `idempotency_key: str` are not sent by a client: the surface sets them, one from the credential,
the other from the request. Unknown parameters are refused.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal, Protocol, overload

import msgspec
from msgspec import Meta, Struct

from palinurus.operations.scopes import LOCAL, Caller, Scope
from palinurus.operations.table import Feed, McpTool, Operation, R

SET_BY_SURFACE = ("caller", "idempotency_key")


# What may stand beside a parameter's type, for the command line.


class Positional:
    """It has a default and is an argument all the same, not an option."""


class Private:
    """Programs may set it; the command line does not offer it."""


class Metavar(Struct, frozen=True):
    """What help and messages call its value."""

    word: str


class OptionNames:
    """Its options, where they are not its name."""

    def __init__(self, *options: str) -> None:
        self.options = options


class Completion(Struct, frozen=True):
    """Which names a shell completes it with."""

    of: Literal["sessions", "agents", "channels"]


# Beside a parameter that the client resolves, because only the client has the file, the input or the person.


class LocalPath:
    """A path on the client's machine: the client makes it absolute, and it must exist."""


class FromStdin:
    """`-` reads it from standard input."""


class Secret(Struct, frozen=True):
    """It is asked for without echo, or read as a line of standard input; it is not on the command line."""

    prompt: str


class Decorator(Protocol):
    @overload
    def __call__(self, function: Callable[..., AsyncIterator[R]], /) -> Feed[Any, R]: ...  # type: ignore[overload-overlap]  # a plain function returns anything else

    @overload
    def __call__(self, function: Callable[..., Awaitable[R]], /) -> Operation[Any, R]: ...

    @overload
    def __call__(self, function: Callable[..., R], /) -> Operation[Any, R]: ...


def operation(
    name: str,
    *,
    scope: Scope,
    local: bool = False,
    strict: bool = True,
    repeatable: bool = False,
    mcp: McpTool | None = None,
    needs_home: bool = True,
) -> Decorator:
    """Make the function below an Operation, or a Feed when it returns an AsyncIterator.

    The types in its signature must be global names of its module. `strict`: unknown parameters are refused; those in
    OpenClaw's shape accept what its clients send. `mcp`: MCP clients may call it. The others: see Operation.
    """

    def make(function: Callable[..., Any], /) -> Any:
        params, result, handler = bind(name, function, strict=strict)
        if typing.get_origin(result) is AsyncIterator:
            return Feed(name, params, typing.get_args(result)[0], scope, handler, function, local, needs_home)
        blocks = not inspect.iscoroutinefunction(function)
        return Operation(name, params, result, scope, handler, function, local, needs_home, repeatable, mcp, blocks)

    return make


def bind(name: str, function: Callable[..., Any], *, strict: bool) -> tuple[type[Struct], Any, Callable[..., Any]]:
    """The record of a function's parameters after the first, the type of its result, and the function that calls it:
    `handler(first, params, caller, idempotency_key)`."""
    hints = typing.get_type_hints(function, include_extras=True)
    parameters = list(inspect.signature(function).parameters.values())[1:]
    given = {each.name for each in parameters} & set(SET_BY_SURFACE)
    sent = [each for each in parameters if each.name not in SET_BY_SURFACE]
    record = _record_type(sent, hints)
    params = record or _params_type(name, function, sent, hints, strict=strict)
    fields = params.__struct_fields__

    def handler(first: Any, params: Struct, caller: Caller = LOCAL, idempotency_key: str = "") -> Any:
        known = {"caller": caller, "idempotency_key": idempotency_key}
        values = {name: known[name] for name in given}
        if record:
            return function(first, params, **values)
        return function(first, **{field: getattr(params, field) for field in fields}, **values)

    return params, hints["return"], handler


def _record_type(sent: Sequence[inspect.Parameter], hints: dict[str, Any]) -> type[Struct] | None:
    """That of the only parameter, when it is a whole record."""
    kind = hints[sent[0].name] if len(sent) == 1 else None
    return kind if isinstance(kind, type) and issubclass(kind, Struct) else None


def _params_type(
    name: str, function: Callable[..., Any], sent: Sequence[inspect.Parameter], hints: dict[str, Any], *, strict: bool
) -> type[Struct]:
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in sent:
        kind = described_type(hints[parameter.name])
        has_default = parameter.default is not inspect.Parameter.empty
        fields.append((parameter.name, kind, parameter.default) if has_default else (parameter.name, kind))
    title = "".join(word.title() for part in name.split(".") for word in part.split("_"))
    hidden = any(isinstance(note, Secret) for each in sent for note in getattr(hints[each.name], "__metadata__", ()))
    return msgspec.defstruct(
        f"{title}Params",
        fields,
        rename="camel",
        frozen=True,
        namespace={"__repr__": lambda _: f"{title}Params(…)"} if hidden else None,  # no traceback holds a secret
        forbid_unknown_fields=strict,
        module=function.__module__,
    )


def described_type(hint: Any) -> Any:
    """The type with a plain string beside it as its description, without what only the command line reads."""
    if typing.get_origin(hint) is not Annotated:
        return hint
    kind, *notes = typing.get_args(hint)
    for note in notes:
        if isinstance(note, str):
            kind = Annotated[kind, Meta(description=note)]
        elif isinstance(note, Meta):
            kind = Annotated[kind, note]
    return kind


SessionRef = Annotated[str, Metavar("KEY|NAME|ID"), Completion("sessions")]

AgentRef = Annotated[str, Metavar("ID"), Completion("agents")]

Position = Annotated[int, Meta(ge=0, le=2**53)]

Days = Annotated[float, Meta(gt=0, le=36_500)]

WholeDays = Annotated[int, Meta(ge=0, le=36_500)]

Seconds = Annotated[float, Meta(ge=0, le=1_000_000)]
