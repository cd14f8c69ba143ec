"""What a credential may do, and who calls an operation. `admin` is everything, `write` includes `read`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from msgspec import Struct

from palinurus.domain.errors import MissingScope

Scope = Literal["read", "write", "admin", "approvals", "pairing"]

SCOPES: tuple[Scope, ...] = ("read", "write", "approvals", "pairing", "admin")


ConfigCheck = Callable[[Any, Any], None]
"""Is given the data of the config file before and after a change, secrets included, and raises to refuse the change.
Where files are included it is called for the merged data as well."""


def allow_any_change(_: Any, __: Any) -> None:
    """The check for callers on this machine: they may change everything."""


class Caller(Struct, frozen=True):
    """Who calls an operation. The surface sets it; nothing that a client sends does."""

    id: str = "owner"  # of the credential
    surface: str = "local"  # local: a program of the owner's on this machine; else gateway
    scopes: frozenset[Scope] = frozenset(SCOPES)
    check_config: ConfigCheck = allow_any_change  # which changes of the config the surface allows

    @property
    def is_local(self) -> bool:
        return self.surface == "local"

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or "admin" in self.scopes or (scope == "read" and "write" in self.scopes)

    @property
    def held(self) -> tuple[Scope, ...]:
        """The scopes with those that they include."""
        return widened(self.scopes)

    def need(self, scope: Scope, what: str) -> None:
        """Raises MissingScope."""
        if not self.may(scope):
            raise MissingScope(f"{what} needs the scope {scope}", scope=scope)


LOCAL = Caller()


def widened(scopes: Iterable[Scope]) -> tuple[Scope, ...]:
    """The scopes and all that they include, in their order."""
    named = set(scopes)
    if "admin" in named:
        return SCOPES
    if "write" in named:
        named.add("read")
    return tuple(scope for scope in SCOPES if scope in named)
