"""Stores cron jobs, and plans their due times: each is a durable job of the kind schedule.due, committed with the
change that makes it due. There is one row for each due time, whatever happens: its idempotency key names the cron job,
its revision and the moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo
from functools import partial
from itertools import islice, takewhile

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from palinurus.domain.clock import NewId
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.extensions.schedule.cron_job import CronJob, DueOutcome, DueTime
from palinurus.extensions.schedule.times import due_times
from palinurus.storage.database import Database
from palinurus.storage.jobs import Job, State, add_job, change_job, open_lanes
from palinurus.storage.transaction import Transaction, declare_queries, decoded, encoded

DUE = "schedule.due"
MOST_MISSED = 1000  # rows for due times that passed while the machine slept; the rest is named in the last of them
MOST_DROPPED = 100  # due times that a person has dropped beforehand
OVERDUE = "it was due while Palinurus was not running or the run before had not ended"

declare_queries("cron_jobs", __file__)


class CronTotals(Struct, frozen=True):
    jobs: int
    enabled: int
    first: CronJob | None  # that is due next
    failing: tuple[str, ...]  # names of those whose last run failed, the first few


class CronStore:
    """When a write returns it is on the disk."""

    def __init__(self, database: Database, new_id: NewId) -> None:
        self._database = database
        self._new_id = new_id

    async def all(self) -> list[CronJob]:
        return await self._database.read(lambda tx: [_read(row) for (row,) in tx.each("cron_jobs.all")])

    async def listed(self, agent: str, limit: int, *, disabled: bool) -> tuple[list[CronJob], int]:
        """What is due first comes first, and what is disabled last; and how many there are. An empty agent: of all."""
        wanted = {"agent": agent, "disabled": int(disabled)}

        def work(tx: Transaction) -> tuple[list[CronJob], int]:
            rows = tx.all("cron_jobs.listed", **wanted, limit=limit)
            return [_read(row) for (row,) in rows], tx.value("cron_jobs.listed_count", **wanted)

        return await self._database.read(work)

    async def totals(self) -> CronTotals:
        def work(tx: Transaction) -> CronTotals:
            jobs, enabled = tx.one("cron_jobs.totals")
            first = tx.value("cron_jobs.next")
            failing = tuple(_read(row).name for (row,) in tx.all("cron_jobs.failing"))
            return CronTotals(jobs, enabled or 0, None if first is None else _read(first), failing)

        return await self._database.read(work)

    async def find(self, job_id: str) -> CronJob | None:
        row = await self._database.read(lambda tx: tx.value("cron_jobs.find", id=job_id))
        return None if row is None else _read(row)

    async def require(self, reference: str) -> CronJob:
        """By its id, the beginning of it, or its name. Raises NotFound."""
        wanted = reference.strip()
        rows = await self._database.read(lambda tx: tx.all("cron_jobs.beginning", beginning=wanted)) if wanted else []
        found = [_read(row) for (row,) in rows]
        if len(found) == 1 or any(each.id == wanted for each in found):
            return found[0]
        rows = await self._database.read(lambda tx: tx.all("cron_jobs.named", name=wanted)) if wanted else []
        named = [_read(row) for (row,) in rows]
        if len(named) == 1:
            return named[0]
        what = "more than one cron job is called" if named or found else "there is no cron job"
        raise NotFound(f"{what} {reference[:80]!r}", hint="`pal cron list` shows their ids and names")

    async def save(self, job: CronJob, now: int, zone: tzinfo) -> tuple[CronJob, Job | None]:
        """Stores a new or changed cron job and its next due time; that of an earlier revision is skipped."""
        return await self._database.write(lambda tx: save_cron_job(tx, job, now, zone, self._new_id))

    async def remove(self, job_id: str) -> bool:
        return bool(await self._database.write(lambda tx: tx.run("cron_jobs.remove", id=job_id)))

    async def change(self, job_id: str, work: Callable[[CronJob], CronJob]) -> CronJob | None:
        """Changes its state, not when it is due. None: it was removed."""
        return await self._database.write(lambda tx: change_cron_job(tx, job_id, work))

    async def plan_next(self, due: DueTime, now: int, zone: tzinfo) -> Job | None:
        """Adds the due time after this one. None: there is none, or the cron job has changed."""

        def work(tx: Transaction) -> Job | None:
            job = find_cron_job(tx, due.cron_job)
            if job is None or job.revision != due.revision or due.by_hand:
                return None
            return _add_next(tx, job, due.at, now, zone, self._new_id)

        return await self._database.write(work)

    async def plan_missing(self, now: int, zone: tzinfo) -> list[Job]:
        """Adds a due time for each enabled cron job that has none; one that cannot be due any more is disabled."""

        def look(tx: Transaction) -> list[str]:
            planned = open_lanes(tx, DUE)
            return [job_id for (job_id,) in tx.all("cron_jobs.enabled") if job_id not in planned]

        def work(job_id: str, tx: Transaction) -> Job | None:
            job = find_cron_job(tx, job_id)
            return None if job is None or not job.enabled else _plan_again(tx, job, now, zone, self._new_id)

        missing = await self._database.read(look)
        found = [await self._database.write(partial(work, job_id)) for job_id in missing]
        return [row for row in found if row is not None]

    async def miss(self, held: Job, due: DueTime, missed: Sequence[int], then: int | None, now: int) -> Job | None:
        """Ends a due time as missed, adds a row for each further one that was, and the one that is due `then`; all or
        nothing. None: there is none, or the lease is lost."""

        def work(tx: Transaction) -> Job | None:
            job = find_cron_job(tx, due.cron_job)
            if (
                change_job(tx, held, replace(held, state="missed", lease_until=0, trouble=OVERDUE)) is None
                or job is None
            ):
                return None
            for at in missed:
                row = due_job(job, at, now, self._new_id)
                add_job(tx, replace(row, state="missed", trouble=OVERDUE), 0)
            put_cron_job(tx, replace(job, next_run_at_ms=then or 0))
            return None if then is None else add_job(tx, due_job(job, then, now, self._new_id), 0)

        return await self._database.write(work)

    async def end(self, held: Job, outcome: DueOutcome, job_id: str, work: Callable[[CronJob], CronJob | None]) -> bool:
        """Ends a due time together with the change of its cron job; None removes that. False: the lease is lost."""
        told = Raw(msgspec.json.encode(outcome))
        state: State = "failed" if outcome.status == "failed" else "done"
        ended = replace(
            held, state=state, lease_until=0, outcome=told, trouble=outcome.reason if state == "failed" else ""
        )

        def both(tx: Transaction) -> bool:
            if change_job(tx, held, ended) is None:
                return False
            job = find_cron_job(tx, job_id)
            if job is not None and (after := work(job)) is None:
                tx.run("cron_jobs.remove", id=job_id)
            elif job is not None and after is not None:
                put_cron_job(tx, after)
            return True

        return await self._database.write(both)


def find_cron_job(tx: Transaction, job_id: str) -> CronJob | None:
    row = tx.value("cron_jobs.find", id=job_id)
    return None if row is None else _read(row)


def put_cron_job(tx: Transaction, job: CronJob) -> CronJob:
    tx.run("cron_jobs.put", id=job.id, agent=job.agent_id, enabled=int(job.enabled), row=encoded(job))
    return job


def change_cron_job(tx: Transaction, job_id: str, work: Callable[[CronJob], CronJob]) -> CronJob | None:
    job = find_cron_job(tx, job_id)
    return None if job is None else put_cron_job(tx, work(job))


def save_cron_job(tx: Transaction, job: CronJob, now: int, zone: tzinfo, new_id: NewId) -> tuple[CronJob, Job | None]:
    """The due time of the earlier revision is not looked for: it is skipped when it comes."""
    before = find_cron_job(tx, job.id)
    revision = before.revision + 1 if before else 0
    saved = replace(job, revision=revision, updated_at_ms=now, created_at_ms=job.created_at_ms or now, next_run_at_ms=0)
    if not saved.enabled:
        return put_cron_job(tx, saved), None
    row = _add_next(tx, saved, now, now, zone, new_id)
    found = find_cron_job(tx, job.id)
    return found or saved, row


def due_job(job: CronJob, at: int, now: int, new_id: NewId) -> Job:
    due = DueTime(job.id, job.name, job.agent_id, job.revision, at, kind=job.kind)
    key = f"{job.id}:{job.revision}:{at}"
    return Job(new_id(), DUE, job.id, key, Raw(msgspec.json.encode(due)), added_at=now, due_at=at)


def times_passed(job: CronJob, after: int, now: int, zone: tzinfo) -> list[int]:
    """Due times after one, up to now; the earliest are left out when there are too many."""
    passed = takewhile(lambda at: at <= now, due_times(job.schedule, after, zone, job.id))
    found = list(islice(passed, MOST_MISSED))
    if len(found) == MOST_MISSED:  # the newest decides what is run
        newest = newest_before(job, now, zone)
        found = [*found, newest] if newest > found[-1] else found
    return found


def newest_before(job: CronJob, now: int, zone: tzinfo) -> int:
    """The last due time up to now, found without walking through all before it."""
    span = 60_000
    while True:
        times = list(islice(takewhile(lambda at: at <= now, due_times(job.schedule, now - span, zone, job.id)), 10_000))
        if times:
            return times[-1]
        span *= 4


def _plan_again(tx: Transaction, job: CronJob, now: int, zone: tzinfo, new_id: NewId) -> Job | None:
    """The first due time from now on that has no row yet: one that a person dropped stays dropped."""
    try:
        for at in islice(due_times(job.schedule, now, zone, job.id), MOST_DROPPED):
            row = add_job(tx, due_job(job, at, now, new_id), 0)
            if row.state == "waiting":
                put_cron_job(tx, replace(job, next_run_at_ms=at))
                return row
        why = "has no due time any more"
    except BadRequest as error:  # of another release
        why = f"is never due: {error}"
    put_cron_job(tx, replace(job, enabled=False, next_run_at_ms=0, state=replace(job.state, disabled_why=why)))
    return None


def _add_next(tx: Transaction, job: CronJob, after: int, now: int, zone: tzinfo, new_id: NewId) -> Job | None:
    at = next(due_times(job.schedule, after, zone, job.id), None)
    put_cron_job(tx, replace(job, next_run_at_ms=at or 0))
    return None if at is None else add_job(tx, due_job(job, at, now, new_id), 0)


def _read(row: str) -> CronJob:
    return decoded(row, CronJob, "the row of a cron job")
