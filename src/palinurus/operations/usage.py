"""What models used and cost, summed."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Struct

from palinurus.ledger.usage import By, UsageTotal, grand_total
from palinurus.operations.bounds import WholeDays
from palinurus.operations.house import House
from palinurus.operations.operation import operation

DAY_MS = 24 * 3600 * 1000


class UsageReport(Struct, frozen=True):
    by: By
    totals: tuple[UsageTotal, ...]
    total: UsageTotal


class UsageDay(Struct, frozen=True):
    date: str  # YYYY-MM-DD in the owner's zone
    models: tuple[UsageTotal, ...]  # the most tokens first


class UsageSeries(Struct, frozen=True):
    days: tuple[UsageDay, ...]  # those on which anything was used, in their order


@operation("usage.totals", scope="read")
async def usage_totals(
    house: House,
    by: Annotated[By, "What is summed up."] = "day",
    days: Annotated[WholeDays, "How far back; 0 is everything."] = 30,
    agent: Annotated[str, "Only this agent's."] = "",
) -> UsageReport:
    """Show what models used and cost.

    Examples:
      pal usage
      pal usage --by model --days 7
      pal usage --by session --json
    """
    totals = await house.usage.totals(by, zone=house.clock.zone, since=_since(house, days), agent=agent)
    return UsageReport(by, tuple(totals), grand_total(totals))


@operation("usage.series", scope="read")
async def usage_series(house: House, days: WholeDays = 30, agent_id: str = "") -> UsageSeries:
    """What each model used on each day; of 0 days: everything."""
    totals = await house.usage.totals("day-model", zone=house.clock.zone, since=_since(house, days), agent=agent_id)
    by_day: dict[str, list[UsageTotal]] = {}
    for total in totals:
        day, _, model = total.name.partition(" ")
        by_day.setdefault(day, []).append(msgspec.structs.replace(total, name=model))
    return UsageSeries(tuple(UsageDay(day, _largest_first(models)) for day, models in by_day.items()))


def _since(house: House, days: int) -> int:
    return house.clock.now_ms() - days * DAY_MS if days > 0 else 0


def _largest_first(totals: list[UsageTotal]) -> tuple[UsageTotal, ...]:
    return tuple(sorted(totals, key=lambda total: (-total.usage.total, total.name)))


OPERATIONS = (usage_totals, usage_series)
