"""Runs what is due. One due time is one durable job: its row is committed before anything is done, the row of the next
due time is committed before this one is acted on, and its end is committed with the state of its cron job.

A run is submitted under an idempotency key that follows from the due time, so that after any crash it is continued and
not repeated.
"""

from __future__ import annotations

import logging
from itertools import count

from msgspec.structs import replace

from palinurus.dispatch.runs import result_of
from palinurus.domain.errors import BadRequest, JobFailed, PalinurusError, QueueFull, StorageError
from palinurus.domain.events import RunResult
from palinurus.extensions.schedule.cron_job import AtSchedule, CatchUp, CronJob, CronState, DueOutcome, DueTime
from palinurus.extensions.schedule.payloads import act_on, tell_owner
from palinurus.extensions.schedule.settings import CronSettings
from palinurus.extensions.schedule.store import DUE, CronStore, times_passed
from palinurus.extensions.schedule.times import next_time
from palinurus.operations.services import Services
from palinurus.storage.jobs import RUN, Job, JobKind, RetryPolicy

LATE_MS = 60_000  # later than this is overdue
MOST_CAUGHT_UP = 100  # due times that are run after a sleep, where all are wanted
PAUSES = (30, 60, 300, 900, 3600)  # seconds before a failed run is tried again
MOST_FAILURES = 10  # in a row; then it is disabled
LONGEST_RUN = 3600.0  # seconds
NO_AGENT = "there is no agent"

log = logging.getLogger(__name__)


async def run_due(services: Services, due: DueTime, job: Job) -> DueOutcome | None:
    """The handler of a due time. None: it was missed, and its row says so."""
    store = CronStore(services.database, services.new_id)
    cron = await store.find(due.cron_job)
    if why := _why_skipped(cron, due):
        return DueOutcome("skipped", why)
    assert cron is not None  # noqa: S101  # a removed one is skipped
    now, zone = services.clock.now_ms(), services.clock.zone
    if job.attempts == 1 and not due.by_hand and await _is_missed(services, store, cron, due, job):
        return None
    row = await store.plan_next(due, now, zone)
    if row is not None:
        services.jobs.expect(row)
    if cron.agent_id not in services.agents.ids:
        return await _end(services, store, due, job, DueOutcome("skipped", f"{NO_AGENT} {cron.agent_id!r}"))
    if why := _why_paused(services, cron, due):
        return await _end(services, store, due, job, DueOutcome("skipped", why))
    try:
        outcome = await act_on(services, cron, due, await _run_key(services, job))
    except JobFailed:
        raise
    except (QueueFull, StorageError) as error:
        raise JobFailed(str(error), retry_after=PAUSES[0]) from error
    except PalinurusError as error:
        outcome = DueOutcome("failed", str(error))
    ended = services.clock.now_ms()
    outcome = replace(outcome, duration_ms=outcome.duration_ms or ended - now)
    if outcome.status == "failed":
        return await _fail(services, store, cron, job, outcome)
    return await _end(services, store, due, job, outcome)


async def _end(services: Services, store: CronStore, due: DueTime, job: Job, outcome: DueOutcome) -> DueOutcome:
    now = services.clock.now_ms()
    await store.end(job, outcome, due.cron_job, lambda stored: _ended_well(stored, due, outcome, now))
    return outcome


def _why_skipped(cron: CronJob | None, due: DueTime) -> str:
    if cron is None:
        return "the cron job was removed"
    if cron.revision != due.revision and not due.by_hand:
        return "the cron job was changed"
    if due.by_hand:
        return ""
    return "" if cron.enabled else "the cron job is disabled"


def _why_paused(services: Services, cron: CronJob, due: DueTime) -> str:
    settings = services.config.section(CronSettings)
    if due.by_hand:
        return ""
    if not settings.enabled and not cron.is_heartbeat:
        return "cron.enabled is false"
    return "everything is paused" if settings.paused else ""


async def _is_missed(services: Services, store: CronStore, cron: CronJob, due: DueTime, job: Job) -> bool:
    """Decides what becomes of due times that passed. True: this one has ended as missed."""
    now, zone = services.clock.now_ms(), services.clock.zone
    passed = times_passed(cron, due.at, now, zone)
    match catch_up_of(services, cron):
        case "skip" if now - due.at > LATE_MS:
            missed, then = passed, next_time(cron.schedule, now, zone, cron.id)
        case "once" if passed:
            missed, then = passed[:-1], passed[-1]
        case "all" if len(passed) > MOST_CAUGHT_UP:
            missed, then = passed[:-MOST_CAUGHT_UP], passed[-MOST_CAUGHT_UP]
        case _:
            return False
    row = await store.miss(job, due, missed, then, now)
    if row is not None:
        services.jobs.expect(row)
    return True


