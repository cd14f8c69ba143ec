"""How the gateway is, in OpenClaw's shape. Only an admin is told where things lie on the disk."""

from __future__ import annotations

import time
from typing import Any

from msgspec import Struct

from palinurus import __version__
from palinurus.domain.keys import SessionKey
from palinurus.gateway.talk.methods import Method, Talk
from palinurus.operations import status
from palinurus.sessions.session import Session

RECENT = 5


class AskHealth(Struct, frozen=True):
    probe: bool = False


class RecentSession(Struct, frozen=True, rename="camel"):
    key: str
    updated_at: int
    age: int  # milliseconds


class RecentSessions(Struct, frozen=True):
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


class AskStatus(Struct, frozen=True, rename="camel"):
    agent_id: str = ""


class Defaults(Struct, frozen=True, rename="camel"):
    model: str
    context_tokens: int


class StatusSession(Struct, frozen=True, rename="camel", omit_defaults=True):
    key: str
    agent_id: str
    session_id: str
    kind: str
    updated_at: int
    age: int
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    label: str = ""


class StatusSessions(Struct, frozen=True, rename="camel"):
    count: int
    defaults: Defaults
    recent: tuple[StatusSession, ...]


class GatewayStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    runtime_version: str
    agent_id: str
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
    pid: int = 0


async def _health(talk: Talk, _: AskHealth) -> Health:
    house = talk.desk.house
    began = time.monotonic()
    by_agent = {agent: await house.sessions.recent(agent=agent, limit=RECENT) for agent in house.agents.ids}
    now, default = house.clock.now_ms(), house.agents.default
    agents = tuple(AgentHealth(each, each == default, _recent(found, now)) for each, found in by_agent.items())
    return Health(
        ok=True,
        ts=now,
        duration_ms=round((time.monotonic() - began) * 1000),
        version=__version__,
        uptime_ms=now - talk.desk.started_at,
        busy=house.dispatcher.busy,
        default_agent_id=default,
        agents=agents,
        sessions=_recent(await house.sessions.recent(limit=RECENT), now),
        warnings=len(house.warnings()),
    )


async def _status(talk: Talk, params: AskStatus) -> GatewayStatus:
    house = talk.desk.house
    told = await status.show_status(house, agent=params.agent_id.strip().lower())
    standing = await status.show_session_status(house, session_key=str(SessionKey.main(told.agent)))
    now = house.clock.now_ms()
    admin = talk.principal.may("admin")
    rows = tuple(_session(each, now) for each in told.sessions)
    return GatewayStatus(
        runtime_version=told.version,
        agent_id=told.agent,
        agents=told.agents,
        model=told.model,
        model_reason=told.model_reason,
        busy=told.busy,
        uptime_ms=now - talk.desk.started_at,
        sessions=StatusSessions(len(rows), Defaults(told.model, standing.window), rows),
        warnings=told.warnings if admin else (),
        home=told.home if admin else "",
        config=told.config if admin else "",
        workspace=told.workspace if admin else "",
        pid=told.holder_pid if admin else 0,
    )


def _recent(found: list[Session], now: int) -> RecentSessions:
    rows = tuple(RecentSession(each.key, each.updated_at, max(0, now - each.updated_at)) for each in found)
    return RecentSessions(len(rows), rows)


def _session(session: Session, now: int) -> StatusSession:
    return StatusSession(
        key=session.key,
        agent_id=session.agent,
        session_id=session.id,
        kind="direct" if session.chat_type == "direct" else "group",
        updated_at=session.updated_at,
        age=max(0, now - session.updated_at),
        model=f"{session.provider}/{session.model}" if session.model else "",
        input_tokens=session.input_tokens,
        output_tokens=session.output_tokens,
        total_tokens=session.context_tokens,
        label=session.label,
    )


METHODS = (
    Method("health", AskHealth, Health, "read", _health, about="Whether the gateway is well, at a glance."),
    Method("status", AskStatus, GatewayStatus, "read", _status, about="Model, sessions and state."),
)
