"""Runs what is due. One due time is one durable job: its row is committed before anything is done, the row of the next
due time is committed before this one is acted on, and its end is committed with the state of its cron job.

A run is submitted under an idempotency key that follows from the due time, so that after any crash it is continued and
not repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec.structs import replace

from palinurus.agent.reply import BY_USER
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, JobFailed, PalinurusError, QueueFull, StorageError
from palinurus.extensions.schedule.catch_up import LATE_MS, MissedTimes, find_missed
from palinurus.extensions.schedule.cron_job import AtSchedule, CatchUp, CronJob, CronState, DueOutcome, DueTime
from palinurus.extensions.schedule.events import publish_cron
from palinurus.extensions.schedule.heartbeat import beat
from palinurus.extensions.schedule.payloads import act_on, run_message, tell_owner
from palinurus.extensions.schedule.settings import CronSettings
from palinurus.extensions.schedule.store import DUE, CronStore
from palinurus.extensions.schedule.times import next_time
from palinurus.operations.services import Services
from palinurus.storage.jobs import RUN, Job, JobKind, RetryPolicy

PAUSES = (30, 60, 300, 900, 3600)  # seconds before a failed run is tried again
MOST_FAILURES = 10  # in a row; then it is disabled
MOST_ATTEMPTS = 100  # at one due time, with those that a crash has ended
LONGEST_RUN = 24 * 3600.0  # seconds; a run has a limit of its own
LOOK_SECONDS = 0.1  # between two looks at a due time that is waited for
CHANGED = "the cron job was changed"
REMOVED = "the cron job was removed"
NO_AGENT = "there is no agent"
ChangeState = Callable[[CronJob, DueTime, DueOutcome, int], CronJob | None]
"""The cron job after a due time that ended at this moment."""

log = logging.getLogger(__name__)


async def run_due(services: Services, due: DueTime, job: Job) -> DueOutcome | None:
    """The handler of a due time. None: it was missed, and its row says so."""
    publish_cron(services, "started", due.cron_job, runAtMs=due.at)
    status = "waiting"
    try:
        outcome = await _run_due(services, due, job)
        status = outcome.status if outcome is not None else "missed"
        return outcome
    finally:
        publish_cron(services, "finished", due.cron_job, runAtMs=due.at, status=status)


async def _run_due(services: Services, due: DueTime, job: Job) -> DueOutcome | None:
    store = CronStore(services.database, services.new_id)
    cron = await store.find(due.cron_job)
    if cron is None:
        return await _finish_removed(services, job)
    is_begun = cron.state.running_at_ms == due.at
    if is_begun and cron.state.disabled_why and not due.by_hand:
        return await _end_disabled(services, cron, due, job, DueOutcome("failed", cron.state.last_error))
    run_key = f"{DUE}:{job.id}:{cron.state.retries if is_begun else 0}"  # one that has failed is followed by another
    is_going_on = await services.jobs.find(RUN, run_key) is not None
    if not is_going_on and (why := _why_skipped(cron, due)):
        return DueOutcome("skipped", why)
    now, zone = services.clock.now_ms(), services.clock.zone
    if not is_begun:
        missed = await _find_missed(services, cron, due)
        move = store.begin(due, now, zone) if missed is None else store.miss(job, due, missed, now, zone)
        begun, row = await move
        if row is not None:
            services.jobs.expect(row)
        if begun is None or missed is not None:
            return None if begun else DueOutcome("skipped", CHANGED)
        cron = begun
    outcome = DueOutcome("skipped", "" if is_going_on else _why_paused(services, cron, due))
    if not outcome.reason:
        outcome = await _act(services, cron, due, job, run_key)
        outcome = replace(outcome, duration_ms=outcome.duration_ms or services.clock.now_ms() - now)
    if outcome.status == "failed" and outcome.reason != BY_USER:
        return await _fail(services, cron, due, job, outcome)
    return await _end(services, due, job, outcome, _ended)


async def _finish_removed(services: Services, job: Job) -> DueOutcome:
    """Of a cron job that was removed: a run that had begun before, in a process that ended, goes on."""
    keys = (f"{DUE}:{job.id}:{retries}" for retries in range(len(PAUSES), -1, -1))
    for key in keys:
        if (begun := await services.jobs.find(RUN, key)) is not None:
            outcome = await run_message(services, msgspec.json.decode(begun.payload, type=Inbound))
            if outcome.status == "ran":
                return replace(outcome, reason=f"{REMOVED}: what it said is in its session only")
            break
    return DueOutcome("skipped", REMOVED)


async def _end(services: Services, due: DueTime, job: Job, outcome: DueOutcome, change: ChangeState) -> DueOutcome:
    now, zone = services.clock.now_ms(), services.clock.zone
    store = CronStore(services.database, services.new_id)
    await store.end(job, outcome, due.cron_job, lambda cron: change(cron, due, outcome, now), now, zone)
    return outcome


async def _act(services: Services, cron: CronJob, due: DueTime, job: Job, run_key: str) -> DueOutcome:
    if job.attempts > MOST_ATTEMPTS:  # it may be what crashes the process
        return DueOutcome("failed", f"given up after {job.attempts} attempts: {job.trouble}")
    try:
        if cron.is_heartbeat:
            return await beat(services, cron, due, run_key)
        return await act_on(services, cron, run_key)
    except JobFailed:
        raise
    except (QueueFull, StorageError) as error:
        raise JobFailed(str(error), retry_after=PAUSES[0]) from error
    except PalinurusError as error:
        return DueOutcome("failed", str(error))


def _why_skipped(cron: CronJob, due: DueTime) -> str:
    if due.by_hand:
        return ""
    if cron.revision != due.revision:
        return CHANGED
    return "" if cron.enabled else "the cron job is disabled"


def _why_paused(services: Services, cron: CronJob, due: DueTime) -> str:
    if cron.agent_id not in services.agents.ids:
        return f"{NO_AGENT} {cron.agent_id!r}"
    settings = services.config.section(CronSettings)
    if due.by_hand:
        return ""
    if not settings.enabled and not cron.is_heartbeat:
        return "cron.enabled is false"
    return "everything is paused" if settings.paused else ""


async def _find_missed(services: Services, cron: CronJob, due: DueTime) -> MissedTimes | None:
    if due.by_hand:
        return None
    now, zone = services.clock.now_ms(), services.clock.zone
    then = next_time(cron.schedule, due.at, zone, cron.id)
    if now - due.at <= LATE_MS and (then is None or then > now):
        return None  # as nearly always; what has passed may be thousands
    return await asyncio.to_thread(find_missed, cron, catch_up_of(services, cron), due.at, now, zone)


def catch_up_of(services: Services, cron: CronJob) -> CatchUp:
    return cron.catch_up or ("skip" if services.config.section(CronSettings).skip_missed_jobs else "once")


async def _fail(services: Services, cron: CronJob, due: DueTime, job: Job, outcome: DueOutcome) -> DueOutcome:
    """Ends a due time as failed; raises JobFailed if it is tried again. After too many in a row the cron job is
    disabled, and its owner told before the due time ends."""
    now, zone, retries = services.clock.now_ms(), services.clock.zone, cron.state.retries
    pause = PAUSES[min(retries, len(PAUSES) - 1)]
    then = next_time(cron.schedule, now, zone, cron.id)
    again = retries < len(PAUSES) and job.attempts <= MOST_ATTEMPTS and (then is None or now + pause * 1000 < then)
    if not again and not _ended_badly(cron, due, outcome, now).state.disabled_why:
        return await _end(services, due, job, outcome, _ended_badly)
    store = CronStore(services.database, services.new_id)
    change = partial(_ended_badly, due=due, outcome=outcome, now=now, again=again)
    changed = await store.fail(cron.id, change, now, zone)
    if changed is None or not changed.state.disabled_why or cron.state.disabled_why:
        raise JobFailed(outcome.reason, retry_after=pause)
    log.warning("cron job %s (%s): %s", cron.id, cron.name, changed.state.disabled_why)
    return await _end_disabled(services, changed, due, job, outcome)


async def _end_disabled(services: Services, cron: CronJob, due: DueTime, job: Job, outcome: DueOutcome) -> DueOutcome:
    """Raises JobFailed while the owner cannot be told."""
    text = f"The cron job {cron.name!r} {cron.state.disabled_why} Last error: {outcome.reason}"
    await tell_owner(services, cron, text, f"{DUE}:{job.id}:disabled")
    return await _end(services, due, job, outcome, _ended)


def _ended_badly(cron: CronJob, due: DueTime, outcome: DueOutcome, now: int, *, again: bool = False) -> CronJob:
    failures = cron.state.consecutive_errors + 1
    why = ""
    if failures >= MOST_FAILURES:
        why = f"was disabled after {failures} failures in a row; `pal cron enable {cron.id}` enables it again."
    elif _is_over(cron, due, now) and not again:
        why = f"has failed and is not tried again; `pal cron run {cron.id}` runs it."
    state = replace(_state(cron, outcome, now, failures), disabled_why=why)
    if again or why:  # there is more to do: another run, or a notice
        state = replace(state, running_at_ms=cron.state.running_at_ms, retries=cron.state.retries + 1)
    return replace(cron, enabled=cron.enabled and not why, state=state)


def _ended(cron: CronJob, due: DueTime, outcome: DueOutcome, now: int) -> CronJob | None:
    """None: one that was for once is removed. One that was skipped stays, and says why."""
    ran = outcome.status == "ran"
    after = replace(cron, state=_state(cron, outcome, now, 0 if ran else cron.state.consecutive_errors))
    if not _is_over(cron, due, now) and not outcome.reason.startswith(NO_AGENT):
        return after
    if ran and cron.delete_after_run:
        return None
    why = after.state.disabled_why if ran or outcome.status == "failed" else f"was skipped: {outcome.reason}"
    return replace(after, enabled=False, state=replace(after.state, disabled_why=why))


def _is_over(cron: CronJob, due: DueTime, now: int) -> bool:
    """Whether it was for once. If it was changed meanwhile, or was run by hand before, its time is still to come."""
    is_to_come = cron.revision != due.revision or (due.by_hand and cron.next_run_at_ms > now)
    return isinstance(cron.schedule, AtSchedule) and not is_to_come


def _state(cron: CronJob, outcome: DueOutcome, now: int, errors: int) -> CronState:
    return replace(
        cron.state,
        running_at_ms=0,
        retries=0,
        last_run_at_ms=now - outcome.duration_ms,
        last_status=outcome.status,
        last_error=outcome.reason if outcome.status == "failed" else "",
        last_duration_ms=outcome.duration_ms,
        last_run_id=outcome.run_id,
        consecutive_errors=errors,
        runs=cron.state.runs + bool(outcome.run_id),
        cost=cron.state.cost + (outcome.cost or 0.0),
        priced_runs=cron.state.priced_runs + (outcome.cost is not None and outcome.status == "ran"),
        unpriced_runs=cron.state.unpriced_runs + bool(outcome.run_id and outcome.cost is None),
    )


async def run_now(services: Services, cron: CronJob, key: str) -> Job:
    """Runs a cron job at a person's request, besides its due times."""
    now = services.clock.now_ms()
    due = DueTime(cron.id, cron.name, cron.agent_id, cron.revision, now, by_hand=True, kind=cron.kind)
    return await services.jobs.add(DUE, due, f"{cron.id}:by-hand:{key}", lane=cron.id)


