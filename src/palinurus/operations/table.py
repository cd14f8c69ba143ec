"""The table of operations: what a door can ask for, typed once.

An operation is a name, the types of its parameters and its result, the scope that a caller needs, and the handler
that does it. A door never reaches around it: the shell, the unix socket and later the page call the same rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest, UnknownOperation
from palinurus.operations.house import House
from palinurus.operations.scopes import Scope

P = TypeVar("P", bound=Struct)
R = TypeVar("R")


class Operation(Struct, Generic[P, R], frozen=True):
    """Asked once, answered once."""

    name: str
    params: type[P]
    result: Any  # a type or a union of types, as msgspec takes them
    scope: Scope
    handler: Callable[[House, P], Awaitable[R]]
    local: bool = False  # only for those on the unix socket of the home, never by the gateway
    function: Callable[..., Any] | None = None  # that `@operation` has made it of

    def __call__(self, services: House, **values: Any) -> Awaitable[R]:
        """Do it here, with these parameters."""
        return self.handler(services, self.params(**values))


class Feed(Struct, Generic[P, R], frozen=True):
    """Asked once, answered many times."""

    name: str
    params: type[P]
    result: Any
    scope: Scope
    handler: Callable[[House, P], AsyncIterator[R]]
    local: bool = False  # as above: one that never ends has no answer that a frame could carry
    function: Callable[..., Any] | None = None


class Caller(Protocol):
    """Somebody who can have operations done: in this process, or by the one that holds the home.

    Raises what the handler raises, and HolderLost when the one who was asked went away.
    """

    async def call(self, operation: Operation[P, R], params: P) -> R: ...

    def follow(self, feed: Feed[P, R], params: P) -> AsyncIterator[R]: ...


class Table:
    """Operations and feeds by name."""

    def __init__(self, rows: Iterable[Operation[Any, Any] | Feed[Any, Any]]) -> None:
        self._rows = {row.name: row for row in rows}

    def __iter__(self) -> Any:
        return iter(self._rows.values())

    def get(self, name: str) -> Operation[Any, Any] | Feed[Any, Any]:
        try:
            return self._rows[name]
        except KeyError:
            raise UnknownOperation(
                f"there is no operation {name!r}", hint="is the other pal of another release?"
            ) from None


class LocalCaller:
    """Does operations in this process."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def call(self, operation: Operation[P, R], params: P) -> R:
        return await operation.handler(self._house, params)

    def follow(self, feed: Feed[P, R], params: P) -> AsyncIterator[R]:
        return feed.handler(self._house, params)


def read_params(row: Operation[Any, Any] | Feed[Any, Any], raw: msgspec.Raw | bytes) -> Any:
    """Parameters as they came over a border, checked. Raises BadRequest."""
    try:
        return msgspec.json.decode(raw, type=row.params)
    except msgspec.DecodeError as error:
        raise BadRequest(f"{row.name}: {error}") from None
