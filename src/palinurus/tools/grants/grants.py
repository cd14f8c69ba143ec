"""Grants: what a person has allowed for longer than once.

A grant names one program (where it was found and what is really there) and a pattern for each of its arguments.
Whatever a pattern does not name asks again. The rules are in `covers`; how a pattern reads is in patterns.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from palinurus.domain.plan import Invocation
from palinurus.tools.grants.patterns import Patterns, escape, is_literal, matches, matches_all, shown, unescape

EXEC = "exec"
Scope = Literal["session", "agent", "home"]


class Grant(Struct, frozen=True, rename="camel", omit_defaults=True):
    """`args` are patterns, one for each argument; the rules stand in `covers`."""

    id: str
    tool: str  # exec, or the name of another tool
    scope: Scope
    agent: str = ""
    session_key: str = ""
    binary: str = ""
    resolved: str = ""
    args: Patterns = ()
    created_at: int = 0
    expires_at: int | None = None
    created_by: str = ""
    source: Literal["approval", "config", "import"] = "approval"
    revoked_at: int | None = None
    last_used_at: int | None = None
    last_used_command: str = ""


class GrantDraft(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a grant would say, before anybody has given it."""

    tool: str = EXEC
    binary: str = ""
    resolved: str = ""
    args: Patterns = ()


class GrantStore(Protocol):
    async def add(self, grant: Grant) -> None: ...

    async def active(self, *, agent: str, session_key: str, now: int) -> list[Grant]:
        """Those that hold in this session now: neither revoked nor expired."""

    async def all(self) -> list[Grant]:
        """Newest first, those that no longer hold included."""

    async def revoke(self, grant_id: str, now: int) -> Grant:
        """Raises NotFound."""

    async def used(self, grant_id: str, now: int, command: str) -> None: ...


def covers(grant: Grant | GrantDraft, invocation: Invocation) -> bool:
    """Whether the grant names this very program and all of its arguments, one pattern for each.

    A last pattern `**` stands for any number of further arguments. A grant for a program that was not found covers
    nothing: there is no telling what will stand there later.
    """
    return (
        grant.tool == EXEC
        and bool(grant.binary and grant.resolved)
        and (grant.binary, grant.resolved) == (invocation.binary, invocation.resolved)
        and matches_all(grant.args, invocation.args)
    )


def covers_call(grant: Grant | GrantDraft, tool: str, arguments: Mapping[str, Any]) -> bool:
    """The same for tools other than exec: patterns are `name=value`, sorted, the values JSON.

    `name=*` stands for any value. Inside a text `*` stands for some of it; lists and objects are exact or any.
    """
    if tool == EXEC or grant.tool != tool or len(grant.args) != len(arguments):
        return False
    return all(
        _covers_value(pattern, name, arguments[name])
        for pattern, name in zip(grant.args, sorted(arguments), strict=True)
    )


def holds(grant: Grant, *, agent: str, session_key: str, now: int) -> bool:
    """Whether it is in force in this session at this time."""
    if grant.revoked_at is not None or (grant.expires_at is not None and grant.expires_at <= now):
        return False
    if grant.scope == "session":
        return grant.session_key == session_key
    return grant.scope == "home" or grant.agent == agent


def exactly(invocation: Invocation) -> GrantDraft:
    """The draft that covers this invocation and no other."""
    return GrantDraft(EXEC, invocation.binary, invocation.resolved, tuple(map(escape, invocation.args)))


def exact_call(tool: str, arguments: Mapping[str, Any]) -> GrantDraft:
    return GrantDraft(tool, args=tuple(escape(_argument(name, arguments[name])) for name in sorted(arguments)))


def words(grant: Grant | GrantDraft) -> str:
    """A grant as a person would write it, such as `git diff src/*.py`."""
    name = grant.binary.rpartition("/")[2] if grant.tool == EXEC else grant.tool
    return " ".join((name, *map(shown, grant.args)))


def _covers_value(pattern: str, name: str, value: Any) -> bool:
    if is_literal(pattern):
        return unescape(pattern) == _argument(name, value)
    if not pattern.startswith(f"{name}="):
        return False
    if pattern == f"{name}=*":
        return True
    # In JSON a text ends at its last quote, so a `*` between quotes cannot reach into anything else.
    return isinstance(value, str) and matches(pattern, _argument(name, value))


def _argument(name: str, value: Any) -> str:
    return f"{name}={msgspec.json.encode(value, order='sorted').decode()}"
