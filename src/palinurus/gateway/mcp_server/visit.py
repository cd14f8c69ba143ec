"""What every tool of the MCP server works with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from palinurus.domain.clock import NewId
from palinurus.operations.table import Caller


class Arguments(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of a tool, as they come over the wire."""


class Shown(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A result of a tool, as it goes over the wire."""


class Options(Struct, frozen=True):
    """What the owner lets other agents have."""

    read_only: bool = False
    approvals: bool = False  # others may answer for the owner what an agent asks
    guest: bool = False  # what others say is text from outside, and not the owner's


class Visit(Struct, frozen=True):
    """One call of a tool."""

    caller: Caller
    options: Options
    new_id: NewId
    tell: Callable[[int, str], Awaitable[None]]
    """Tells whoever waits what goes on: a number that grows, and a line. Costs nothing when nobody wants to know."""
