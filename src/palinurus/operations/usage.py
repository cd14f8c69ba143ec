"""What models used and cost, summed."""

from __future__ import annotations

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


async def _usage(house: House, params: AskUsage) -> UsageReport:
    since = house.clock.now_ms() - params.days * DAY_MS if params.days > 0 else 0
    totals = await house.usage.totals(params.by, zone=house.clock.zone, since=since, agent=params.agent)
    return UsageReport(params.by, tuple(totals), grand_total(totals))


USAGE = Operation("usage.totals", AskUsage, UsageReport, "read", _usage)
OPERATIONS = (USAGE,)
