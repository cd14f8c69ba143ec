"""A cron job as somebody asks for it, checked and made into a record; and as it is shown."""

from __future__ import annotations

import hashlib
from datetime import tzinfo
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from palinurus.domain.errors import BadRequest, NotConfirmed
from palinurus.domain.events import visible
from palinurus.domain.messages import Origin
from palinurus.extensions.schedule.calendar import forecast_of
from palinurus.extensions.schedule.command import CommandPlan
from palinurus.extensions.schedule.cron_job import (
    AgentTurnPayload,
    AtSchedule,
    CatchUp,
    CommandPayload,
    CronDelivery,
    CronJob,
    CronSchedule,
    DueKind,
    EverySchedule,
    HeartbeatPayload,
    Payload,
    ReminderPayload,
    Schedule,
    Status,
    SystemEventPayload,
)
from palinurus.extensions.schedule.due import catch_up_of
from palinurus.extensions.schedule.times import check_schedule, iso_time, zone_of
from palinurus.extensions.schedule.when import moment_words, parse_when, schedule_words
from palinurus.operations.services import Services

QUESTION = "Trust this text as your own from now on?"


def plan_trust(cron: CronJob) -> CommandPlan:
    """What a person would trust."""
    stated = (cron.id, cron.revision, cron.name, cron.payload, cron.session_target, cron.delivery, cron.sources)
    digest = hashlib.sha256(msgspec.json.encode(stated, order="sorted")).hexdigest()
    lines = [f"name: {cron.name}", *text_of(cron.payload).splitlines()]
    told = [f"made after text from outside was read: {', '.join(cron.sources) or 'unknown'}"]
    return CommandPlan(tuple(visible(line) for line in (*lines, *told)), digest, QUESTION)


def trust_text(cron: CronJob, digest: str) -> CronJob:
    """Raises NotConfirmed where a person was shown another text, or none."""
    if digest != plan_trust(cron).digest:
        raise NotConfirmed(
            "a person must trust exactly this text", hint=f"`pal cron approve {cron.id}` shows it and asks"
        )
    return replace(cron, origin=Origin.OWNER, sources=())


MOST_SHOWN = 200  # characters of a text in a list
NOT_APPROVED = "waits: no person has approved its command"