async def remove(services: Services, job_id: str) -> bool:
    """False: there is no such cron job."""
    store = CronStore(services.database, services.new_id)
    was_there = await store.remove(job_id, services.clock.now_ms(), services.clock.zone)
    publish_cron(services, "removed", job_id)
    return was_there


async def wait_for_end(services: Services, job: Job, seconds: float) -> Job:
    """A due time when it has ended, or after so many seconds. A process that does not stay does it by itself."""
    if not services.jobs.stays:
        await services.jobs.perform(job)
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        now = await services.jobs.find(DUE, job.idempotency_key) or job
        if now.state not in ("waiting", "running") or asyncio.get_running_loop().time() >= deadline:
            return now
        await asyncio.sleep(LOOK_SECONDS)


async def save(services: Services, cron: CronJob) -> CronJob:
    """Stores a cron job; its next due time is on the disk when this returns. Raises BadRequest."""
    store = CronStore(services.database, services.new_id)
    now, zone = services.clock.now_ms(), services.clock.zone
    if cron.enabled and next_time(cron.schedule, now, zone, cron.id) is None:
        raise BadRequest("this time has passed", hint="name a time in the future")
    saved, row = await store.save(cron, now, zone)
    if row is not None:
        services.jobs.expect(row)
    publish_cron(services, "updated" if saved.revision else "added", saved.id)
    return saved


async def plan_missing(services: Services) -> None:
    """Plans again what is enabled and has no due time: a person dropped it, or nobody could read its row."""
    for row in await CronStore(services.database, services.new_id).plan_missing(
        services.clock.now_ms(), services.clock.zone
    ):
        services.jobs.expect(row)


DUE_KIND = JobKind(
    DUE,
    DueTime,
    run_due,
    at_once=32,  # one that waits for its run holds up no reminder
    retry=RetryPolicy(0, PAUSES[-1] * 1000, attempts=10**6, at_least=10**6),  # pauses and the end are the handler's
    on_crash="retry",
    seconds=LONGEST_RUN,
    stays=True,
)
