"""Usage and cost of model calls: one row per call, and sums over the rows.

A row is written together with its reply and carries the reply's entry id, so storing a reply twice counts it once. The
cost of a model without a known price is None, not 0: sums report how many calls they leave out.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, tzinfo
from typing import Any, Literal

from msgspec import Struct, structs

from palinurus.domain.messages import Usage
from palinurus.storage.database import Database
from palinurus.storage.transaction import Transaction, declare_queries

declare_queries("usage", __file__)

By = Literal["agent", "session", "model", "day", "day-model"]


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
    """The sum over some calls. `cost` covers the priced ones; `unpriced` counts the others."""

    name: str
    calls: int = 0
    usage: Usage = Usage()
    cost: float = 0.0
    unpriced: int = 0

    def __add__(self, other: UsageTotal) -> UsageTotal:
        """The sum, with the first name."""
        calls, usage = self.calls + other.calls, self.usage + other.usage
        return UsageTotal(self.name, calls, usage, self.cost + other.cost, self.unpriced + other.unpriced)


class UsageLedger:
    """Stores usage rows. When `append` returns, the row is on the disk; a row whose entry exists is not added again."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, row: UsageRow) -> None:
        await self._database.write(lambda tx: add_usage(tx, row))

    async def totals(
        self, by: By, *, zone: tzinfo, since: int = 0, agent: str = "", session: str = ""
    ) -> list[UsageTotal]:
        """Sums of the calls at or after `since`: days in order, others with the most tokens first."""
        query = "usage.of_session" if session else "usage.since"
        values = {"since": since, "agent": agent, "session": session}
        # On the reader thread: years of rows take time.
        return await self._database.read(lambda tx: total_by(map(_row, tx.each(query, **values)), by, zone))

    async def of_run(self, session: str, run_id: str) -> UsageTotal:
        """What one run of a session used."""
        return await self._database.read(
            lambda tx: grand_total(
                (total_of(row) for row in map(_row, tx.each("usage.of_run", session=session, run=run_id))), run_id
            )
        )


def add_usage(tx: Transaction, row: UsageRow) -> None:
    """Adds a row inside the caller's transaction: a reply and its row are stored together or not at all."""
    values = structs.asdict(row) | structs.asdict(row.usage)
    del values["usage"]
    tx.run("usage.add", **values)


def _row(row: tuple[Any, ...]) -> UsageRow:
    entry_id, at, run_id, session_key, agent, provider, model, *tokens, cost = row
    return UsageRow(entry_id, at, run_id, session_key, agent, provider, model, Usage(*tokens), cost)


def total_by(rows: Iterable[UsageRow], by: By, zone: tzinfo) -> list[UsageTotal]:
    """The sums over rows, for every storage. A day is a day in `zone`."""
    sums: dict[str, UsageTotal] = {}
    for row in rows:
        name = _name(row, by, zone)
        sums[name] = sums.get(name, UsageTotal(name)) + total_of(row, name)
    if by in ("day", "day-model"):
        return [sums[name] for name in sorted(sums)]
    return sorted(sums.values(), key=lambda total: (-total.usage.total, total.name))


def total_of(row: UsageRow, name: str = "") -> UsageTotal:
    return UsageTotal(name, 1, row.usage, row.cost or 0.0, int(row.cost is None))


def grand_total(totals: Iterable[UsageTotal], name: str = "all") -> UsageTotal:
    return sum(totals, UsageTotal(name))


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
