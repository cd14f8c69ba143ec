"""Runs jobs: one at a time per lane, lanes in parallel, up to a limit per kind.

A job and its outcome are committed before they are announced (storage/jobs.py). A job of a kind without a handler waits
until there is one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from palinurus.domain.clock import Clock, NewId
from palinurus.domain.errors import BadRequest, JobFailed, JobRefused, NotFound, StorageError
from palinurus.storage.jobs import (
    LATEST,
    MOST_LANES,
    MOST_WAITING,
    USUAL,
    Job,
    JobKind,
    JobQueue,
    State,
    complete,
    drop,
    give_up,
    mark_ambiguous,
    mark_doubtful,
    postpone,
    report_failure,
    request_retry,
    start_attempt,
)

T = TypeVar("T")
FindKind = Callable[[str], JobKind | None]
KEPT_MS = 30 * 24 * 3600 * 1000  # how long finished jobs are stored
FORGET_MS = 24 * 3600 * 1000  # how often older ones are forgotten
LOOK_MS = 60_000  # the clock may be changed, so no sleep is longer
AHEAD = 2  # times `at_once` lanes of a kind have a worker; thousands would hold the event loop

log = logging.getLogger(__name__)


class Jobs(Struct, eq=False):
    """`services` is passed to handlers; `find_kind` finds the kinds that were not added by `offer`; `dice` gives
    numbers from 0 to 1.
    """

    _queue: JobQueue
    _clock: Clock
    _new_id: NewId
    _dice: Callable[[], float]
    _find_kind: FindKind
    services: Any = None
    redact: Callable[[str], str] = lambda text: text
    grace_seconds: float = 10.0  # for running jobs at shutdown
    stays: bool = True  # whether this process stays: some kinds are only run by one that does
    _kinds: dict[str, JobKind] = {}  # added at run time
    _free: dict[str, asyncio.Semaphore] = {}  # by kind
    _lanes: dict[str, dict[str, bool]] = {}  # by kind: lanes with a worker; whether there is news
    _crowded: dict[str, int] = {}  # kinds of which more lanes are due, and at how many workers more are started
    _longest: dict[str, int] = {}  # the longest pause of each kind that has been served
    _tasks: dict[asyncio.Task[None], str] = {}  # and the kind of job of each worker
    _alarm: asyncio.TimerHandle | None = None
    _forgets_at: int = 0
    _open: bool = False
    _only: str = ""  # prefixes of the kinds that may still start

    def open(self) -> None:
        """From now on added jobs are run, unless an earlier process left some."""
        self._open = True

    async def start(self) -> None:
        """Continues what another process left, then runs what is due. Called before anything runs here."""
        await self._queue.release(self._clock.now_ms())
        self._open = True
        await self.look()

    async def close(self, *, but: str = "") -> None:
        """Starts nothing more. Running jobs may end within a grace period; the next start finds the rest.

        `but`: kinds with this prefix continue, until `close` is called without it.
        """
        self._open, self._only = bool(but), but
        if not but:
            self._silence()
        ending = {task for task, kind in self._tasks.items() if not self._begins(kind)}
        if ending:
            await asyncio.wait(ending, timeout=self.grace_seconds)
        while ending := ending & self._tasks.keys():  # a handler may swallow a cancellation and wait again
            for task in ending:
                task.cancel()
            await asyncio.wait(ending, timeout=1)

    async def settle(self) -> None:
        """Waits until nothing is due that may still start, within a grace period."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.grace_seconds):
                await self.idle()

    async def idle(self) -> None:
        """Waits until nothing is due that has a handler."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def offer(self, kind: JobKind) -> None:
        """From now on jobs of this kind are run, also waiting ones. It replaces an earlier handler."""
        self._kinds[kind.name] = kind
        if self._open:
            self._spawn(self.look(), kind.name)

    def withdraw(self, name: str) -> None:
        """Removes a kind: its jobs wait."""
        self._kinds.pop(name, None)

    async def add(self, kind: str, payload: Any, idempotency_key: str, *, lane: str = "", due_at: int = 0) -> Job:
        """Adds a job. When this returns it is on the disk; the same key again returns the same job.

        Jobs of a lane run one after the other; without a lane it waits for none. Raises NotFound for a kind without a
        handler, BadRequest for a payload of another type, and QueueFull.
        """
        if (known := self._kinds.get(kind) or self._find_kind(kind)) is None:
            raise NotFound(f"there is no handler for jobs of the kind {kind!r}")
        job = self.make(kind, payload, idempotency_key, lane=lane, due_at=due_at)
        _read(known, job.payload)
        return await self.put(job)

    async def put(self, job: Job, most: int = MOST_WAITING) -> Job:
        """As `add`, for a finished job object whose kind need not be offered. `most` may be open in its lane."""
        stored = await self._queue.add(job, most)
        self.expect(stored)
        return stored

    def make(self, kind: str, payload: Any, idempotency_key: str, *, lane: str = "", due_at: int = 0) -> Job:
        """A job to be added inside a transaction (`storage.jobs.add_job`), followed by `expect` after the commit."""
        if not idempotency_key:
            raise BadRequest("a job needs an idempotency key")
        made, now = self._new_id(), self._clock.now_ms()
        text = Raw(msgspec.json.encode(payload))
        return Job(made, kind, lane or made, idempotency_key, text, added_at=now, due_at=due_at or now)

    def expect(self, job: Job) -> None:
        """Called after a job was added together with something else."""
        if job.due_at <= self._clock.now_ms():
            self._wake(job.kind, job.lane)
        else:
            self._set_alarm(job.due_at)

    async def perform(self, job: Job) -> None:
        """Runs one waiting job here and now, whatever else waits in its lane, also in a process that does not stay.
        Returns when it has ended, or another process has it."""
        kind = self._kinds.get(job.kind) or self._find_kind(job.kind)
        if kind is None:
            raise NotFound(f"there is no handler for jobs of the kind {job.kind!r}")
        held = await self._queue.change(job, start_attempt(job, self._clock.now_ms(), kind.lease_ms))
        if held is not None:
            await self._run(kind, held)

    async def retry(self, beginning: str, idempotency_key: str = "", kind: str = "*") -> Job:
        """Runs it now at a person's request, even if it may have happened before."""
        now = self._clock.now_ms()
        job = await self._queue.decide(beginning, lambda job: request_retry(job, now, idempotency_key), kind)
        self.expect(job)
        return job

    async def hurry(self, kind: str) -> None:
        """Tries again now what waits for another attempt, for example because a network is back."""
        if await self._queue.hurry(kind, self._clock.now_ms()) and self._open:
            await self.look()

    async def note_progress(self, job_id: str, fence: int, outcome: Any) -> None:
        """Stores what the finished parts of a running job led to. Raises JobFailed when another process has it."""
        if not await self._queue.note_progress(job_id, fence, outcome):
            raise JobFailed("another process has taken this job")

    async def drop(self, beginning: str, kind: str = "*") -> Job:
        """Drops it at a person's request."""
        job = await self._queue.decide(beginning, drop, kind)
        self._wake(job.kind, job.lane)
        return job

    async def report_failure(self, job: Job, why: str, *, partly: bool) -> None:
        """Whoever took what a finished job did says now that it, or a part of it, did not happen."""
        now, told = self._clock.now_ms(), self.redact(why)
        kept = await self._queue.decide(job.id, lambda seen: report_failure(seen, told, now, partly=partly), job.kind)
        log.warning("job %s (%s %s) is %s: %s", kept.id, kept.kind, kept.lane, kept.state, kept.trouble)

    async def get(self, job_id: str) -> Job | None:
        return await self._queue.find(job_id)

    async def find(self, kind: str, idempotency_key: str) -> Job | None:
        return await self._queue.find_by_key(kind, idempotency_key)

    async def recent(
        self, *, kinds: Collection[str] = (), states: Collection[State] = (), limit: int = 50
    ) -> list[Job]:
        return await self._queue.recent(kinds=kinds, states=states, limit=limit)

    async def of_lane(self, kind: str, lane: str, limit: int = 50, until: int = LATEST) -> list[Job]:
        return await self._queue.of_lane(kind, lane, limit, until)

    async def between(self, kind: str, since: int, until: int, limit: int = 1000) -> list[Job]:
        return await self._queue.between(kind, since, until, limit)

    async def counts(self) -> dict[tuple[str, State], int]:
        return await self._queue.counts()

    async def look(self) -> None:
        """Runs what is due, and schedules the next check."""
        now = self._clock.now_ms()
        if not 0 <= self._forgets_at - now <= FORGET_MS:  # the clock may have been set back
            self._forgets_at = now + FORGET_MS
            await self._insist(lambda: self._queue.forget(now - KEPT_MS))
        lanes, next_at = await self._insist(lambda: self._queue.due(now, MOST_LANES, self._longest))
        for kind, lane in lanes:
            self._wake(kind, lane)
        if next_at is not None:
            self._set_alarm(next_at)

    def _set_alarm(self, at: int) -> None:
        """Looks again at that moment, or earlier."""
        if not self._open:
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + min(max(at - self._clock.now_ms(), 0), LOOK_MS) / 1000
        if self._alarm is None or when < self._alarm.when():
            self._silence()
            self._alarm = loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._spawn(self.look(), self._only)

    async def is_idle(self) -> bool:
        """Whether nothing runs and nothing is due that could run here."""
        lanes, _ = await self._queue.due(self._clock.now_ms(), MOST_LANES, self._longest)
        return not self._tasks and not any(self._kind(kind) for kind, _ in lanes)

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _wake(self, name: str, lane: str) -> None:
        """Reports that there may be work in a lane: its worker is told, or started when there is room for one."""
        lanes = self._lanes.setdefault(name, {})
        if lane in lanes:
            lanes[lane] = True
        elif name not in self._crowded and self._begins(name) and (kind := self._kind(name)) is not None:
            self._longest[name] = kind.retry.longest_ms
            if len(lanes) >= min(AHEAD * kind.at_once, MOST_LANES - 1):
                self._crowded[name] = kind.at_once
            else:
                lanes[lane] = True
                self._spawn(self._serve(name, lane), name)

    def _begins(self, kind: str) -> bool:
        return self._open and kind.startswith(self._only)

    def _kind(self, name: str) -> JobKind | None:
        try:
            kind = self._kinds.get(name) or self._find_kind(name)
        except Exception:  # code of an extension failed: its jobs wait, and the home opens
            log.exception("jobs of the kind %s wait: their handler cannot be loaded", name)
            return None
        return kind if kind is not None and (self.stays or not kind.stays) else None

    async def _serve(self, name: str, lane: str) -> None:
        """Runs jobs of a lane until none is due, or there is no handler."""
        lanes = self._lanes[name]
        try:
            while self._begins(name) and lanes[lane] and (kind := self._kind(name)) is not None:
                lanes[lane] = False
                async with self._free.setdefault(name, asyncio.Semaphore(kind.at_once)):
                    job = await self._claim(kind, lane) if self._begins(name) else None
                    if job is not None and await self._run(kind, job):
                        lanes[lane] = True  # the next one, after others had their turn
        finally:
            del lanes[lane]
        if self._open and len(lanes) <= self._crowded.get(name, -1):
            del self._crowded[name]  # one look is enough for all that end now
            await self.look()

    async def _claim(self, kind: JobKind, lane: str) -> Job | None:
        return await self._insist(lambda: self._queue.claim(kind, lane, self._clock.now_ms()))

    async def _run(self, kind: JobKind, job: Job) -> bool:
        """Returns whether another job of its lane is due."""
        extending = asyncio.create_task(self._extend(kind, job), name="job lease")
        try:
            after = await self._fate(kind, job)
        finally:
            extending.cancel()
        kept, more = await self._insist(lambda: self._queue.settle(kind, job, after, self._clock.now_ms()))
        if kept is not None and kept.state in ("ambiguous", "failed"):
            log.warning("job %s (%s %s) is %s: %s", kept.id, kept.kind, kept.lane, kept.state, kept.trouble)
        if after.state == "retry":
            self._set_alarm(after.due_at)
        return more

    async def _extend(self, kind: JobKind, job: Job) -> None:
        """Extends the lease while the job runs. If the disk is full meanwhile, the lease expires."""
        while True:
            await asyncio.sleep(kind.lease_ms / 3000)
            await self._insist(partial(self._queue.extend, job, self._clock.now_ms() + kind.lease_ms))

    async def _fate(self, kind: JobKind, job: Job) -> Job:
        try:
            payload = _read(kind, job.payload)
        except BadRequest as error:  # perhaps of another release
            return give_up(job, str(error))
        try:
            async with asyncio.timeout(kind.seconds):
                return complete(job, await kind.handler(self.services, payload, job))
        except JobFailed as error:
            return self._postpone(kind, job, str(error), error.retry_after or 0)
        except JobRefused as error:
            return give_up(job, self.redact(str(error)))
        except asyncio.CancelledError as error:
            if _is_cancelled():  # shutdown; the row says "running", and the next reader knows what that means
                raise
            return self._doubt(kind, job, repr(error))
        except TimeoutError:
            return self._doubt(kind, job, f"not done within {kind.seconds:g} s")
        except Exception as error:  # noqa: BLE001  # the edge of an extension: whatever it was, the fate is unknown
            return self._doubt(kind, job, repr(error))

    def _doubt(self, kind: JobKind, job: Job, why: str) -> Job:
        doubtful = mark_doubtful(job, self.redact(why), self._clock.now_ms())
        if kind.on_crash != "retry":
            return mark_ambiguous(doubtful)
        return self._postpone(kind, doubtful, why, USUAL.pause(job.attempts, self._dice()) / 1000)

    def _postpone(self, kind: JobKind, job: Job, why: str, retry_after: float = 0) -> Job:
        asked = min(round(retry_after * 1000), kind.retry.longest_ms)
        pause = max(asked, kind.retry.pause(job.attempts, self._dice()))
        return postpone(job, self.redact(why), self._clock.now_ms(), kind.retry, pause)

    async def _insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        tried = 0
        while True:
            try:
                return await ask()
            except StorageError as error:
                tried += 1
                if tried == 1:
                    log.warning("jobs wait for the disk: %s", error)
                await asyncio.sleep(USUAL.pause(tried, self._dice()) / 1000)

    def _spawn(self, work: Coroutine[Any, Any, None], kind: str) -> None:
        task = asyncio.create_task(work, name="jobs")
        self._tasks[task] = kind
        task.add_done_callback(self._tasks.pop)


def _read(kind: JobKind, payload: Raw) -> Any:
    try:
        return msgspec.json.decode(payload, type=kind.payload)
    except msgspec.ValidationError as error:
        raise BadRequest(f"the payload of a job of the kind {kind.name} is invalid: {error}") from None


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
