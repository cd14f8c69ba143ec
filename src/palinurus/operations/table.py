"""The table of operations: everything that a surface can call, typed once.

An operation is a name, the types of its parameters and its result, the scope that a caller needs, and the handler.
Shell, unix socket, gateway and MCP server call the same rows. Rows are made by `@operation` (operation.py).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest, UnknownOperation
from palinurus.operations.scopes import LOCAL, Caller, Scope
from palinurus.operations.services import Services

P = TypeVar("P", bound=Struct)
R = TypeVar("R")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


class McpTool(Struct, frozen=True):
    """An operation as other agents are offered it by MCP: opt-in, with fewer and narrower arguments.

    An argument is a name, a type with what a model is told about it beside it, and a default unless it is needed. What
    of a result is shown, and an argument that is no parameter of the operation, is the business of the extension mcp.
    """

    name: str
    about: str
    arguments: tuple[Any, ...]
    repeatable: bool = True  # whether doing it twice is doing it once
    destructive: bool = False
    approving: bool = False  # only where the owner has said that approvals may be answered by others
    private: bool = False  # not for guests


def mcp_tool(name: str, about: str, *arguments: tuple[str, Any] | tuple[str, Any, Any], **flags: bool) -> McpTool:
    return McpTool(name, about, arguments, **flags)


class OperationDeclaration(Struct, Generic[P, R], frozen=True):
    name: str
    params: type[P]
    result: Any  # a type or a union of types, as msgspec takes them
    scope: Scope
    handler: Callable[..., Any]  # (services, params, caller, idempotency key)
    function: Callable[..., Any]  # the one below `@operation`
    local: bool = False  # only on the unix socket of the home, not in the gateway
    needs_home: bool = True  # False: it needs only `services.home` and `services.env`, so a shell runs it by itself


class Operation(OperationDeclaration[P, R], frozen=True):
    """One request, one result."""

    repeatable: bool = False  # doing it again under the same idempotency key is harmless and useful
    mcp: McpTool | None = None
    blocks: bool = False  # a plain function, which is run in a thread

    def run(self, services: Services, params: P, caller: Caller = LOCAL, idempotency_key: str = "") -> Awaitable[R]:
        """Run it in this process. The same key again is the same request again."""
        if self.blocks:
            import asyncio  # loaded already by whoever awaits

            return asyncio.to_thread(self.handler, services, params, caller, idempotency_key)
        result: Awaitable[R] = self.handler(services, params, caller, idempotency_key)
        return result

    def __call__(
        self, services: Services, caller: Caller = LOCAL, idempotency_key: str = "", **values: Any
    ) -> Awaitable[R]:
        """Run it in this process with these parameters."""
        return self.run(services, self.params(**values), caller, idempotency_key)


class Feed(OperationDeclaration[P, R], frozen=True):
    """One request, a stream of results."""

    def run(self, services: Services, params: P, caller: Caller = LOCAL) -> AsyncIterator[R]:
        items: AsyncIterator[R] = self.handler(services, params, caller)
        return items


Row = Operation[Any, Any] | Feed[Any, Any]


class OperationClient(Protocol):
    """Calls operations: in this process, or in the one that holds the home.

    Raises what the handler raises, and HolderLost when the process that was called has ended.
    """

    async def call(self, operation: Operation[P, R], params: P, idempotency_key: str = "") -> R:
        """The same key again is the same request again: when the holder dies, the next one is called with it."""

    def follow(self, feed: Feed[P, R], params: P) -> AsyncIterator[R]: ...


class Table:
    """Operations and feeds by name. A family (the first word of a name) is imported when one of it is called."""

    def __init__(self, rows: Iterable[Row] = (), families: Mapping[str, Sequence[str]] | None = None) -> None:
        """`families` names the modules that hold each."""
        self._rows = {row.name: row for row in rows}
        self._families = dict(families or {})

    def __iter__(self) -> Iterator[Row]:
        for family in tuple(self._families):
            self._load(family)
        return iter(tuple(self._rows.values()))

    def loaded(self) -> tuple[list[Row], list[str]]:
        """All rows but those of extensions that can wait, and the names of these."""
        return list(self), []

    def get(self, name: str) -> Row:
        if name not in self._rows:
            self._load(name.partition(".")[0])
        try:
            return self._rows[name]
        except KeyError:
            raise UnknownOperation(
                f"there is no operation {name!r}", hint="is the other pal of another release?"
            ) from None

    def _load(self, family: str) -> None:
        for module in self._families.pop(family, ()):
            self._rows |= {row.name: row for row in operations_in(module)}


def operations_in(module: str) -> list[Row]:
    """What the module makes by `@operation`, in its order; what it imports from others is theirs."""
    found = vars(import_module(module)).values()
    return [each for each in found if isinstance(each, (Operation, Feed)) and each.function.__module__ == module]


class LocalCaller:
    """Runs operations in this process."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def call(self, operation: Operation[P, R], params: P, idempotency_key: str = "") -> R:
        return await operation.run(self._services, params, LOCAL, idempotency_key)

    def follow(self, feed: Feed[P, R], params: P) -> AsyncIterator[R]:
        return feed.run(self._services, params)


def read_params(row: Row, raw: msgspec.Raw | bytes) -> Any:
    """Parameters as they came over a border, checked. Raises BadRequest."""
    try:
        return msgspec.json.decode(raw, type=row.params)
    except msgspec.DecodeError as error:
        raise bad_params(row.name, row.params, error) from None


def bad_params(name: str, params: type[Struct], error: Exception) -> BadRequest:
    """What is wrong with the parameters that somebody sent, in one line."""
    unknown = _UNKNOWN.fullmatch(str(error))
    if unknown is None:
        return BadRequest(f"{name}: {error}")
    import difflib  # for mistakes only

    known = params.__struct_encode_fields__
    near = difflib.get_close_matches(unknown[1], known, n=1)
    taken = f"it takes {', '.join(known)}" if known else "it takes none"
    return BadRequest(
        f"{name}: there is no parameter {unknown[1][:80]!r}", hint=f"did you mean {near[0]}?" if near else taken
    )
