"""Heartbeats as people and programs ask for them: how they stand, turn one on or off, look now, tell one something."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.agents import known_agent
from palinurus.config.load import Config
from palinurus.config.section import seconds
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, QueueFull, WaitTimeout
from palinurus.extensions.schedule.cron_job import CronJob, CronState, DueTime, Status, WakeNote
from palinurus.extensions.schedule.due import run_now, wait_for_end
from palinurus.extensions.schedule.forecast import HeartbeatForecast
from palinurus.extensions.schedule.heartbeat_history import EMPTY, make_forecast, outcome_of, read_history
from palinurus.extensions.schedule.heartbeat_jobs import PREFIX, keep_heartbeat, keep_heartbeats, session_of_heartbeat
from palinurus.extensions.schedule.heartbeat_settings import HeartbeatSettings, has_own_block, runs_heartbeat
from palinurus.extensions.schedule.probes import read_heartbeat, why_not_approved
from palinurus.extensions.schedule.settings import CronSettings
from palinurus.extensions.schedule.store import DUE, CronStore
from palinurus.extensions.schedule.times import iso_time
from palinurus.operations.agent_changes import with_agent
from palinurus.operations.config import DryRun, edit_config, merge_config
from palinurus.operations.operation import AgentRef, Private, operation
from palinurus.operations.scopes import LOCAL, Caller
from palinurus.operations.services import Services

MOST_NOTES = 20
LONGEST_NOTE = 10_000  # characters
RUN_SECONDS = 900.0
OfAgent = Annotated[AgentRef, "The agent; else the default one."]


class ProbeInfo(Struct, frozen=True, rename="camel"):
    command: str
    approved: bool
    why: str = ""  # it is not


class HeartbeatInfo(Struct, frozen=True, rename="camel"):
    """The heartbeat of one agent. The counts are of the last 30 days."""

    agent: str
    on: bool
    every_ms: int
    next_at: str | None  # ISO
    next_at_ms: int | None
    last_at: str | None
    last_at_ms: int | None
    last_status: Status | None
    last_reason: str
    looks: int  # due times that have ended
    calls: int  # in which a model was called
    tokens: int
    quiet_beats: int  # looks of a model in a row without a report
    session: str
    target: str
    active_hours: str
    probes: tuple[ProbeInfo, ...]
    notes: int  # that wait for the next look
    remarks: tuple[str, ...] = ()  # what is wrong


class HeartbeatStatus(Struct, frozen=True):
    heartbeats: tuple[HeartbeatInfo, ...]
    paused: bool


class HeartbeatChange(Struct, frozen=True, rename="camel"):
    agent: str
    on: bool
    every_ms: int
    written: bool
    forecast: HeartbeatForecast | None = None


class HeartbeatRun(Struct, frozen=True, rename="camel"):
    agent: str
    status: str  # ran | skipped | failed
    reason: str = ""
    text: str = ""  # the beginning of what the agent said
    tokens: int = 0
    run_id: str = ""
    session_key: str = ""


class WokenHeartbeat(Struct, frozen=True, rename="camel"):
    agent: str
    note: str  # its id
    mode: str


@operation("heartbeat.status", scope="read")
async def show_heartbeats(
    services: Services, agent: Annotated[AgentRef, "Only of this agent."] = ""
) -> HeartbeatStatus:
    """Show which heartbeats are on, the next check, how often a model was called, and what is wrong.

    Examples:
      pal heartbeat status
      pal heartbeat status --json
    """
    agents = [known_agent(services.config, agent)] if agent else services.agents.ids
    found = [await _info(services, each) for each in agents]
    return HeartbeatStatus(tuple(found), services.config.section(CronSettings).paused)


@operation("heartbeat.enable", scope="admin")
async def enable_heartbeat(
    services: Services,
    every: Annotated[str, "Time between two checks."] = "30m",
    agent: OfAgent = "",
    dry_run: DryRun = False,
    caller: Caller = LOCAL,
) -> HeartbeatChange:
    """Turn the heartbeat of an agent on; with dryRun only say what it will cost."""
    agent_id, pause = _agent(services, agent), _seconds(every)
    settings = services.config.section(HeartbeatSettings, agent_id)
    wanted = replace(settings, every=pause, enabled=True)
    expected = await make_forecast(services, agent_id, wanted)
    if not dry_run:
        block = {"every": every} | ({"enabled": True} if settings.enabled is False else {})
        await _write(services, agent_id, block, caller)
        await keep_heartbeat(services, agent_id, revive=True)
    return HeartbeatChange(agent_id, not dry_run, wanted.every_ms, not dry_run, expected)


@operation("heartbeat.disable", scope="admin")
async def disable_heartbeat(services: Services, agent: OfAgent = "", caller: Caller = LOCAL) -> HeartbeatChange:
    """Turn the heartbeat of an agent off: `every` is 0m in the config.

    Example:
      pal heartbeat disable
    """
    agent_id = _agent(services, agent)
    was_on = runs_heartbeat(services.config, agent_id)
    if was_on:
        await _write(services, agent_id, {"every": "0m"}, caller)
    return HeartbeatChange(agent_id, False, 0, was_on)


@operation("heartbeat.run", scope="write", repeatable=True)
async def run_heartbeat(services: Services, agent: OfAgent = "", idempotency_key: str = "") -> HeartbeatRun:
    """Check now, whether anything has changed or not, and wait for the outcome. This calls a model.

    Example:
      pal heartbeat run
    """
    agent_id = _agent(services, agent)
    cron = await keep_heartbeat(services, agent_id, make=True)
    assert cron is not None  # noqa: S101  # it was made
    job = await run_now(services, cron, idempotency_key or services.new_id())
    ended = await wait_for_end(services, job, RUN_SECONDS)
    if ended.state in ("waiting", "running"):
        raise WaitTimeout("the heartbeat is still running", hint="`pal heartbeat status` shows how it ended")
    outcome = outcome_of(ended)
    if outcome is None:
        return HeartbeatRun(agent_id, "failed", ended.trouble or f"it is {ended.state}")
    return HeartbeatRun(
        agent_id, outcome.status, outcome.reason, outcome.text, outcome.tokens, outcome.run_id, outcome.session_key
    )


@operation("heartbeat.wake", scope="write", repeatable=True)
async def wake_heartbeat(
    services: Services,
    text: Annotated[str, "What the agent is told."],
    mode: Annotated[Literal["now", "next-heartbeat"], "When."] = "now",
    agent: OfAgent = "",
    sources: Annotated[tuple[str, ...], Private, "Of a text from outside."] = (),
    idempotency_key: str = "",
) -> WokenHeartbeat:
    """Tell the agent something: now, or with its next heartbeat. Active hours and a pause hold for it too.

    Example:
      pal heartbeat wake "the build has failed" --mode next-heartbeat
    """
    agent_id = _agent(services, agent)
    cron = await keep_heartbeat(services, agent_id)
    if cron is None or not cron.enabled:
        raise BadRequest(f"the heartbeat of {agent_id} is off", hint="`pal heartbeat enable` turns it on")
    if not text.strip() or len(text) > LONGEST_NOTE:
        raise BadRequest(f"a note has from 1 to {LONGEST_NOTE:,} characters")
    clean = services.turns.history.clean(Inbound(text.strip(), "wake")).text
    note = WakeNote(idempotency_key or services.new_id(), clean, sources)

    def add(stored: CronJob) -> CronJob:
        known = [each for each in stored.state.notes if each.id != note.id]
        if len(known) >= MOST_NOTES:
            raise QueueFull(f"{MOST_NOTES} notes already wait for the heartbeat of {agent_id}", hint="wait for it")
        return replace(stored, state=replace(stored.state, notes=(*known, note)))

    await CronStore(services.database, services.new_id).change(cron.id, add)
    if mode == "now":
        due = DueTime(
            cron.id, cron.name, agent_id, cron.revision, services.clock.now_ms(), kind="heartbeat", is_woken=True
        )
        await services.jobs.add(DUE, due, f"{cron.id}:wake:{note.id}", lane=cron.id)
    return WokenHeartbeat(agent_id, note.id, mode)


class Woken(Struct, frozen=True):
    ok: bool = True


@operation("wake", scope="write", strict=False, repeatable=True)
async def wake_agent(
    services: Services,
    text: str,
    mode: Literal["now", "next-heartbeat"] = "now",
    agent_id: str = "",
    idempotency_key: str = "",
) -> Woken:
    """OpenClaw's name for heartbeat.wake."""
    await wake_heartbeat(services, LOCAL, idempotency_key, text=text, mode=mode, agent=agent_id)
    return Woken()


