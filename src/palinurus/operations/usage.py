"""What models used and cost, summed."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from palinurus.ledger.usage import By, UsageTotal, grand_total
from palinurus.operations.bounds import WholeDays
from palinurus.operations.house import House
from palinurus.operations.table import Operation

DAY_MS = 24 * 3600 * 1000


class AskUsage(Struct, frozen=True):
    by: By = "day"
    days: WholeDays = 30  # 0: everything
    agent: str = ""


class UsageReport(Struct, frozen=True):
    by: By
    totals: tuple[UsageTotal, ...]
    total: UsageTotal


class AskSeries(Struct, frozen=True, rename="camel"):
    days: WholeDays = 30  # 0: everything
    agent_id: str = ""


class UsageDay(Struct, frozen=True):
    date: str  # YYYY-MM-DD in the owner's zone
    models: tuple[UsageTotal, ...]  # the most tokens first


class UsageSeries(Struct, frozen=True):
    days: tuple[UsageDay, ...]  # those on which anything was used, in their order


async def _usage(house: House, params: AskUsage) -> UsageReport:
    since = house.clock.now_ms() - params.days * DAY_MS if params.days > 0 else 0
    totals = await house.usage.totals(params.by, zone=house.clock.zone, since=since, agent=params.agent)
    return UsageReport(params.by, tuple(totals), grand_total(totals))


async def _series(house: House, params: AskSeries) -> UsageSeries:
    since = house.clock.now_ms() - params.days * DAY_MS if params.days > 0 else 0
    totals = await house.usage.totals("day-model", zone=house.clock.zone, since=since, agent=params.agent_id)
    by_day: dict[str, list[UsageTotal]] = {}
    for total in totals:
        day, _, model = total.name.partition(" ")
        by_day.setdefault(day, []).append(msgspec.structs.replace(total, name=model))
    return UsageSeries(tuple(UsageDay(day, _largest_first(models)) for day, models in by_day.items()))


def _largest_first(totals: list[UsageTotal]) -> tuple[UsageTotal, ...]:
    return tuple(sorted(totals, key=lambda total: (-total.usage.total, total.name)))


USAGE = Operation("usage.totals", AskUsage, UsageReport, "read", _usage)
SERIES = Operation("usage.series", AskSeries, UsageSeries, "read", _series)
OPERATIONS = (USAGE, SERIES)
