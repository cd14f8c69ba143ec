"""Health and status of the gateway, usage and cost, and the log. Only an admin sees paths.

Prices are US dollars; calls without a known price are counted separately.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

from msgspec import Meta, Struct

from palinurus import __version__
from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.gateway.websocket.methods import ClientSession, method
from palinurus.ledger.usage import UsageTotal, grand_total
from palinurus.operations.logs import LogTail, tail_logs
from palinurus.operations.shapes import From, made_of
from palinurus.operations.status import show_session_status, show_status
from palinurus.sessions.session import Session

DATABASE = "home.sqlite"
RECENT = 5
DAYS = 30
MOST_DAYS = 3_660
DAY_MS = 86_400_000


class RecentSession(Struct, frozen=True, rename="camel"):
    key: str
    updated_at: int
    age: int  # milliseconds


class RecentSessions(Struct, frozen=True):
    path: str  # the file's name: the folder is for admins
    count: int  # of those that are listed
    recent: tuple[RecentSession, ...]


class AgentHealth(Struct, frozen=True, rename="camel"):
    agent_id: str
    is_default: bool
    sessions: RecentSessions


class Health(Struct, frozen=True, rename="camel"):
    ok: bool
    ts: int
    duration_ms: int
    version: str
    uptime_ms: int
    busy: int  # turns that run or wait
    default_agent_id: str
    agents: tuple[AgentHealth, ...]
    sessions: RecentSessions
    warnings: int
    channels: dict[str, Any] = {}
    channel_order: tuple[str, ...] = ()
    channel_labels: dict[str, str] = {}


class StatusDefaults(Struct, frozen=True, rename="camel"):
    model: str
    context_tokens: int


class StatusSession(Struct, frozen=True, rename="camel", omit_defaults=True):
    key: str
    agent_id: Annotated[str, From("agent")]
    session_id: Annotated[str, From("id")]
    kind: str
    updated_at: int
    age: int
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: Annotated[int, From("context_tokens")] = 0
    label: str = ""


class StatusSessions(Struct, frozen=True, rename="camel"):
    count: int
    defaults: StatusDefaults
    recent: tuple[StatusSession, ...]


class StatusReply(Struct, frozen=True, rename="camel", omit_defaults=True):
    runtime_version: Annotated[str, From("version")]
    agent_id: Annotated[str, From("agent")]
    agents: tuple[str, ...]
    model: str
    model_reason: str
    busy: int
    uptime_ms: int
    sessions: StatusSessions
    warnings: tuple[str, ...]
    channel_summary: tuple[str, ...] = ()
    queued_system_events: tuple[str, ...] = ()
    home: str = ""  # for admins, as the next two
    config: str = ""
    workspace: str = ""
    pid: Annotated[int, From("holder_pid")] = 0


class CostTotals(Struct, frozen=True, rename="camel", kw_only=True):
    input: Annotated[int, From("usage.input")]
    output: Annotated[int, From("usage.output")]
    cache_read: Annotated[int, From("usage.cache_read")]
    cache_write: Annotated[int, From("usage.cache_write")]
    total_tokens: Annotated[int, From("usage.total")]
    total_cost: Annotated[float, From("cost")]
    missing_cost_entries: Annotated[int, From("unpriced")]
    calls: int


class DayCost(CostTotals, frozen=True, rename="camel", kw_only=True):
    date: Annotated[str, From("name")]


class Cost(Struct, frozen=True, rename="camel"):
    updated_at: int
    days: int
    daily: tuple[DayCost, ...]
    totals: CostTotals


class ProviderUse(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What was used here. The provider's own quotas are not queried, so `windows` is empty."""

    provider: str
    display_name: str
    windows: tuple[str, ...]
    totals: CostTotals


class ProviderUses(Struct, frozen=True, rename="camel"):
    updated_at: int
    days: int
    providers: tuple[ProviderUse, ...]


@method("health", scope="read")
async def show_health(client: ClientSession, probe: bool = False) -> Health:
    """Whether the gateway is healthy, in short."""
    services = client.services
    began = time.monotonic()
    by_agent = {
        agent: await services.sessions.recent(agent=agent, limit=RECENT, one_offs=False)
        for agent in services.agents.ids
    }
    now, default = services.clock.now_ms(), services.agents.default
    agents = tuple(AgentHealth(each, each == default, _recent(found, now)) for each, found in by_agent.items())
    return Health(
        ok=True,
        ts=now,
        duration_ms=round((time.monotonic() - began) * 1000),
        version=__version__,
        uptime_ms=now - client.gateway.started_at,
        busy=services.dispatcher.busy,
        default_agent_id=default,
        agents=agents,
        sessions=_recent(await services.sessions.recent(limit=RECENT, one_offs=False), now),
        warnings=len(services.warnings()),
    )


