"""What was due and how it ended, and what will be due: rows of due times, and times that are computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import tzinfo
from heapq import merge
from itertools import islice, takewhile
from typing import Literal

import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.extensions.schedule.cron_job import CronJob, DueKind, DueOutcome, DueTime
from palinurus.extensions.schedule.times import due_times, iso_time
from palinurus.storage.jobs import Job
from palinurus.storage.transaction import decoded

RunStatus = Literal["ran", "skipped", "failed", "missed", "waiting", "running"]
_STATES: dict[str, RunStatus] = {
    "waiting": "waiting",
    "retry": "waiting",
    "running": "running",
    "failed": "failed",
    "ambiguous": "failed",
    "missed": "missed",
    "dropped": "skipped",
}


class CronRun(Struct, frozen=True, rename="camel"):
    """One due time that has a row."""

    cron_job: str
    name: str
    agent_id: str
    kind: DueKind
    at: str  # ISO, when it was due
    at_ms: int
    status: RunStatus
    reason: str = ""
    by_hand: bool = False
    imported: bool = False  # it was run by the program from which the cron job came
    run_id: str = ""
    session_key: str = ""
    duration_ms: int = 0
    tokens: int = 0
    cost: float | None = None
    text: str = ""
    retry_at_ms: int | None = None  # a failed attempt is repeated then


class CalendarEntry(Struct, frozen=True, rename="camel"):
    """A due time: one that has passed has an outcome, one that comes a forecast."""

    cron_job: str
    name: str
    agent_id: str
    kind: DueKind
    at: str
    at_ms: int
    status: RunStatus | Literal["planned"]
    reason: str = ""
    run_id: str = ""
    cost: float | None = None  # what it cost; None: unknown, or it has not run
    forecast: float | None = None  # what it will cost, by the mean of past runs; None: unknown


class Calendar(Struct, frozen=True, rename="camel"):
    since: str
    until: str
    now: str
    paused: bool
    entries: tuple[CalendarEntry, ...]  # oldest first
    cut: bool  # there are more than were asked for
    cost: float  # of the entries that ran
    forecast: float  # of the entries that come
    unknown: int  # entries whose cost or forecast is unknown


def read_run(job: Job, zone: tzinfo) -> CronRun:
    due = decoded(bytes(job.payload), DueTime, f"the due time {job.id}")
    outcome = None if job.outcome is None else msgspec.json.decode(job.outcome, type=DueOutcome | None)
    run = CronRun(
        due.cron_job,
        due.name,
        due.agent,
        due.kind,
        iso_time(due.at, zone),
        due.at,
        outcome.status if outcome else _STATES.get(job.state, "failed"),
        (outcome.reason if outcome else "") or ("dropped by a person" if job.state == "dropped" else job.trouble),
        due.by_hand,
        due.imported,
        retry_at_ms=job.due_at if job.state == "retry" else None,
    )
    if outcome is None:
        return run
    return msgspec.structs.replace(
        run,
        run_id=outcome.run_id,
        session_key=outcome.session_key,
        duration_ms=outcome.duration_ms,
        tokens=outcome.tokens,
        cost=outcome.cost if outcome.run_id else 0.0,
        text=outcome.text,
    )


def forecast_of(cron: CronJob) -> float | None:
    """What its next run will cost in US dollars, by the mean of its runs; None: unknown."""
    if not cron.calls_model:
        return 0.0
    return cron.state.cost / cron.state.priced_runs if cron.state.priced_runs else None


def make_calendar(
    jobs: Sequence[CronJob], rows: Sequence[Job], span: tuple[int, int, int], zone: tzinfo, limit: int, *, paused: bool
) -> Calendar:
    """`rows`: the newest first, one more than the limit if there are more; `span`: since, until, now."""
    since, until, now = span
    past = [_entry(read_run(row, zone)) for row in reversed(rows) if row.state != "waiting" or row.due_at <= now]
    left = max(0, limit - len(past))
    coming = [] if paused else list(islice(_coming(jobs, max(since - 1, now), until, zone), left + 1))
    entries = sorted([*past[-limit:], *coming[:left]], key=lambda each: (each.at_ms, each.name))
    costs = [each.cost if each.status != "planned" else each.forecast for each in entries]
    return Calendar(
        iso_time(since, zone),
        iso_time(until, zone),
        iso_time(now, zone),
        paused,
        tuple(entries),
        len(rows) > limit or len(coming) > left,
        sum(each.cost or 0 for each in entries),
        sum(each.forecast or 0 for each in entries),
        sum(cost is None for cost in costs),
    )


def _coming(jobs: Iterable[CronJob], after: int, until: int, zone: tzinfo) -> Iterator[CalendarEntry]:
    """In order; each is computed only when it is asked for."""
    active = [job for job in jobs if job.enabled and job.next_run_at_ms]
    for at, number in merge(*(_times(job, number, after, until, zone) for number, job in enumerate(active))):
        job = active[number]
        yield CalendarEntry(
            job.id,
            job.name,
            job.agent_id,
            job.kind,
            iso_time(at, zone),
            at,
            "planned",
            forecast=forecast_of(job),
        )


def _times(job: CronJob, number: int, after: int, until: int, zone: tzinfo) -> Iterator[tuple[int, int]]:
    """The first is known; the others are computed only if they are asked for."""
    if after < job.next_run_at_ms < until:
        yield job.next_run_at_ms, number
        after = job.next_run_at_ms
    elif job.next_run_at_ms >= until:
        return
    try:
        for at in takewhile(lambda at: at < until, due_times(job.schedule, after, zone, job.id)):
            yield at, number
    except BadRequest:  # a schedule of another release is due at no time that we know; doctor names it
        return


def _entry(run: CronRun) -> CalendarEntry:
    return CalendarEntry(
        run.cron_job,
        run.name,
        run.agent_id,
        run.kind,
        run.at,
        run.at_ms,
        run.status,
        run.reason,
        run.run_id,
        run.cost if run.status in ("ran", "failed") else 0.0,
    )
