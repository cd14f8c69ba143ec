"""Jobs: durable work. The job record, its state machine, and the queue in the home's database.

    waiting → running → done
                      → retry        it did not happen; or it may have, and its kind can be repeated
                      → ambiguous    it may have happened, and repeating it could double it: a person decides
                      → failed       it did not happen, and a retry cannot help
    waiting → missed                 it is long overdue, and its kind is useless later
    waiting, retry, ambiguous, failed → dropped, by a person
    done → failed, or ambiguous      whoever took it says later that it did not happen, or a part of it did not

A job that may have happened never ends as failed, which would claim that it did not. A job is committed before it is
announced. A runner holds a lease and a fencing token that is incremented on each claim: a runner whose lease expired
cannot end a job that another runner has claimed.

Runs (accepted messages) are jobs of the kind "run". The process that holds the home owns them from acceptance on;
dispatch/lanes.py runs them in order. All other kinds are run by dispatch/jobs.py.

The first half of this module is pure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from palinurus.domain.errors import BadRequest, NotFound, QueueFull
from palinurus.storage.database import Database
from palinurus.storage.transaction import Transaction, declare_queries

State = Literal["waiting", "running", "retry", "done", "failed", "ambiguous", "missed", "dropped"]

RUN = "run"  # the kind of accepted messages
MOST_WAITING = 1000  # in one lane
MOST_LANES = 129  # of a kind that are looked for at once: more than the runner serves
MOST_FORGOTTEN = 5_000  # by one commit
LATEST = 2**62  # after every moment
LEFT_BEHIND = "the process ended before the outcome was known"
_UNDECIDED = ("waiting", "retry", "ambiguous", "failed")

declare_queries("jobs", __file__)


class Job(Struct, frozen=True, rename="camel"):
    id: str
    kind: str
    lane: str  # one job at a time per kind and lane
    idempotency_key: str  # unique per kind
    payload: Raw  # JSON, typed by the owner of the kind
    added_at: int = 0
    due_at: int = 0
    state: State = "waiting"
    attempts: int = 0
    lease_until: int = 0  # of the runner
    fence: int = 0  # incremented on each claim, and when a lease is taken away
    outcome: Raw | None = None  # returned by the handler, or of the parts that are done (`note_progress`)
    trouble: str = ""  # why the last attempt failed
    doubtful_at: int = 0  # an attempt ended with unknown outcome
    retried_at: int = 0  # a person requested a retry
    retry_key: str = ""  # the idempotency key of that request

    @property
    def unsure(self) -> bool:
        """Whether it may have happened and no person has approved a repetition since."""
        return self.doubtful_at > self.retried_at


class RetryPolicy(Struct, frozen=True):
    """How often and for how long a job is retried."""

    first_ms: int = 1_000
    longest_ms: int = 600_000
    attempts: int = 500
    age_ms: int = 24 * 3600 * 1000
    at_least: int = 5  # minimum attempts, however old the job is: the machine may have been off for days

    def pause(self, attempts: int, chance: float) -> int:
        """Milliseconds before the next attempt: doubles each time, the second half random."""
        whole = min(self.first_ms << min(attempts - 1, 40), self.longest_ms)
        return round(whole * (0.5 + chance / 2))

    def over(self, attempts: int, since: int, now: int) -> bool:
        """Whether to give up. `since`: when the job was added, or last requested by a person."""
        return attempts >= self.attempts or (now - since >= self.age_ms and attempts >= self.at_least)


USUAL = RetryPolicy()


class JobKind(Struct, frozen=True):
    """The settings of all jobs of one kind."""

    name: str
    payload: Any  # its type
    handler: Callable[[Any, Any, Job], Awaitable[Any]]
    """Called with the services, the payload and the job; its return value is stored as the outcome. It may end the job
    itself, in the transaction of its effect (`finish_job`). Raises JobFailed if it did not happen and a retry may work,
    JobRefused if a retry cannot help; any other exception leaves the outcome unknown.
    """
    at_once: int = 8  # lanes that run at once
    retry: RetryPolicy = USUAL
    on_crash: Literal["retry", "ambiguous"] = "ambiguous"  # "retry": repeating it is harmless
    missed_after_ms: int = 0  # milliseconds after which it is useless; 0: never
    seconds: float = 60.0  # seconds, after which the outcome is unknown
    lease_ms: int = 60_000  # seconds; extended while the job runs
    stays: bool = False  # only a process that stays runs it: nobody who asks one question waits for it


def start_attempt(job: Job, now: int, lease_ms: int) -> Job:
    """Marks the job as running: from now until its outcome is known it may have happened."""
    return msgspec.structs.replace(
        job, state="running", attempts=job.attempts + 1, lease_until=now + lease_ms, fence=job.fence + 1
    )


def complete(job: Job, outcome: Any = None) -> Job:
    return msgspec.structs.replace(
        job, state="done", lease_until=0, outcome=Raw(msgspec.json.encode(outcome)), trouble=""
    )


def postpone(job: Job, why: str, now: int, policy: RetryPolicy, pause: int) -> Job:
    """Schedules a retry after a pause, or gives up if the policy says so."""
    if _is_over(job, policy, now):
        return give_up(job, f"given up after {job.attempts} attempts: {why}")
    return msgspec.structs.replace(job, state="retry", lease_until=0, due_at=now + pause, trouble=why)


def give_up(job: Job, why: str) -> Job:
    state: State = "ambiguous" if job.doubtful_at else "failed"
    return msgspec.structs.replace(job, state=state, lease_until=0, trouble=why)


def mark_doubtful(job: Job, why: str, now: int) -> Job:
    """Marks that the job may have happened. The next runner decides whether it can be repeated."""
    doubt = max(now, job.retried_at + 1)  # even if the clock was changed, the doubt comes after the attempt
    return msgspec.structs.replace(
        job, state="retry", lease_until=0, fence=job.fence + 1, due_at=now, doubtful_at=doubt, trouble=why
    )


def mark_ambiguous(job: Job) -> Job:
    return msgspec.structs.replace(job, state="ambiguous", lease_until=0)


def report_failure(job: Job, why: str, now: int, *, partly: bool) -> Job:
    """Applies what is said of a job after it was done: it did not happen, or a part of it did not. A retry does all."""
    if job.state != "done":
        return job
    failed = msgspec.structs.replace(job, state="failed", outcome=Raw(b"[]"), trouble=why)
    return mark_ambiguous(msgspec.structs.replace(failed, doubtful_at=now)) if partly else failed


def is_due(job: Job, policy: RetryPolicy, now: int) -> bool:
    """Whether the first job of its lane is due. A pause longer than the longest means that the clock was set back."""
    at = job.lease_until if job.state == "running" else job.due_at
    return at <= now or (job.state == "retry" and at - now > policy.longest_ms)


def take_up(job: Job, kind: JobKind, now: int) -> Job:
    """The job's next state when its turn comes: running, unless its kind forbids that."""
    if job.unsure and kind.on_crash == "ambiguous":
        return mark_ambiguous(job)
    if job.unsure and _is_over(job, kind.retry, now):  # it may be what crashes the process
        return give_up(job, f"given up after {job.attempts} attempts: {job.trouble}")
    if kind.missed_after_ms and not job.attempts and now - max(job.due_at, job.retried_at) > kind.missed_after_ms:
        return msgspec.structs.replace(job, state="missed", trouble="Palinurus was not running when it was due")
    return start_attempt(job, now, kind.lease_ms)


