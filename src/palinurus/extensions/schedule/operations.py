"""Cron jobs as people and programs ask for them: list, add, change, run, and what was and will be due.

Names of operations and parameters are OpenClaw's where it has them.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from palinurus.config.rewrite import merged
from palinurus.domain.errors import BadRequest
from palinurus.domain.events import visible
from palinurus.domain.messages import Origin
from palinurus.extensions.schedule.calendar import Calendar, CronRun, make_calendar, read_run
from palinurus.extensions.schedule.command import CommandPlan, approve_command, plan_command, withdraw_approval
from palinurus.extensions.schedule.cron_job import CommandPayload, CronJob, CronSchedule
from palinurus.extensions.schedule.drafts import (
    NOT_APPROVED,
    CronDraft,
    CronJobInfo,
    draft_of,
    info_of,
    make_cron_job,
    of_the_config,
    plan_trust,
    trust_text,
)
from palinurus.extensions.schedule.due import remove, run_now, save, wait_for_end
from palinurus.extensions.schedule.events import publish_cron
from palinurus.extensions.schedule.settings import CronSettings
from palinurus.extensions.schedule.store import DUE, CronStore
from palinurus.extensions.schedule.times import due_times, iso_time, moment_of, zone_of
from palinurus.extensions.schedule.when import moment_words
from palinurus.operations.config import merge_config
from palinurus.operations.operation import AgentRef, Metavar, Positional, Seconds, operation
from palinurus.operations.scopes import LOCAL, Caller
from palinurus.operations.services import Services

MOST_LISTED = 1000
DAY_MS = 86_400_000
CronRef = Annotated[str, Metavar("ID|NAME")]


class CronJobList(Struct, frozen=True, rename="camel"):
    jobs: tuple[CronJobInfo, ...]  # what is due first comes first
    paused: bool
    total: int  # of all that there are
    offset: int
    limit: int
    has_more: bool
    next_offset: int | None
    snapshot_revision: str  # another one: the list has changed between two pages


class CronRunList(Struct, frozen=True):
    runs: tuple[CronRun, ...]  # newest first


class RemovedCronJob(Struct, frozen=True):
    id: str
    removed: bool
    name: str = ""


class StartedCronJob(Struct, frozen=True, rename="camel"):
    id: str
    ran: bool  # whether it was started
    run: CronRun | None = None  # as far as it is known yet


class CronStatus(Struct, frozen=True, rename="camel"):
    enabled: bool
    paused: bool
    running: bool  # whether a process runs what is due
    jobs: int
    enabled_jobs: int
    failing: tuple[str, ...]  # names of those whose last run failed
    next_wake_at: str | None
    next_wake_at_ms: int | None
    next_run: str = ""  # for people
    next_name: str = ""


class CronSwitch(Struct, frozen=True):
    paused: bool
    changed: bool


@operation("cron.list", scope="read", strict=False)
async def list_cron_jobs(
    services: Services,
    include_disabled: Annotated[bool, "Also those that are disabled."] = True,
    agent_id: Annotated[AgentRef, "Only those of this agent."] = "",
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED), "Maximum number."] = MOST_LISTED,
    offset: Annotated[int, Meta(ge=0, le=2**31), "How many to leave out."] = 0,
) -> CronJobList:
    """List cron jobs and reminders: when each is due, how it went last, what it cost.

    Examples:
      pal cron list
      pal cron list --json
    """
    agent = agent_id.strip().lower()
    found, total, revision = await store_of(services).listed(agent, limit, offset, disabled=include_disabled)
    infos = []
    for each in found:
        infos.append(info_of(services, each))
        await asyncio.sleep(0)  # others get their turn between hundreds
    end = offset + len(found)
    paused, more = services.config.section(CronSettings).paused, end < total
    return CronJobList(tuple(infos), paused, total, offset, limit, more, end if more else None, revision)


async def _show(services: Services, id: CronRef) -> CronJobInfo:  # noqa: A002  as it is called on the wire
    """Show a cron job with all that it says.

    Example:
      pal cron show briefing
    """
    return info_of(services, await store_of(services).require(id))


show_cron_job = operation("cron.show", scope="read")(_show)
get_cron_job = operation("cron.get", scope="read", strict=False)(_show)  # OpenClaw's name


@operation("cron.add", scope="admin")
async def add_cron_job(services: Services, draft: CronDraft, caller: Caller = LOCAL) -> CronJobInfo:
    """Add a cron job; its next due time is on the disk when this returns."""
    return info_of(services, await save(services, make_cron_job(services, draft)))


@operation("cron.update", scope="admin", strict=False)
async def update_cron_job(services: Services, id: str, patch: dict[str, Any], caller: Caller = LOCAL) -> CronJobInfo:  # noqa: A002
    """Change fields of a cron job. A schedule or payload of another kind replaces the whole one."""
    before = await store_of(services).require(id)
    if before.is_heartbeat:
        raise of_the_config()
    draft = msgspec.to_builtins(draft_of(before))
    for part in ("schedule", "payload"):
        if isinstance(given := patch.get(part), dict) and given.get("kind") not in (None, draft[part]["kind"]):
            draft[part] = {}
    try:
        changed = msgspec.convert(merged(draft, patch, ()), CronDraft)
        known = type(changed.payload).__struct_encode_fields__
        if unknown := sorted({*patch.get("payload", {})} - {*known, "kind"}):
            raise BadRequest(f"this payload has no {unknown[0]!r}", hint=f"it has {', '.join(known)}")
    except msgspec.ValidationError as error:
        raise BadRequest(f"cron.update: {error}") from None
    made = make_cron_job(services, changed, before)
    return info_of(services, await save(services, made))


@operation("cron.remove", scope="admin", strict=False)
async def remove_cron_job(services: Services, id: CronRef) -> RemovedCronJob:  # noqa: A002
    """Remove a cron job. What it has done stays in the history.

    Example:
      pal cron rm briefing
    """
    job = await store_of(services).require(id)
    if job.is_heartbeat:
        raise of_the_config()
    if isinstance(job.payload, CommandPayload):
        await withdraw_approval(services, job)
    return RemovedCronJob(job.id, await remove(services, job.id), job.name)


@operation("cron.enable", scope="write")
async def enable_cron_job(services: Services, id: CronRef) -> CronJobInfo:  # noqa: A002
    """Enable a cron job: it is due again.

    Example:
      pal cron enable briefing
    """
    return await _switch(services, id, enabled=True)


@operation("cron.disable", scope="write")
async def disable_cron_job(services: Services, id: CronRef) -> CronJobInfo:  # noqa: A002
    """Disable a cron job: it stays in the list and is not run.

    Example:
      pal cron disable briefing
    """
    return await _switch(services, id, enabled=False)


@operation("cron.plan", scope="read")
async def show_command_plan(services: Services, id: CronRef) -> CommandPlan:  # noqa: A002
    """Show what there is to approve in a cron job, and the digest that `cron.approve` takes: what its command would do,
    or a text that was made of text from outside."""
    cron = await store_of(services).require(id)
    if _is_outside(cron):
        return plan_trust(cron)
    return await plan_command(services, cron.agent_id, _command_of(cron))


@operation("cron.approve", scope="approvals")
async def approve_cron_job(
    services: Services,
    id: CronRef,  # noqa: A002
    digest: Annotated[str, "Of the plan that a person was shown."],
) -> CronJobInfo:
    """Approve exactly the command of a cron job, and enable it; or trust exactly its text."""
    cron = await store_of(services).require(id)
    if _is_outside(cron):
        return info_of(services, await save(services, trust_text(cron, digest)))
    _command_of(cron)
    await approve_command(services, cron, digest)
    state = replace(cron.state, consecutive_errors=0, disabled_why="")
    return info_of(services, await save(services, replace(cron, enabled=True, state=state)))


@operation("cron.run", scope="write", strict=False, repeatable=True)
async def run_cron_job(
    services: Services,
    id: CronRef,  # noqa: A002
    mode: Annotated[Literal["force", "due"], "due: only if it is overdue."] = "force",
    wait: Annotated[Seconds, "How long to wait for its end."] = 0,
    idempotency_key: str = "",
) -> StartedCronJob:
    """Run a cron job now, besides its due times, and wait for its end.

    Examples:
      pal cron run briefing
      pal cron run briefing --wait 0
    """
    cron = await store_of(services).require(id)
    if mode == "due" and not (cron.enabled and 0 < cron.next_run_at_ms <= services.clock.now_ms()):
        return StartedCronJob(cron.id, ran=False)
    job = await run_now(services, cron, idempotency_key or services.new_id())
    ended = await wait_for_end(services, job, wait)
    return StartedCronJob(cron.id, ran=True, run=read_run(ended, services.clock.zone))


@operation("cron.runs", scope="read", strict=False)
async def list_cron_runs(
    services: Services,
    id: Annotated[CronRef, Positional, "Only those of this cron job."] = "",  # noqa: A002
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED), "Maximum number, counted from the newest."] = 50,
) -> CronRunList:
    """Show past due times and how each ended: ran, skipped, failed or missed, and why.

    Examples:
      pal cron runs
      pal cron runs briefing --limit 10 --json
    """
    now, zone = services.clock.now_ms(), services.clock.zone
    if id:  # of one that was for once the history is still there
        rows = await services.jobs.of_lane(DUE, id, limit, until=now)
        rows = rows or await services.jobs.of_lane(DUE, (await store_of(services).require(id)).id, limit, until=now)
    else:
        rows = await services.jobs.between(DUE, 0, now + 1, limit)
    return CronRunList(tuple(read_run(row, zone) for row in rows))


@operation("cron.next", scope="read")
async def list_next_times(
    services: Services,
    id: Annotated[CronRef, Positional, "Of this cron job."] = "",  # noqa: A002
    cron: Annotated[str, Metavar("EXPR"), "Of this expression: 5 fields, or 6 with seconds first."] = "",
    tz: Annotated[str, Metavar("ZONE"), "Its time zone, such as Europe/Berlin; else that of the home."] = "",
    after: Annotated[str, Metavar("ISO"), "Count from this moment, not from now."] = "",
    count: Annotated[int, Meta(ge=1, le=500), "How many."] = 5,
) -> list[str]:
    """Show when a cron expression or a cron job is due next.

    Examples:
      pal cron next --cron "0 8 * * 1-5" --tz Europe/Berlin
      pal cron next briefing --count 3 --json
    """
    zone = zone_of(tz) or services.clock.zone
    start = moment_of(after, zone) if after else services.clock.now_ms()
    if bool(id) == bool(cron):
        raise BadRequest("name a cron job or an expression", hint='for example --cron "0 8 * * 1-5"')
    if cron:
        times = due_times(CronSchedule(cron, tz, 0), start, zone)
    else:
        found = await store_of(services).require(id)
        times = due_times(found.schedule, start, services.clock.zone, found.id)
        zone = zone_of(tz or getattr(found.schedule, "tz", "")) or zone
    return [iso_time(each, zone) for each in await asyncio.to_thread(lambda: list(islice(times, count)))]


@operation("cron.calendar", scope="read")
async def show_calendar(
    services: Services,
    since: Annotated[str, Metavar("TIME"), "From here, ISO; else the beginning of this day."] = "",
    until: Annotated[str, Metavar("TIME"), "Up to here, ISO; else a week later."] = "",
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED), "Maximum number."] = 500,
) -> Calendar:
    """Show what was due and how it ended, and what will be due, with its cost.

    Examples:
      pal cron calendar
      pal cron calendar --since 2026-12-01 --until 2026-12-08 --json
    """
    zone, now = services.clock.zone, services.clock.now_ms()
    today = datetime.fromtimestamp(now / 1000, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    start = moment_of(since, zone) if since else round(today.timestamp() * 1000)
    end = moment_of(until, zone) if until else start + 7 * DAY_MS
    jobs = await store_of(services).all()
    rows = await services.jobs.between(DUE, start, end, limit + 1)
    paused = services.config.section(CronSettings).paused
    return await asyncio.to_thread(make_calendar, jobs, rows, (start, end, now), zone, limit, paused=paused)


@operation("cron.pause", scope="write")
async def pause_cron(services: Services, caller: Caller = LOCAL) -> CronSwitch:
    """Pause everything that is due: cron jobs, reminders and heartbeats. What is due meanwhile is skipped.

    Example:
      pal cron pause
    """
    return await _pause(services, caller, paused=True)


@operation("cron.resume", scope="write")
async def resume_cron(services: Services, caller: Caller = LOCAL) -> CronSwitch:
    """Resume after a pause.

    Example:
      pal cron resume
    """
    return await _pause(services, caller, paused=False)


@operation("cron.status", scope="read", strict=False)
async def show_cron_status(services: Services) -> CronStatus:
    """Show whether cron jobs run, how many there are, and what is due next.

    Example:
      pal cron status
    """
    settings, found = services.config.section(CronSettings), await store_of(services).totals()
    at, zone = found.first.next_run_at_ms if found.first else 0, services.clock.zone
    return CronStatus(
        settings.enabled,
        settings.paused,
        services.jobs.stays,
        found.jobs,
        found.enabled,
        found.failing,
        iso_time(at, zone) if at else None,
        at or None,
        moment_words(at, zone) if at else "",
        found.first.name if found.first else "",
    )


async def status_line(services: Services) -> str:
    """For `pal status`, when there are cron jobs."""
    found = await show_cron_status(services)
    state = "paused" if found.paused else "" if found.enabled else "off"
    following = f"next {found.next_run} {visible(found.next_name)}" if found.next_run else "none is due"
    failing = f"{len(found.failing)} failing" if found.failing else ""
    return f"cron: {', '.join(filter(None, (f'{found.enabled_jobs} of {found.jobs}', state, following, failing)))}"


def store_of(services: Services) -> CronStore:
    return CronStore(services.database, services.new_id)


async def _switch(services: Services, reference: str, *, enabled: bool) -> CronJobInfo:
    cron = await store_of(services).require(reference)
    if cron.is_heartbeat:
        raise of_the_config()
    if enabled and cron.state.disabled_why == NOT_APPROVED:
        raise BadRequest(f"the cron job {cron.name!r} {NOT_APPROVED}", hint=f"pal cron approve {cron.id}")
    state = replace(cron.state, consecutive_errors=0, disabled_why="") if enabled else cron.state
    return info_of(services, await save(services, replace(cron, enabled=enabled, state=state)))


async def _pause(services: Services, caller: Caller, *, paused: bool) -> CronSwitch:
    changed = await asyncio.to_thread(merge_config, services, {"cron": {"paused": paused}}, caller)
    publish_cron(services, "updated")
    return CronSwitch(paused, not changed.noop)


def _is_outside(cron: CronJob) -> bool:
    return cron.origin == Origin.OUTSIDE and not isinstance(cron.payload, CommandPayload)


def _command_of(cron: CronJob) -> CommandPayload:
    if not isinstance(cron.payload, CommandPayload):
        raise BadRequest(
            f"the cron job {cron.name!r} has neither a command nor text from outside: it needs no approval"
        )
    return cron.payload
