"""What was done: every call of a tool, every decision about one and every result, in a chain that shows tampering.

The chain covers digests only. Arguments and results stand in details beside it, each digest salted with a salt that is
kept and erased together with them: what is erased leaves the chain whole and can no longer be guessed. How the chain
is made and checked stands in chain.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from palinurus.domain.plan import Plan

Kind = Literal["call", "decision", "result", "erase"]
"""erase: a person had the details of earlier rows removed. The log writes it by itself."""


class AuditEvent(Struct, frozen=True, rename="camel"):
    """One thing to be kept. `details` are JSON values, without secrets already."""

    kind: Kind
    at: int  # milliseconds
    run_id: str
    session_key: str
    tool: str
    call_id: str
    outcome: str  # call: started; decision: allowed, denied, ... and by which layer or whom; result: ok, error
    details: dict[str, Any]


class AuditRow(Struct, frozen=True, rename="camel"):
    """A link of the chain. `details` is None when they were erased."""

    seq: int
    at: int
    kind: str
    run_id: str
    session_key: str
    tool: str
    call_id: str
    outcome: str
    digest: str  # of salt and details
    previous: str
    hash: str  # of everything above, the previous link's hash included
    details: dict[str, Any] | None = None


class AuditReport(Struct, frozen=True, rename="camel"):
    """Whether the chain is whole. `head` is the last hash: who keeps it elsewhere can tell when the end is cut off."""

    ok: bool
    rows: int
    erased: int
    head: str
    trouble: str = ""  # the first broken link, and what is wrong with it
    broken: int = 0  # its seq; 0 when no single link is to blame


class PastCommand(Struct, frozen=True, rename="camel"):
    """A command that was asked for before, as grants are tried on it."""

    at: int
    session_key: str
    plan: Plan
    outcome: str
    granted: tuple[str, ...] = ()  # ids of what let it through unasked: grants, and lines of the config


class AuditLog(Protocol):
    """Append-only. Events are kept in the order in which they were handed in."""

    async def record(self, event: AuditEvent) -> None:
        """Keep it. When this returns it is on the disk. Raises StorageError."""

    def note(self, event: AuditEvent) -> None:
        """Keep it with the next write to the store. A failure is raised by the next `record` or `settled`."""

    async def settled(self) -> None:
        """When this returns, everything that was noted is on the disk. Raises StorageError."""

    async def rows(
        self, *, limit: int = 50, session: str = "", run: str = "", tool: str = "", before: int = 0
    ) -> list[AuditRow]:
        """The newest that fit, newest first. `run` may be the beginning of an id; `before` is a seq to page by."""

    async def commands(self, *, agent: str = "", limit: int = 10_000) -> list[PastCommand]:
        """Commands that were asked for, whether they ran or not, newest first.

        Those whose plan was erased or cannot be read are left out.
        """

    async def verify(self, *, expect: str = "") -> AuditReport:
        """Recompute the chain. With `expect` that hash must be in it, or its end was cut off."""

    async def erase(self, seqs: Sequence[int]) -> int:
        """Remove the details of these rows; how many had some. A row of kind `erase` says which, and keeps its own."""
