"""The methods of the WebSocket: a name, typed parameters, the scope that a caller needs, and a handler.

Every operation is a method under its own name. Methods in OpenClaw's shape (gateway/openclaw) use the same operations:
an `alias` where only names differ, else a function with `@method`. The table is published as JSON Schema, made from the
types that parse the frames.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.clock import NewId
from palinurus.domain.errors import UnknownOperation
from palinurus.gateway.auth.guard import Guard, Principal
from palinurus.gateway.hub import Hub, Listener
from palinurus.gateway.protocol import NOTHING
from palinurus.operations.operation import bind
from palinurus.operations.scopes import Scope
from palinurus.operations.services import Services
from palinurus.operations.table import Feed, Operation, Table, bad_params


class Endpoints(Struct, frozen=True):
    """Which HTTP endpoints are served, and which tools /tools/invoke offers in addition to its own list, or not."""

    chat_completions: bool = True
    responses: bool = True
    messages: bool = True
    invoke_allow: tuple[str, ...] = ()
    invoke_deny: tuple[str, ...] = ()


class GatewayContext(Struct, frozen=True):
    """What every route and method of the gateway works with."""

    services: Services
    guard: Guard
    hub: Hub
    new_id: NewId
    endpoints: Endpoints = Endpoints()
    started_at: int = 0
    on_close: list[Callable[[], Awaitable[None]]] = []  # called before the gateway stops listening


class ClientSession(Struct, frozen=True):
    """One connected client, as a method sees its caller."""

    gateway: GatewayContext
    principal: Principal
    listener: Listener

    @property
    def services(self) -> Services:
        return self.gateway.services


class Method(Struct, frozen=True):
    """Answered by one response; a `feed` is answered by events `feed` until the response ends it."""

    name: str
    params: type[Struct]
    result: Any
    scope: Scope
    handler: Callable[[ClientSession, Any, str], Awaitable[Any] | AsyncIterator[Any]]  # client, params, idempotency key
    feed: bool = False
    about: str = ""
    repeatable: bool = False  # running it again under the same idempotency key is harmless and useful
    final: Callable[[ClientSession, Any], Awaitable[Any]] | None = None  # makes a second answer at the end
    answers_first: bool = False  # its answer is sent before the events that it causes

    @property
    def replayed(self) -> bool:
        """Whether a repeated request with the same idempotency key gets the first answer again."""
        return self.scope != "read" and not self.feed and not self.repeatable


def method(
    name: str,
    *,
    scope: Scope,
    repeatable: bool = False,
    final: Callable[[ClientSession, Any], Awaitable[Any]] | None = None,
    answers_first: bool = False,
) -> Callable[[Callable[..., Awaitable[Any]]], Method]:
    """Make the function below a method, as `@operation` does, for what needs the client: its events, its scopes.

    Its first parameter is the ClientSession. Unknown parameters are ignored: OpenClaw's clients send more.
    """

    def make(function: Callable[..., Awaitable[Any]]) -> Method:
        params, result, call = bind(name, function, strict=False)
        about = (function.__doc__ or "").strip()

        def run(client: ClientSession, sent: Any, key: str) -> Any:
            return call(client, sent, client.principal.caller, key)

        return Method(name, params, result, scope, run, False, about, repeatable, final, answers_first)

    return make


def method_of(row: Operation[Any, Any] | Feed[Any, Any]) -> Method:
    """An operation as a method, under its own name."""

    def run(client: ClientSession, params: Any, key: str) -> Awaitable[Any] | AsyncIterator[Any]:
        if isinstance(row, Feed):
            return row.run(client.services, params, client.principal.caller)
        return row.run(client.services, params, client.principal.caller, key)

    about = (row.function.__doc__ or "").partition("\n\n")[0]
    feed = isinstance(row, Feed)
    repeatable = isinstance(row, Operation) and row.repeatable
    return Method(row.name, row.params, row.result, row.scope, run, feed, about, repeatable)


def alias(
    name: str,
    target: Method,
    params: str = "",
    *,
    result: Any = None,
    shape: Callable[[ClientSession, Any], Awaitable[Any]] | None = None,
    about: str = "",
) -> Method:
    """A method under another name of OpenClaw's.

    `params` lists its parameters, with `theirs=ours` where the names differ and `!` behind a required one; empty: all.
    `shape` turns the result of the target into `result`.
    """
    fields = {field.name: field for field in msgspec.structs.fields(target.params)}
    needed = {word.rstrip("!").partition("=")[0] for word in params.split() if word.endswith("!")}
    named = [word.rstrip("!").partition("=") for word in params.split() or fields]
    ours = {theirs: found or theirs for theirs, _, found in named}
    kind = msgspec.defstruct(
        f"{''.join(word.title() for word in name.split('.'))}Params",
        [_renamed(theirs, fields[found], required=theirs in needed) for theirs, found in ours.items()],
        rename="camel",
        frozen=True,
        kw_only=True,
        module=__name__,
    )

    async def run(client: ClientSession, sent: Any, key: str) -> Any:
        found = target.handler(client, target.params(**{ours[each]: getattr(sent, each) for each in ours}), key)
        assert isinstance(found, Awaitable)  # noqa: S101  # a feed has no alias
        return await shape(client, await found) if shape is not None else await found

    about = about or f"The same as {target.name}."
    made = Method(name, kind, result or target.result, target.scope, run, about=about, repeatable=target.repeatable)
    return msgspec.structs.replace(made, answers_first=target.answers_first)


def _renamed(name: str, field: msgspec.structs.FieldInfo, *, required: bool) -> tuple[str, Any] | tuple[str, Any, Any]:
    if required or field.required:
        return name, field.type
    made = field.default_factory
    default = field.default if made is msgspec.NODEFAULT else msgspec.field(default_factory=made)
    return name, field.type, default


class Methods:
    """By name. A method in OpenClaw's shape replaces an operation of the same name."""

    def __init__(self, own: Iterable[Method], operations: Table) -> None:
        known, waiting = operations.loaded()
        rows = {row.name: method_of(row) for row in known if not row.local}
        rows |= {method.name: method for method in own}
        self._table = operations
        self._rows = rows
        self._waiting = {*waiting} - rows.keys()  # operations of extensions are loaded on first use

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({*self._rows, *self._waiting}))

    def all(self) -> tuple[Method, ...]:
        return tuple(method for name in self.names if (method := self.find(name)) is not None)

    def find(self, name: str) -> Method | None:
        if name in self._waiting:
            self._waiting.discard(name)
            row = self._table.get(name)
            if not row.local:
                self._rows[name] = method_of(row)
        return self._rows.get(name)

    def get(self, name: str) -> Method:
        if (found := self.find(name)) is None:
            raise UnknownOperation(f"there is no method {name[:80]!r}", hint="/schema lists them")
        return found

    def params(self, method: Method, raw: msgspec.Raw) -> Any:
        """The checked parameters of a frame. Raises BadRequest."""
        try:
            return msgspec.json.decode(NOTHING if bytes(raw) == b"null" else raw, type=method.params)
        except (msgspec.DecodeError, RecursionError) as error:
            raise bad_params(method.name, method.params, error) from None

    def schema(self, frames: Sequence[Any] = ()) -> dict[str, Any]:
        """JSON Schema of every method's parameters and result, and of the frames."""
        kinds: list[Any] = [kind for method in self.all() for kind in (method.params, method.result)]
        shapes, components = msgspec.json.schema_components([*kinds, *frames], ref_template="#/$defs/{name}")
        methods = {
            method.name: {
                "scope": method.scope,
                "feed": method.feed,
                "params": shapes[2 * index],
                "result": shapes[2 * index + 1],
                **({"description": method.about} if method.about else {}),
            }
            for index, method in enumerate(self.all())
        }
        named = {kind.__name__: shape for kind, shape in zip(frames, shapes[len(kinds) :], strict=True)}
        return {"methods": methods, "frames": named, "$defs": components}
