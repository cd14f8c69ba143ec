"""`@operation`: one annotated async function is the operation, its schema, the WebSocket method and the plain command.

    @operation("sessions.rename", scope="write")
    async def rename(services: House, session: SessionRef, name: Annotated[str, "what people will see"]) -> SessionInfo:
        "Give a session a name."

The parameters behind the first are those of the operation; the parameters' record and the checks are made from the
signature, and are camelCase on the wire. A record that is handed on as a whole may be the only parameter. A function
that gives an AsyncIterator is a feed. What the command line makes of it is in cli/derived.py.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, Protocol, overload

import msgspec
from msgspec import Meta, Struct

from palinurus.operations.scopes import Scope
from palinurus.operations.table import Feed, Operation, R


class Positional:
    """Beside a parameter with a default: the command line takes it as an argument and not as an option."""


class Private:
    """Beside a parameter: programs may set it, the command line does not offer it."""


class Metavar(Struct, frozen=True):
    """Beside a parameter: what help and messages of the command line call its value."""

    word: str


class Decorator(Protocol):
    @overload
    def __call__(self, function: Callable[..., AsyncIterator[R]], /) -> Feed[Any, R]: ...

    @overload
    def __call__(self, function: Callable[..., Awaitable[R]], /) -> Operation[Any, R]: ...


def operation(name: str, *, scope: Scope, local: bool = False) -> Decorator:
    """Make the function below an Operation, or a Feed when it gives an AsyncIterator.

    The types in its signature must be global names of its module.
    """

    def make(function: Callable[..., Any], /) -> Any:
        hints = typing.get_type_hints(function, include_extras=True)
        record = _record_type(function, hints)
        params = record or _params_type(name, function, hints)
        fields = params.__struct_fields__

        def spread(services: Any, sent: Struct) -> Any:
            return function(services, **{field: getattr(sent, field) for field in fields})

        handler = function if record else spread

        result = hints["return"]
        if typing.get_origin(result) is AsyncIterator:
            return Feed(name, params, typing.get_args(result)[0], scope, handler, local, function)
        return Operation(name, params, result, scope, handler, local, function)

    return make


def _record_type(function: Callable[..., Any], hints: dict[str, Any]) -> type[Struct] | None:
    """That of the only parameter, when it is a whole record."""
    names = list(inspect.signature(function).parameters)[1:]
    kind = hints[names[0]] if len(names) == 1 else None
    return kind if isinstance(kind, type) and issubclass(kind, Struct) else None


def _params_type(name: str, function: Callable[..., Any], hints: dict[str, Any]) -> type[Struct]:
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        kind = _described(hints[parameter.name])
        has_default = parameter.default is not inspect.Parameter.empty
        fields.append((parameter.name, kind, parameter.default) if has_default else (parameter.name, kind))
    title = "".join(word.title() for part in name.split(".") for word in part.split("_"))
    return msgspec.defstruct(f"{title}Params", fields, rename="camel", frozen=True, module=function.__module__)


def _described(hint: Any) -> Any:
    """With a plain string beside a type as its description; what only the command line reads stays out."""
    if typing.get_origin(hint) is not Annotated:
        return hint
    kind, *notes = typing.get_args(hint)
    for note in notes:
        if isinstance(note, str):
            kind = Annotated[kind, Meta(description=note)]
        elif isinstance(note, Meta):
            kind = Annotated[kind, note]
    return kind
