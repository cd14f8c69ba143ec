"""What model calls used and cost: one row for each call, and sums over the rows.

A row is written together with the reply it belongs to and carries the reply's entry id, so writing a reply twice
counts it once. A price that nobody knows is None, never nought: sums say how many calls they leave out.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, tzinfo
from typing import Literal, Protocol

from msgspec import Struct

from palinurus.domain.messages import Usage

By = Literal["agent", "session", "model", "day", "day-model"]
DIMENSIONS: tuple[By, ...] = ("agent", "session", "model", "day", "day-model")


class UsageRow(Struct, frozen=True, rename="camel"):
    """One model call. `cost` in US dollars."""

    entry_id: str  # of the reply in the transcript
    at: int  # milliseconds
    run_id: str
    session_key: str
    agent: str
    provider: str
    model: str
    usage: Usage
    cost: float | None = None


class UsageTotal(Struct, frozen=True, rename="camel"):
    """The sum over some calls. `cost` is that of the priced ones; `unpriced` says how many are not in it."""

    name: str
    calls: int = 0
    usage: Usage = Usage()
    cost: float = 0.0
    unpriced: int = 0


class UsageLedger(Protocol):
    """Keeps usage rows. When `append` returns, the row is on the disk; a row whose entry is known is not added."""

    async def append(self, row: UsageRow) -> None: ...

    async def totals(
        self, by: By, *, zone: tzinfo, since: int = 0, agent: str = "", session: str = ""
    ) -> list[UsageTotal]:
        """Sums of the calls at or after `since`: days in their order, others with the most tokens first."""


def total_by(rows: Iterable[UsageRow], by: By, zone: tzinfo) -> list[UsageTotal]:
    """The sums, whoever keeps the rows. A day is a day in `zone`."""
    sums: dict[str, UsageTotal] = {}
    for row in rows:
        name = _name(row, by, zone)
        sums[name] = _added(sums.get(name, UsageTotal(name)), row)
    if by in ("day", "day-model"):
        return [sums[name] for name in sorted(sums)]
    return sorted(sums.values(), key=lambda total: (-total.usage.total, total.name))


def grand_total(totals: Iterable[UsageTotal], name: str = "all") -> UsageTotal:
    whole = UsageTotal(name)
    for part in totals:
        whole = UsageTotal(
            name,
            whole.calls + part.calls,
            whole.usage + part.usage,
            whole.cost + part.cost,
            whole.unpriced + part.unpriced,
        )
    return whole


def _added(total: UsageTotal, row: UsageRow) -> UsageTotal:
    return UsageTotal(
        total.name,
        total.calls + 1,
        total.usage + row.usage,
        total.cost + (row.cost or 0.0),
        total.unpriced + (row.cost is None),
    )


def _name(row: UsageRow, by: By, zone: tzinfo) -> str:
    match by:
        case "agent":
            return row.agent
        case "session":
            return row.session_key
        case "model":
            return f"{row.provider}/{row.model}"
        case "day":
            return datetime.fromtimestamp(row.at / 1000, zone).strftime("%Y-%m-%d")
        case "day-model":
            return f"{_name(row, 'day', zone)} {_name(row, 'model', zone)}"