def _recent(found: list[Session], now: int) -> RecentSessions:
    rows = tuple(made_of(RecentSession, each, age=max(0, now - each.updated_at)) for each in found)
    return RecentSessions(DATABASE, len(rows), rows)


@method("status", scope="read")
async def show_gateway_status(client: ClientSession, agent_id: str = "") -> StatusReply:
    """Model, sessions and state."""
    services = client.services
    shown = await show_status(services, agent=agent_id.strip().lower())
    main = await show_session_status(services, session_key=str(SessionKey.main(shown.agent)))
    now = services.clock.now_ms()
    rows = tuple(_session(each, now) for each in shown.sessions)
    hidden = {"warnings": (), "home": "", "config": "", "workspace": "", "pid": 0}
    return made_of(
        StatusReply,
        shown,
        uptime_ms=now - client.gateway.started_at,
        sessions=StatusSessions(len(rows), StatusDefaults(shown.model, main.window), rows),
        **({} if client.principal.may("admin") else hidden),
    )


def _session(session: Session, now: int) -> StatusSession:
    return made_of(
        StatusSession,
        session,
        kind="direct" if session.chat_type == "direct" else "group",
        age=max(0, now - session.updated_at),
        model=f"{session.provider}/{session.model}" if session.model else "",
    )


@method("usage.cost", scope="read")
async def show_cost(
    client: ClientSession,
    days: Annotated[int, Meta(ge=1, le=MOST_DAYS), "Up to today."] | None = None,
    start_date: Annotated[str, "YYYY-MM-DD"] = "",
    end_date: str = "",
    agent_id: str = "",
) -> Cost:
    """What models used and cost, day by day."""
    services = client.services
    today = datetime.fromtimestamp(services.clock.now_ms() / 1000, services.clock.zone).date()
    last = _date(end_date) or today
    first = _date(start_date) or last - timedelta(days=(days or DAYS) - 1)
    if not timedelta() <= last - first <= timedelta(days=MOST_DAYS):
        why = "endDate is before startDate, or more than ten years after it"
        raise BadRequest(why, hint="startDate, endDate: YYYY-MM-DD")
    began = datetime(first.year, first.month, first.day, tzinfo=services.clock.zone)
    since = max(0, round(began.timestamp() * 1000))
    totals = await services.usage.totals("day", zone=services.clock.zone, since=since, agent=agent_id)
    inside = [each for each in totals if each.name <= last.isoformat()]
    daily = tuple(made_of(DayCost, each) for each in inside)
    return Cost(services.clock.now_ms(), (last - first).days + 1, daily, made_of(CostTotals, grand_total(inside)))


def _date(text: str) -> date | None:
    if not text:
        return None
    try:
        found = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        raise BadRequest(f"not a date: {text[:40]!r}", hint="YYYY-MM-DD") from None
    if not 1971 <= found.year <= 9000:
        raise BadRequest(f"not a day with data: {text}")
    return found


@method("usage.status", scope="read")
async def show_provider_uses(client: ClientSession) -> ProviderUses:
    """Use of each provider."""
    services = client.services
    now = services.clock.now_ms()
    totals = await services.usage.totals("model", zone=services.clock.zone, since=now - DAYS * DAY_MS)
    by_provider: dict[str, list[UsageTotal]] = {}
    for each in totals:
        by_provider.setdefault(each.name.partition("/")[0], []).append(each)
    uses = (ProviderUse(name, name, (), made_of(CostTotals, grand_total(found))) for name, found in by_provider.items())
    return ProviderUses(now, DAYS, tuple(uses))


@method("logs.tail", scope="read")
async def tail_log(
    client: ClientSession,
    cursor: Annotated[int, Meta(ge=0, le=2**53), "Where the last piece ended."] | None = None,
    limit: Annotated[int, Meta(ge=1, le=5_000)] = 500,
    max_bytes: Annotated[int, Meta(ge=1, le=1_000_000)] = 250_000,
) -> LogTail:
    """Lines of the log, from a cursor on."""
    root = client.services.home.root
    return await asyncio.to_thread(lambda: tail_logs(root, cursor=cursor, limit=limit, max_bytes=max_bytes))