class LastHeartbeat(Struct, frozen=True, rename="camel", omit_defaults=True):
    ts: int
    status: str  # sent | ok-token: nothing to say | skipped | failed
    reason: str = ""


@operation("last-heartbeat", scope="read", strict=False)
async def show_last_heartbeat(services: Services, agent_id: str = "") -> LastHeartbeat | None:
    """How the last heartbeat ended, in OpenClaw's shape; null when there was none."""
    info = await _info(services, _agent(services, agent_id))
    if info.last_at_ms is None:
        return None
    ended = info.last_status or "skipped"
    return LastHeartbeat(
        info.last_at_ms, ended if ended != "ran" else "ok-token" if info.quiet_beats else "sent", info.last_reason
    )


def _agent(services: Services, agent: str) -> str:
    """Raises NotFound."""
    return known_agent(services.config, agent or None)


def _seconds(every: str) -> float:
    try:
        found = seconds(every)
    except ValueError as error:
        raise BadRequest(f"{every!r} {error}") from None
    if found < 60:
        raise BadRequest("a minute is the shortest interval", hint="`pal heartbeat disable` turns it off")
    return found


async def _write(services: Services, agent_id: str, block: dict[str, Any], caller: Caller) -> None:
    await asyncio.to_thread(_edit, services, services.config, agent_id, block, caller)
    await keep_heartbeats(services)


