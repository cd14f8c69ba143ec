"""Lanes: one turn at a time per session, and a limited number in the whole home.

A lane exists while something waits in it; a full one refuses more. A turn that raises does not end its lane.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Self, TypeVar

from palinurus.agent.reply import Stop
from palinurus.agent.turn import TurnRunner
from palinurus.dispatch.runs import Run
from palinurus.domain.errors import PalinurusError, QueueFull, StorageError, WaitTimeout
from palinurus.domain.events import ApprovalAsked, ApprovalSettled, RunEvent
from palinurus.domain.keys import SessionKey

log = logging.getLogger(__name__)
T = TypeVar("T")

Work = Callable[[], Awaitable[None]]
OnError = Callable[[BaseException], None]
"""Called after the work raised; the lane has logged it and continues with the next. Must not raise."""


class Lanes:
    def __init__(self, *, at_once: int, subagents: int = 8, scheduled: int = 4, cap: int = 100) -> None:
        """`at_once` turns run at the same time, and so many of subagents and cron jobs: none waits for others."""
        self._limits = {"main": at_once, "subagents": subagents, "scheduled": scheduled}
        self._free = {name: asyncio.Semaphore(limit) for name, limit in self._limits.items()}
        self._cap = cap
        self._waiting: dict[str, deque[tuple[Work, OnError, AbstractAsyncContextManager[None]]]] = {}
        self._coming: Counter[str] = Counter()  # places reserved for messages that are being accepted
        self._workers: set[asyncio.Task[None]] = set()

    def set_limit(self, name: str, at_once: int) -> None:
        """What runs already does not count towards another limit."""
        if self._limits[name] != at_once:
            self._limits[name], self._free[name] = at_once, asyncio.Semaphore(at_once)

    @contextmanager
    def place(self, key: str) -> Iterator[None]:
        """Reserves a place in the lane while a message is being accepted. Raises QueueFull if there is none."""
        if len(self._waiting.get(key, ())) + self._coming[key] >= self._cap:
            raise QueueFull(
                f"{self._cap} messages already wait in {key}", hint="wait for some to be answered, or /stop"
            )
        self._coming[key] += 1
        try:
            yield
        finally:
            self._coming[key] -= 1
            if not self._coming[key]:
                del self._coming[key]

    def start(self, key: str, work: Work, on_error: OnError, limit: str = "") -> None:
        """Adds work to the end of its lane; it runs after everything before it in the lane.

        `limit`: whose limit applies to it, "main", "subagents" or "scheduled"; none to short work.
        """
        waits = (work, on_error, self._free[limit] if limit else nullcontext())
        lane = self._waiting.get(key)
        if lane is not None:
            lane.append(waits)
            return
        self._waiting[key] = deque([waits])
        worker = asyncio.create_task(self._work(key), name=f"lane {key}")
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    async def _work(self, key: str) -> None:
        lane = self._waiting[key]
        while lane:
            work, on_error, place = lane[0]
            async with place:
                try:
                    await work()
                except asyncio.CancelledError as error:
                    if _is_cancelled():
                        raise
                    on_error(error)  # something that the turn awaited was cancelled, not the lane itself
                except Exception as error:
                    log.exception("a turn in %s failed", key)
                    on_error(error)
            lane.popleft()
        del self._waiting[key]

    @property
    def busy(self) -> int:
        """The number of waiting and running turns."""
        return sum(map(len, self._waiting.values()))

    async def idle(self) -> None:
        """Waits until nothing waits or runs."""
        while self._workers:
            await asyncio.wait(self._workers)

    async def cancel(self) -> None:
        """Drops everything at once, as a crash would."""
        for worker in self._workers:
            worker.cancel()
        await self.idle()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class PostTurnWork:
    """Runs maintenance after turns, until a message waits in the session."""

    def __init__(self, turns: TurnRunner) -> None:
        self._turns = turns
        self._going: dict[SessionKey, Stop] = {}

    async def run(self, key: SessionKey, *, hurry: bool) -> None:
        stop = self._going[key] = Stop()
        if hurry:
            stop.request("somebody waits")
        try:
            await self._turns.maintenance.settle(key, stop)
        except StorageError as error:  # what was not done is done after the next turn
            log.warning("maintenance of %s failed: %s", key, error)
        finally:
            del self._going[key]

    def hurry(self, key: SessionKey | None = None) -> None:
        for going, stop in self._going.items():
            if key in (None, going):
                stop.request("somebody waits")


WAIT_SECONDS = 60.0


async def run_in_lane(lanes: Lanes, key: str, work: Callable[[], Awaitable[T]], *, timeout: float = WAIT_SECONDS) -> T:
    """Does short work between two turns of a session. Raises what it raises, QueueFull or WaitTimeout."""
    outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    outcome.add_done_callback(_ignore_failure)

    async def run() -> None:
        try:
            outcome.set_result(await work())
        except PalinurusError as error:  # the caller gets it, so the lane need not log it
            outcome.set_exception(error)

    def fail(error: BaseException) -> None:
        outcome.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    with lanes.place(key):
        lanes.start(key, run, fail)
    try:
        async with asyncio.timeout(timeout):
            return await asyncio.shield(outcome)
    except TimeoutError:
        raise WaitTimeout(f"{key} is still busy", hint="it is done when what runs there has ended, or /stop") from None


def _ignore_failure(outcome: asyncio.Future[T]) -> None:
    """The caller may no longer wait for it."""
    if not outcome.cancelled():
        outcome.exception()


class TimeLimit:
    """Stops a turn that takes too long, like a requested stop: the text so far is stored. 0: no limit."""

    def __init__(self, run: Run, seconds: float) -> None:
        self._run = run
        self._seconds = seconds
        self._left = seconds
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._asked: set[str] = set()  # open approvals

    def __enter__(self) -> Self:
        self._go_on()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pause()

    def emit(self, event: RunEvent) -> None:
        """Passes an event on to the run; the time limit pauses while an approval is open."""
        match event:
            case ApprovalAsked():
                self._pause()
                self._asked.add(event.id)
            case ApprovalSettled():
                self._asked.discard(event.id)
                self._go_on()
        self._run.emit(event)

    def _go_on(self) -> None:
        if self._seconds > 0 and not self._asked and self._alarm is None:
            reason = f"took longer than {self._seconds:g} s"
            self._alarm = self._loop.call_later(self._left, self._run.stop.request, reason)

    def _pause(self) -> None:
        if self._alarm is not None:
            self._left = max(0.0, self._alarm.when() - self._loop.time())
            self._alarm.cancel()
            self._alarm = None