class CronDraft(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A cron job as somebody asks for it."""

    name: str
    schedule: Schedule
    payload: Payload
    agent_id: str = ""
    session_target: str = ""  # main | isolated | current | session:<key>; empty: main for a text, else isolated
    session_key: str = ""  # the current session
    delivery: CronDelivery = CronDelivery()
    description: str = ""
    enabled: bool = True
    delete_after_run: bool | None = None  # None: once what is for once has run
    catch_up: CatchUp | Literal[""] = ""


class CronJobState(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The same as OpenClaw has it."""

    next_run_at_ms: int | None = None
    running_at_ms: int = 0
    last_run_at_ms: int = 0
    last_run_status: str = ""  # ok | error | skipped
    last_status: str = ""
    last_error: str = ""
    last_duration_ms: int = 0
    consecutive_errors: int = 0


class CronJobInfo(Struct, frozen=True, rename="camel"):
    """A cron job as it is shown. Times are those of the home."""

    id: str
    agent_id: str
    name: str
    kind: DueKind
    enabled: bool
    schedule: Schedule
    when: str  # the schedule in words
    session_target: str
    payload: Payload
    text: str  # what it says or does, in short
    delivery: CronDelivery
    catch_up: CatchUp
    delete_after_run: bool
    description: str
    created_at_ms: int
    updated_at_ms: int
    wake_mode: str
    state: CronJobState
    next_run_at: str | None  # ISO
    next_run_at_ms: int | None
    next_run: str  # for people
    last_run_at: str | None
    last_run_at_ms: int | None
    last_status: Status | None
    last_error: str
    consecutive_errors: int
    runs: int
    cost: float | None  # of all runs so far in US dollars; None: unknown
    forecast: float | None  # of the next run; None: unknown
    disabled_why: str = ""
    sources: tuple[str, ...] = ()  # outside text that was in the context when it was made
    outside: bool = False  # its text counts as text from outside until a person trusts it


def make_cron_job(
    services: Services,
    draft: CronDraft,
    before: CronJob | None = None,
    *,
    origin: Origin = Origin.OWNER,
    sources: tuple[str, ...] = (),
) -> CronJob:
    """The record of what somebody asks for, checked; `before`: the one that it changes. Raises BadRequest, NotFound."""
    if isinstance(draft.payload, HeartbeatPayload):
        raise of_the_config()
    name, agent = draft.name.strip(), draft.agent_id.strip().lower() or services.agents.default
    if not name or not text_of(draft.payload).strip():
        raise BadRequest("a cron job needs a name and something to do", hint="pal cron add --name N --message TEXT …")
    services.workspace(agent)  # raises for an unknown one
    now, zone = services.clock.now_ms(), services.clock.zone
    schedule = _checked(draft.schedule, before, now, zone)
    target = _target(draft)
    payload = draft.payload
    if target == "main" and isinstance(payload, AgentTurnPayload):  # as OpenClaw: the main session is sent a message
        if payload != AgentTurnPayload(payload.message):
            raise BadRequest(
                "a message to the main session has no model, tools or time of its own", hint="--session isolated"
            )
        payload = SystemEventPayload(payload.message)
    once = isinstance(schedule, AtSchedule)
    asks = isinstance(payload, CommandPayload) and (before is None or payload != before.payload)
    old = before or CronJob(services.new_id(), agent, name, schedule, payload, origin=origin, sources=sources)
    return replace(
        old,
        agent_id=agent,
        name=name,
        schedule=schedule,
        payload=payload,
        session_target=target,
        delivery=draft.delivery,
        description=draft.description,
        enabled=draft.enabled and not asks,
        delete_after_run=once if draft.delete_after_run is None else draft.delete_after_run,
        catch_up=draft.catch_up,
        state=replace(old.state, consecutive_errors=0, disabled_why=NOT_APPROVED if asks else ""),
    )


def _checked(schedule: Schedule, before: CronJob | None, now: int, zone: tzinfo) -> Schedule:
    """Times as people say them are moments from here on, and an interval counts from somewhere."""
    if before is not None and schedule == before.schedule:
        return schedule
    match schedule:
        case AtSchedule():
            return AtSchedule(iso_time(parse_when(schedule.at, now, zone), zone))
        case EverySchedule():
            schedule = replace(schedule, anchor_ms=schedule.anchor_ms or now)
        case CronSchedule():
            zone_of(schedule.tz)
    check_schedule(schedule, zone)
    return schedule


def _target(draft: CronDraft) -> str:
    target = draft.session_target.strip()
    if not target:
        return "main" if isinstance(draft.payload, ReminderPayload | SystemEventPayload) else "isolated"
    if target == "current":
        return f"session:{draft.session_key}" if draft.session_key else "isolated"
    if target in ("main", "isolated") or (target.startswith("session:") and target != "session:"):
        return target
    raise BadRequest(f"{target[:60]!r} is not a session", hint="main, isolated, current or session:<key>")


def draft_of(cron: CronJob) -> CronDraft:
    return CronDraft(
        cron.name,
        cron.schedule,
        cron.payload,
        cron.agent_id,
        cron.session_target,
        "",
        cron.delivery,
        cron.description,
        cron.enabled,
        cron.delete_after_run,
        cron.catch_up,
    )


def info_of(services: Services, cron: CronJob) -> CronJobInfo:
    zone, state = services.clock.zone, cron.state
    at = cron.next_run_at_ms if cron.enabled else 0
    return CronJobInfo(
        cron.id,
        cron.agent_id,
        cron.name,
        cron.kind,
        cron.enabled,
        cron.schedule,
        schedule_words(cron.schedule, zone),
        cron.session_target,
        cron.payload,
        text_of(cron.payload)[:MOST_SHOWN],
        cron.delivery,
        catch_up_of(services, cron),
        cron.delete_after_run,
        cron.description,
        cron.created_at_ms,
        cron.updated_at_ms,
        "now",
        _state_of(cron, at),
        iso_time(at, zone) if at else None,
        at or None,
        moment_words(at, zone) if at else "",
        iso_time(state.last_run_at_ms, zone) if state.last_run_at_ms else None,
        state.last_run_at_ms or None,
        state.last_status or None,
        state.last_error,
        state.consecutive_errors,
        state.runs,
        None if state.unpriced_runs else state.cost,
        forecast_of(cron),
        state.disabled_why,
        cron.sources,
        cron.origin == Origin.OUTSIDE,
    )


def _state_of(cron: CronJob, at: int) -> CronJobState:
    state, ended = cron.state, {"ran": "ok", "failed": "error"}.get(cron.state.last_status, cron.state.last_status)
    past = (state.running_at_ms, state.last_run_at_ms, ended, ended, state.last_error, state.last_duration_ms)
    return CronJobState(at or None, *past, state.consecutive_errors)


def text_of(payload: Payload) -> str:
    match payload:
        case ReminderPayload(text) | SystemEventPayload(text):
            return text
        case AgentTurnPayload(message):
            return message
        case CommandPayload(argv):
            import shlex  # for few

            return shlex.join(argv)
        case HeartbeatPayload():
            return "HEARTBEAT.md"


def of_the_config() -> BadRequest:
    return BadRequest("a heartbeat is set in the config, not as a cron job", hint="`pal heartbeat status` shows it")