def catch_up_of(services: Services, cron: CronJob) -> CatchUp:
    return cron.catch_up or ("skip" if services.config.section(CronSettings).skip_missed_jobs else "once")


async def _run_key(services: Services, job: Job) -> str:
    """The idempotency key of the run of a due time: a run that has failed is followed by another one."""
    for number in count():
        key = f"{DUE}:{job.id}:{number}"
        run = await services.jobs.find(RUN, key)
        if run is None or (ended := result_of(run)) is None or not is_failure(ended):
            return key
    raise AssertionError  # it counts for ever


def is_failure(result: RunResult) -> bool:
    return result.status != "ok"


async def _fail(services: Services, store: CronStore, cron: CronJob, job: Job, outcome: DueOutcome) -> DueOutcome:
    """Raises JobFailed if it is tried again. After too many in a row the cron job is disabled."""
    now = services.clock.now_ms()
    pause = PAUSES[min(job.attempts, len(PAUSES)) - 1]
    then = next_time(cron.schedule, now, services.clock.zone, cron.id)
    again = job.attempts <= len(PAUSES) and (then is None or now + pause * 1000 < then)
    if why := _ended_badly(cron, outcome, now, again=again).state.disabled_why:
        log.warning("cron job %s (%s): %s", cron.id, cron.name, why)
        text = f"The cron job {cron.name!r} {why} Last error: {outcome.reason}"
        await tell_owner(services, cron, text, f"{DUE}:{job.id}:disabled")
    elif again:
        await store.change(cron.id, lambda stored: _ended_badly(stored, outcome, now, again=True))
        raise JobFailed(outcome.reason, retry_after=pause)
    else:
        log.warning("cron job %s (%s) failed: %s", cron.id, cron.name, outcome.reason)
    await store.end(job, outcome, cron.id, lambda stored: _ended_badly(stored, outcome, now, again=again))
    return outcome


def _ended_badly(cron: CronJob, outcome: DueOutcome, now: int, *, again: bool) -> CronJob:
    failures = cron.state.consecutive_errors + 1
    why = ""
    if failures >= MOST_FAILURES:
        why = f"was disabled after {failures} failures in a row; `pal cron enable {cron.id}` enables it again."
    elif isinstance(cron.schedule, AtSchedule) and not again:
        why = f"has failed and is not tried again; `pal cron run {cron.id}` runs it."
    state = _state(cron, outcome, now, failures)
    return replace(cron, enabled=cron.enabled and not why, state=replace(state, disabled_why=why))


def _ended_well(cron: CronJob, due: DueTime, outcome: DueOutcome, now: int) -> CronJob | None:
    """None: one that was for once is removed. One that was skipped stays, and says why."""
    ran = outcome.status == "ran"
    after = replace(cron, state=_state(cron, outcome, now, 0 if ran else cron.state.consecutive_errors))
    is_over = isinstance(cron.schedule, AtSchedule) and not (due.by_hand and cron.next_run_at_ms > now)
    if not is_over and not outcome.reason.startswith(NO_AGENT):
        return after
    if ran and cron.delete_after_run:
        return None
    why = "" if ran else f"was skipped: {outcome.reason}"
    return replace(after, enabled=False, state=replace(after.state, disabled_why=why))


def _state(cron: CronJob, outcome: DueOutcome, now: int, errors: int) -> CronState:
    return replace(
        cron.state,
        last_run_at_ms=now,
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


async def save(services: Services, cron: CronJob) -> CronJob:
    """Stores a cron job; its next due time is on the disk when this returns. Raises BadRequest."""
    store = CronStore(services.database, services.new_id)
    now, zone = services.clock.now_ms(), services.clock.zone
    if cron.enabled and next_time(cron.schedule, now, zone, cron.id) is None:
        raise BadRequest("this time has passed", hint="name a time in the future")
    saved, row = await store.save(cron, now, zone)
    if row is not None:
        services.jobs.expect(row)
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
    at_once=16,
    retry=RetryPolicy(longest_ms=PAUSES[-1] * 1000, attempts=20),
    on_crash="retry",
    seconds=LONGEST_RUN,
    stays=True,
)