def request_retry(job: Job, now: int, key: str) -> Job:
    """Applies a person's request to run the job (again). The same key counts once. Raises BadRequest."""
    if key and job.retry_key == key:
        return job
    if job.state not in _UNDECIDED:
        raise _too_late(job, "done again")
    asked = max(now, job.doubtful_at)
    return msgspec.structs.replace(
        job, state="waiting", due_at=now, attempts=0, retried_at=asked, retry_key=key, trouble=""
    )


def drop(job: Job) -> Job:
    """Applies a person's request to drop the job. Repeating it is harmless. Raises BadRequest."""
    if job.state == "dropped":
        return job
    if job.state not in _UNDECIDED:
        raise _too_late(job, "dropped")
    return msgspec.structs.replace(job, state="dropped")


def _is_over(job: Job, policy: RetryPolicy, now: int) -> bool:
    return policy.over(job.attempts, max(job.added_at, job.retried_at), now)


def _too_late(job: Job, verb: str) -> BadRequest:
    now = {"running": "is running now"}.get(job.state, f"was {job.state}")
    return BadRequest(f"job {job.id} {now} and cannot be {verb}", hint="`pal jobs list` shows its state")


class JobQueue:
    """Stores jobs. When a call that writes returns, its changes are on the disk. The functions below do the same inside
    a transaction, together with other changes.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, job: Job, most: int = MOST_WAITING) -> Job:
        """Stores the job and returns it, or the job that already has the idempotency key.

        Raises QueueFull if `most` jobs are open in its lane (0: no limit), StorageFull if the disk is nearly full.
        """
        if self._database.reserve is not None:
            self._database.reserve.check()
        return await self._database.write(lambda tx: add_job(tx, job, most))

    async def finish(
        self, held: Job, outcome: Any, follow_up: Job | None = None, most: int = MOST_WAITING
    ) -> Job | None:
        """Ends a job as done and adds the job that follows from it, both or neither.

        Returns the second job as stored (as failed if its lane is full). Returns None if there is none, or if `held`
        had already ended, in which case its first outcome stays.
        """
        text = msgspec.json.encode(outcome).decode()

        def work(tx: Transaction) -> Job | None:
            if not _end(tx, held, text) or follow_up is None:
                return None
            try:
                return add_job(tx, follow_up, most)
            except QueueFull as error:
                return add_job(tx, give_up(follow_up, error.message), 0)

        return await self._database.write(work)

    async def find(self, job_id: str) -> Job | None:
        found = await self._rows("job_by_id", id=job_id)
        return _job(found[0]) if found else None

    async def find_by_key(self, kind: str, idempotency_key: str) -> Job | None:
        found = await self._rows("job_by_key", kind=kind, idempotency_key=idempotency_key)
        return _job(found[0]) if found else None

    async def open(self, kind: str) -> list[Job]:
        """Open jobs of a kind, in the order in which they were added."""
        return [_job(row) for row in await self._rows("open_jobs", kind=kind)]

    async def claim(self, kind: JobKind, lane: str, now: int) -> Job | None:
        """Claims the next due job of a lane. Returns None if there is none."""
        return await self._database.write(lambda tx: claim_job(tx, kind, lane, now))

    async def change(self, seen: Job, after: Job) -> Job | None:
        """Stores a change. Returns None if another process changed the job or claimed it after the lease expired."""
        return await self._database.write(lambda tx: change_job(tx, seen, after))

    async def settle(self, kind: JobKind, seen: Job, after: Job, now: int) -> tuple[Job | None, bool]:
        """As `change`, at the end of an attempt; also whether another job of the lane is due."""

        def work(tx: Transaction) -> tuple[Job | None, bool]:
            changed = change_job(tx, seen, after)
            row = tx.one("jobs.next_job", kind=kind.name, lane=seen.lane, now=now)
            return changed, row is not None and is_due(_job(row), kind.retry, now)

        return await self._database.write(work)

    async def note_progress(self, job_id: str, fence: int, outcome: Any) -> bool:
        """Stores what the finished parts of a running job led to: the next attempt finds it. Returns False if another
        process has claimed the job."""
        values = {"id": job_id, "fence": fence, "outcome": msgspec.json.encode(outcome).decode()}
        return bool(await self._database.write(lambda tx: tx.run("jobs.note_progress", **values)))

    async def hurry(self, kind: str, now: int) -> int:
        """Makes jobs of a kind that wait for another attempt due. Returns their number."""
        return await self._database.write(lambda tx: tx.run("jobs.hurry_jobs", kind=kind, now=now))

    async def extend(self, held: Job, until: int) -> bool:
        """Extends the lease of a running job. Returns False if another process has claimed it."""
        return await self.change(held, msgspec.structs.replace(held, lease_until=until)) is not None

    async def decide(self, beginning: str, decide: Callable[[Job], Job], kind: str = "*") -> Job:
        """Applies a person's decision to the job whose id starts with `prefix`, among kinds that match the pattern.

        Raises NotFound, and what `decide` raises.
        """

        def work(tx: Transaction) -> Job:
            rows = tx.all("jobs.jobs_beginning", beginning=beginning, kind=kind) if beginning else []
            seen = _only(beginning, rows)
            after = decide(seen)
            return after if after == seen else (change_job(tx, seen, after) or seen)

        return await self._database.write(work)

    async def release(self, now: int) -> int:
        """Marks jobs that a dead process left running: they may have happened. Returns their number."""

        def work(tx: Transaction) -> int:
            left = [_job(row) for row in tx.all("jobs.running_jobs")]
            for job in left:
                change_job(tx, job, mark_doubtful(job, LEFT_BEHIND, now))
            return len(left)

        return await self._database.write(work) if await self._rows("running_jobs") else 0

    async def due(
        self, now: int, most: int = MOST_LANES, longest: Mapping[str, int] | None = None
    ) -> tuple[list[tuple[str, str]], int | None]:
        """Kinds and lanes with due jobs, `most` of each kind, and the next due time, if any.

        `longest`: the longest pause of a kind, where it is not the usual one.
        """

        def work(tx: Transaction) -> tuple[list[tuple[str, str]], int | None]:
            lanes: dict[tuple[str, str], None] = {}
            times = []
            for (kind,) in tx.all("jobs.open_kinds"):
                pause = (longest or {}).get(kind, USUAL.longest_ms)
                found = tx.all("jobs.due_lanes", kind=kind, now=now, most=most)
                stuck = tx.all("jobs.stuck_lanes", kind=kind, now=now, longest=pause, most=most)
                lanes |= {(kind, lane): None for (lane,) in (*found, *stuck)}
                times.append(tx.value("jobs.next_due", kind=kind, now=now))
            return list(lanes), min((at for at in times if at is not None), default=None)

        return await self._database.read(work)

    async def recent(
        self, *, kinds: Collection[str] = (), states: Collection[State] = (), limit: int = 50
    ) -> list[Job]:
        """Newest first; `kinds` are patterns ("delivery:*"); empty kinds and states mean all. Excludes runs."""
        chosen = {"kinds": msgspec.json.encode([*kinds]).decode(), "states": msgspec.json.encode([*states]).decode()}
        return [_job(row) for row in await self._rows("recent_jobs", **chosen, limit=limit)]

    async def of_lane(self, kind: str, lane: str, limit: int, until: int = LATEST) -> list[Job]:
        """Open and ended jobs of a lane, the newest due time first, without those that wait for one after `until`."""
        return [_job(row) for row in await self._rows("jobs_of_lane", kind=kind, lane=lane, limit=limit, until=until)]

    async def between(self, kind: str, since: int, until: int, limit: int) -> list[Job]:
        """Open and ended jobs of a kind that are due in this time, the newest first."""
        return [_job(row) for row in await self._rows("jobs_between", kind=kind, since=since, until=until, limit=limit)]

    async def counts(self) -> dict[tuple[str, State], int]:
        """Number of jobs by kind and state, without runs."""
        if not await self._rows("has_queue"):
            return {}  # a read-only home of an older release: `pal status` reads it too
        return {(kind, state): number for kind, state, number in await self._rows("job_counts")}

    async def forget(self, before: int) -> int:
        """Removes jobs that are done, dropped or missed and were due before that moment. Returns their number."""
        forgotten = 0
        for (kind,) in await self._rows("old_kinds", before=before):  # a read first: most starts write nothing
            removed = MOST_FORGOTTEN
            while removed == MOST_FORGOTTEN:
                removed = await self._database.write(partial(_forget, kind=kind, before=before))
                forgotten += removed
        return forgotten

    async def _rows(self, query: str, **values: Any) -> list[Any]:
        return await self._database.read(lambda tx: tx.all(f"jobs.{query}", **values))


def _forget(tx: Transaction, kind: str, before: int) -> int:
    return tx.run("jobs.forget_jobs", kind=kind, before=before, most=MOST_FORGOTTEN)


def add_job(tx: Transaction, job: Job, most: int = MOST_WAITING) -> Job:
    if tx.run("jobs.add_job", **_values(job), most=most):
        return job
    known = tx.one("jobs.job_by_key", kind=job.kind, idempotency_key=job.idempotency_key)
    if known is None:
        raise QueueFull(
            f"{most} jobs of the kind {job.kind} already wait in the lane {job.lane}",
            hint="`pal jobs list` shows what is wrong",
        )
    return _job(known)


def cancel_job(tx: Transaction, kind: str, idempotency_key: str, now: int) -> bool:
    """Removes a job that waits and is not due yet, as if it had never been added."""
    return bool(tx.run("jobs.cancel_job", kind=kind, idempotency_key=idempotency_key, now=now))


def claim_job(tx: Transaction, kind: JobKind, lane: str, now: int) -> Job | None:
    while (row := tx.one("jobs.next_job", kind=kind.name, lane=lane, now=now)) is not None:
        seen = job = _job(row)
        if not is_due(job, kind.retry, now):
            return None
        if job.state == "running":
            job = mark_doubtful(job, LEFT_BEHIND, now)
        after = change_job(tx, seen, take_up(job, kind, now))
        if after is not None and after.state == "running":
            return after
    return None


def change_job(tx: Transaction, seen: Job, after: Job) -> Job | None:
    # What was noted since it was seen (note_progress) stays: an attempt that fails does not know it.
    outcome = {"outcome": None} if after.outcome is seen.outcome else {}
    values = _values(after) | outcome
    changed = tx.run("jobs.change_job", **values, seen_fence=seen.fence, seen_state=seen.state)
    return after if changed else None


def finish_job(tx: Transaction, job: Job, outcome: Any = None) -> bool:
    """For a handler that ends its job in the transaction of its effect. False: the lease is lost, so it must have no
    effect.
    """
    return _end(tx, job, msgspec.json.encode(outcome).decode())


def open_lanes(tx: Transaction, kind: str) -> set[str]:
    """Lanes in which a job of a kind is open."""
    return {lane for (lane,) in tx.all("jobs.open_lanes", kind=kind)}


def count_open(tx: Transaction, kind: str) -> tuple[int, int | None]:
    """The number of open jobs of a kind, and the oldest time."""
    number, since = tx.one("jobs.open_count", kind=kind)
    return number, since


def _end(tx: Transaction, held: Job, outcome: str) -> bool:
    return bool(tx.run("jobs.end_job", id=held.id, fence=held.fence, outcome=outcome))


def _only(beginning: str, rows: list[Any]) -> Job:
    found = [_job(row) for row in rows]
    if not found or (len(found) > 1 and found[0].id != beginning):
        what = "more than one job begins with" if found else "there is no job"
        raise NotFound(f"{what} {beginning!r}", hint="`pal jobs list` and `pal delivery list` show their ids")
    return found[0]


def _values(job: Job) -> dict[str, Any]:
    values = msgspec.structs.asdict(job)
    values["payload"] = bytes(job.payload).decode()
    values["outcome"] = None if job.outcome is None else bytes(job.outcome).decode()
    return values


def _job(row: Any) -> Job:
    values = dict(zip(Job.__struct_fields__, row, strict=True))
    values["payload"] = Raw(values["payload"])
    values["outcome"] = None if values["outcome"] is None else Raw(values["outcome"])
    return Job(**values)
