"""Use and cost in OpenClaw's shape. Prices are US dollars; calls whose price nobody knows are counted apart."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct

from palinurus.domain.errors import BadRequest
from palinurus.gateway.talk.methods import Method, Talk
from palinurus.ledger.usage import UsageTotal, grand_total

DAYS = 30
MOST_DAYS = 3_660
DAY_MS = 86_400_000


class AskCost(Struct, frozen=True, rename="camel"):
    """A number of days up to today, or the days from a date to another."""

    days: Annotated[int, Meta(ge=1, le=MOST_DAYS)] | None = None
    start_date: str = ""  # YYYY-MM-DD
    end_date: str = ""
    agent_id: str = ""


class CostTotals(Struct, frozen=True, rename="camel"):
    input: int
    output: int
    cache_read: int
    cache_write: int
    total_tokens: int
    total_cost: float
    missing_cost_entries: int
    calls: int


class DayCost(CostTotals, frozen=True, rename="camel"):
    date: str


class Cost(Struct, frozen=True, rename="camel"):
    updated_at: int
    days: int
    daily: tuple[DayCost, ...]
    totals: CostTotals


class AskWindows(Struct, frozen=True):
    pass


class ProviderUse(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What was used here. Quotas that a provider keeps for itself are not asked for, so there are no windows."""

    provider: str
    display_name: str
    windows: tuple[str, ...]
    totals: CostTotals


class Windows(Struct, frozen=True, rename="camel"):
    updated_at: int
    days: int
    providers: tuple[ProviderUse, ...]


async def _cost(talk: Talk, params: AskCost) -> Cost:
    house = talk.desk.house
    today = datetime.fromtimestamp(house.clock.now_ms() / 1000, house.clock.zone).date()
    first, last = _range(params, today)
    began = datetime(first.year, first.month, first.day, tzinfo=house.clock.zone)
    since = max(0, round(began.timestamp() * 1000))
    totals = await house.usage.totals("day", zone=house.clock.zone, since=since, agent=params.agent_id)
    inside = [each for each in totals if each.name <= last.isoformat()]
    daily = tuple(DayCost(*_numbers(each), date=each.name) for each in inside)
    return Cost(house.clock.now_ms(), (last - first).days + 1, daily, CostTotals(*_numbers(grand_total(inside))))


async def _status(talk: Talk, _: AskWindows) -> Windows:
    house = talk.desk.house
    now = house.clock.now_ms()
    totals = await house.usage.totals("model", zone=house.clock.zone, since=now - DAYS * DAY_MS)
    by_provider: dict[str, list[UsageTotal]] = {}
    for each in totals:
        by_provider.setdefault(each.name.partition("/")[0], []).append(each)
    uses = (
        ProviderUse(name, name, (), CostTotals(*_numbers(grand_total(found)))) for name, found in by_provider.items()
    )
    return Windows(now, DAYS, tuple(uses))


def _range(params: AskCost, today: date) -> tuple[date, date]:
    last = _date(params.end_date) or today
    first = _date(params.start_date) or last - timedelta(days=(params.days or DAYS) - 1)
    if not timedelta() <= last - first <= timedelta(days=MOST_DAYS):
        raise BadRequest(
            "the last day comes before the first, or years after it", hint="startDate, endDate: YYYY-MM-DD"
        )
    return first, last


def _date(text: str) -> date | None:
    if not text:
        return None
    try:
        found = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        raise BadRequest(f"not a day: {text[:40]!r}", hint="YYYY-MM-DD") from None
    if not 1971 <= found.year <= 9000:
        raise BadRequest(f"there was nothing on {text}")
    return found


def _numbers(total: UsageTotal) -> tuple[int, int, int, int, int, float, int, int]:
    used = total.usage
    return (
        used.input,
        used.output,
        used.cache_read,
        used.cache_write,
        used.total,
        total.cost,
        total.unpriced,
        total.calls,
    )


METHODS = (
    Method("usage.cost", AskCost, Cost, "read", _cost, about="What models used and cost, day by day."),
    Method("usage.status", AskWindows, Windows, "read", _status, about="What was used of each provider."),
)
