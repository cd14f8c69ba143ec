"""Stores cron jobs, and plans their due times: each is a durable job of the kind schedule.due, committed with the
change that makes it due. There is one row for each due time, whatever happens: its idempotency key names the cron job
and the moment. One that was planned and is not due yet goes when its cron job is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo
from functools import partial

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from palinurus.domain.clock import NewId
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.extensions.schedule.catch_up import OVERDUE, MissedTimes
from palinurus.extensions.schedule.cron_job import CronJob, DueOutcome, DueTime
from palinurus.extensions.schedule.times import due_times, times_passed
from palinurus.storage.database import Database
from palinurus.storage.jobs import Job, State, add_job, cancel_job, change_job, open_lanes
from palinurus.storage.transaction import Transaction, declare_queries, decoded, encoded

DUE = "schedule.due"
BATCH = 500  # rows of missed due times in one commit
ChangeJob = Callable[[CronJob], CronJob | None]
"""Returns the cron job as it is from now on; None removes it."""

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

    async def listed(
        self, agent: str, limit: int, offset: int = 0, *, disabled: bool
    ) -> tuple[list[CronJob], int, str]:
        """What is due first comes first, and what is disabled last; how many there are, and a mark of the whole list.

        An empty agent: of all.
        """
        wanted = {"agent": agent, "disabled": int(disabled)}

        def work(tx: Transaction) -> tuple[list[CronJob], int, str]:
            rows = tx.all("cron_jobs.listed", **wanted, limit=limit, offset=offset)
            total, changed, due = tx.one("cron_jobs.listed_count", **wanted)
            return [_read(row) for (row,) in rows], total, f"{total}-{changed}-{due}"

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
        """Stores a new or changed cron job and its next due time."""
        return await self._database.write(lambda tx: save_cron_job(tx, job, now, zone, self._new_id))

    async def remove(self, job_id: str, now: int, zone: tzinfo) -> bool:
        """Removes it with the due time that was planned."""
        return await self._database.write(lambda tx: _change(tx, job_id, lambda _: None, now, zone, self._new_id))

    async def change(self, job_id: str, work: Callable[[CronJob], CronJob]) -> CronJob | None:
        """Changes its state, not when it is due. None: it was removed."""
        return await self._database.write(lambda tx: change_cron_job(tx, job_id, work))

    async def begin(self, due: DueTime, now: int, zone: tzinfo) -> tuple[CronJob | None, Job | None]:
        """Marks that a due time is acted on, and adds the one after it. No cron job: it has changed or was removed."""

        def work(tx: Transaction) -> tuple[CronJob | None, Job | None]:
            job = find_cron_job(tx, due.cron_job)
            if job is None or (job.revision != due.revision and not due.by_hand):
                return None, None
            job = replace(job, state=replace(job.state, running_at_ms=due.at, retries=0))
            return (put_cron_job(tx, job), None) if due.by_hand else _plan(tx, job, due.at, now, zone, self._new_id)

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

    async def miss(
        self, held: Job, due: DueTime, missed: MissedTimes, now: int, zone: tzinfo
    ) -> tuple[CronJob | None, Job | None]:
        """Ends a due time as missed, adds a row for each further one that was, and the one that is run then. No cron
        job: it has changed or was removed."""
        for first in range(0, len(missed.times), BATCH):  # if it is killed meanwhile, the next process does the same
            times = missed.times[first : first + BATCH]
            await self._database.write(partial(self._add_missed, due=due, times=times, now=now))

        def work(tx: Transaction) -> tuple[CronJob | None, Job | None]:
            job = find_cron_job(tx, due.cron_job)
            if job is None or job.revision != due.revision:
                return None, None
            change_job(tx, held, replace(held, state="missed", lease_until=0, trouble=missed.why))
            is_over = missed.then is None
            job = replace(job, enabled=job.enabled and not is_over, state=replace(job.state, last_status="missed"))
            return _plan(tx, job, (missed.then or 0) - 1, now, zone, self._new_id)

        return await self._database.write(work)

    def _add_missed(self, tx: Transaction, due: DueTime, times: Sequence[int], now: int) -> None:
        job = find_cron_job(tx, due.cron_job)
        if job is not None and job.revision == due.revision:
            _add_missed(tx, job, times, now, self._new_id)

    async def end(self, held: Job, outcome: DueOutcome, job_id: str, work: ChangeJob, now: int, zone: tzinfo) -> bool:
        """Ends a due time together with the change of its cron job. False: the lease is lost."""
        known = Raw(msgspec.json.encode(outcome))
        state: State = "failed" if outcome.status == "failed" else "done"
        ended = replace(
            held, state=state, lease_until=0, outcome=known, trouble=outcome.reason if state == "failed" else ""
        )

        def both(tx: Transaction) -> bool:
            if change_job(tx, held, ended) is None:
                return False
            _change(tx, job_id, work, now, zone, self._new_id)
            return True

        return await self._database.write(both)

    async def fail(self, job_id: str, work: Callable[[CronJob], CronJob], now: int, zone: tzinfo) -> CronJob | None:
        """Changes its state after a failure; if that disables it, the due time that was planned goes too."""

        def both(tx: Transaction) -> CronJob | None:
            _change(tx, job_id, work, now, zone, self._new_id)
            return find_cron_job(tx, job_id)

        return await self._database.write(both)

    async def end_failed(self, held: Job, outcome: DueOutcome) -> None:
        """Ends a due time as failed, with what is known of it."""
        known = Raw(msgspec.json.encode(outcome))
        failed = replace(held, state="failed", lease_until=0, outcome=known, trouble=outcome.reason)
        await self._database.write(lambda tx: change_job(tx, held, failed))


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
    before = find_cron_job(tx, job.id)
    saved = replace(job, updated_at_ms=now, created_at_ms=job.created_at_ms or now, next_run_at_ms=0)
    if before is not None:
        _take_back(tx, before, now, zone, new_id)
        state = replace(job.state, running_at_ms=before.state.running_at_ms, retries=before.state.retries)
        saved = replace(saved, revision=before.revision + 1, state=state)
    return _plan(tx, saved, now, now, zone, new_id)


def due_job(job: CronJob, at: int, now: int, new_id: NewId) -> Job:
    due = DueTime(job.id, job.name, job.agent_id, job.revision, at, kind=job.kind)
    return Job(new_id(), DUE, job.id, _key(job, at), Raw(msgspec.json.encode(due)), added_at=now, due_at=at)


def _key(job: CronJob, at: int) -> str:
    return f"{job.id}:{at}"


def _plan(
    tx: Transaction, job: CronJob, after: int, now: int, zone: tzinfo, new_id: NewId
) -> tuple[CronJob, Job | None]:
    """Adds the first due time after a moment that has not ended yet: after the clock was set back some have. Those that
    were missed are due again then."""
    for at in due_times(job.schedule, after, zone, job.id) if job.enabled else ():
        row = due_job(job, at, now, new_id)
        cancel_job(tx, DUE, row.idempotency_key, now)
        if add_job(tx, row, 0) is row:
            return put_cron_job(tx, replace(job, next_run_at_ms=at)), row
    return put_cron_job(tx, replace(job, next_run_at_ms=0)), None


def _plan_again(tx: Transaction, job: CronJob, now: int, zone: tzinfo, new_id: NewId) -> Job | None:
    """The first due time from now on that has no row yet: one that a person dropped stays dropped."""
    why = "has no due time any more"
    try:
        row = _plan(tx, job, now, now, zone, new_id)[1]
    except BadRequest as error:  # of another release
        row, why = None, f"is never due: {error}"
    if row is None:
        put_cron_job(tx, replace(job, enabled=False, next_run_at_ms=0, state=replace(job.state, disabled_why=why)))
    return row


def _take_back(tx: Transaction, job: CronJob, now: int, zone: tzinfo, new_id: NewId) -> None:
    """Removes the due time that was planned. If it waits for a run that has not ended, it is skipped when it comes, and
    those that have passed after it are missed."""
    at = job.next_run_at_ms
    if at and not cancel_job(tx, DUE, _key(job, at), now):
        _add_missed(tx, job, times_passed(job.schedule, at, now, zone, job.id), now, new_id)


def _change(tx: Transaction, job_id: str, work: ChangeJob, now: int, zone: tzinfo, new_id: NewId) -> bool:
    """False: there is no such cron job."""
    job = find_cron_job(tx, job_id)
    if job is None:
        return False
    after = work(job)
    if after is None or not after.enabled:
        _take_back(tx, job, now, zone, new_id)
    if after is None:
        tx.run("cron_jobs.remove", id=job_id)
    else:
        put_cron_job(tx, after if after.enabled else replace(after, next_run_at_ms=0))
    return True


def _add_missed(tx: Transaction, job: CronJob, times: Sequence[int], now: int, new_id: NewId) -> None:
    for at in times:
        add_job(tx, replace(due_job(job, at, now, new_id), state="missed", trouble=OVERDUE), 0)


def _read(row: str) -> CronJob:
    return decoded(row, CronJob, "the row of a cron job")
