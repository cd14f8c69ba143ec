"""What a credential may be good for. `admin` is everything, `write` includes `read`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

Scope = Literal["read", "write", "admin", "approvals"]

SCOPES: tuple[Scope, ...] = ("read", "write", "approvals", "admin")


def widened(scopes: Iterable[Scope]) -> tuple[Scope, ...]:
    """The scopes and all that they include, in their order."""
    named = set(scopes)
    if "admin" in named:
        return SCOPES
    if "write" in named:
        named.add("read")
    return tuple(scope for scope in SCOPES if scope in named)