def _edit(services: Services, config: Config, agent_id: str, block: dict[str, Any], caller: Caller) -> None:
    """Other agents whose heartbeat is on stay on: once one agent has a block of its own, only such agents run."""
    if not config.own_places:
        merge_config(services, {"agents": {"defaults": {"heartbeat": block}}}, caller)
        return
    on = (each for each in config.agent_ids if runs_heartbeat(config, each) and not has_own_block(config, each))
    blocks: dict[str, Any] = {each: {} for each in on} | {agent_id: block}

    def edit(text: str) -> str:
        for each, own in blocks.items():
            text = with_agent(text, each, {"heartbeat": own}, config.agent_ids)
        return text

    edit_config(services, edit, caller)


async def _info(services: Services, agent_id: str) -> HeartbeatInfo:
    config, zone = services.config, services.clock.zone
    settings, on = config.section(HeartbeatSettings, agent_id), runs_heartbeat(config, agent_id)
    cron = await CronStore(services.database, services.new_id).find(PREFIX + agent_id)
    history, state = await read_history(services, agent_id), cron.state if cron else CronState()
    last_at, last = history.last or (0, None)
    next_at = cron.next_run_at_ms if cron and cron.enabled else 0
    key, hours = session_of_heartbeat(settings, agent_id), settings.active_hours
    whys = [await why_not_approved(services, key, each) for each in settings.probes]
    return HeartbeatInfo(
        agent_id,
        on,
        settings.every_ms,
        iso_time(next_at, zone) if next_at else None,
        next_at or None,
        iso_time(last_at, zone) if last else None,
        last_at or None,
        last.status if last else None,
        last.reason if last else "",
        len(history.ended),
        len(history.calls),
        sum(each.tokens for each in history.calls),
        state.quiet_beats,
        str(key),
        settings.target,
        f"{hours.start}–{hours.end} ({hours.timezone})",
        tuple(ProbeInfo(each, not why, why) for each, why in zip(settings.probes, whys, strict=True)),
        len(state.notes),
        await _remarks(services, settings, state, agent_id) if on else (),
    )


async def _remarks(services: Services, settings: HeartbeatSettings, state: CronState, agent_id: str) -> tuple[str, ...]:
    file = await read_heartbeat(services, agent_id)
    says_nothing = file.is_empty or (file.text is None and not settings.prompt)
    disabled = f"The heartbeat {state.disabled_why}" if state.disabled_why else ""
    return tuple(filter(None, (disabled, *file.faults, EMPTY if says_nothing else "")))
