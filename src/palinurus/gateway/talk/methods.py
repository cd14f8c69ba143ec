"""The methods of the WebSocket: a name, typed parameters, the scope that a caller needs, and a handler.

Every operation of the house is a method under its own name; beside them stand methods in OpenClaw's shape, which use
the same operations. The table is published as JSON Schema, from the very types that parse the frames.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest, UnknownOperation
from palinurus.gateway.door.access import Principal
from palinurus.gateway.frames.hub import Listener
from palinurus.gateway.frames.protocol import NOTHING, Client
from palinurus.gateway.talk.desk import Desk
from palinurus.operations.scopes import Scope
from palinurus.operations.table import Feed, Operation


class Talk(Struct, frozen=True):
    """One client while it is connected: what a method may know of its caller."""

    desk: Desk
    principal: Principal
    client: Client
    listener: Listener


class Method(Struct, frozen=True):
    """Asked once, answered once; or, when `feed`, answered by events `feed` until the response ends it."""

    name: str
    params: type[Struct]
    result: Any
    scope: Scope
    handler: Callable[[Talk, Any], Awaitable[Any] | AsyncIterator[Any]]
    feed: bool = False
    about: str = ""
    repeatable: bool = False  # doing it again under the same idempotency key is harmless, and has its use
    final: Callable[[Talk, Any], Awaitable[Any]] | None = None  # given the answer: a second one, once all is over

    @property
    def replayed(self) -> bool:
        """Whether a request that comes again under its idempotency key is given the first answer again."""
        return self.scope != "read" and not self.feed and not self.repeatable


class Methods:
    """By name. A method in OpenClaw's shape stands before an operation of the same name."""

    def __init__(self, own: Iterable[Method], operations: Iterable[Operation[Any, Any] | Feed[Any, Any]]) -> None:
        rows = {row.name: _of_operation(row) for row in operations if not row.local}
        rows |= {method.name: method for method in own}
        self._rows = dict(sorted(rows.items()))
        self._decoders = {name: msgspec.json.Decoder(method.params) for name, method in self._rows.items()}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._rows)

    def all(self) -> tuple[Method, ...]:
        return tuple(self._rows.values())

    def find(self, name: str) -> Method | None:
        return self._rows.get(name)

    def get(self, name: str) -> Method:
        try:
            return self._rows[name]
        except KeyError:
            raise UnknownOperation(f"there is no method {name[:80]!r}", hint="/schema lists them") from None

    def params(self, method: Method, raw: msgspec.Raw) -> Any:
        """Parameters as they came in a frame, checked. Raises BadRequest."""
        try:
            return self._decoders[method.name].decode(NOTHING if bytes(raw) == b"null" else raw)
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadRequest(f"{method.name}: {error}") from None

    def schema(self, frames: Sequence[Any] = ()) -> dict[str, Any]:
        """JSON Schema of every method's parameters and result, and of the frames beside them."""
        kinds: list[Any] = [kind for method in self._rows.values() for kind in (method.params, method.result)]
        shapes, components = msgspec.json.schema_components([*kinds, *frames], ref_template="#/$defs/{name}")
        methods = {
            method.name: {
                "scope": method.scope,
                "feed": method.feed,
                "params": shapes[2 * index],
                "result": shapes[2 * index + 1],
                **({"description": method.about} if method.about else {}),
            }
            for index, method in enumerate(self._rows.values())
        }
        named = {kind.__name__: shape for kind, shape in zip(frames, shapes[len(kinds) :], strict=True)}
        return {"methods": methods, "frames": named, "$defs": components}


def _of_operation(row: Operation[Any, Any] | Feed[Any, Any]) -> Method:
    handler = row.handler
    return Method(
        row.name,
        row.params,
        row.result,
        row.scope,
        lambda talk, params: handler(talk.desk.house, params),
        feed=isinstance(row, Feed),
    )
