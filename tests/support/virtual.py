"""An event loop on virtual time: waiting costs nothing, and what waits for ever is found.

When nothing is ready the loop's clock leaps to the next timer instead of sleeping. Work for other threads is done on
the spot, so everything happens in one thread and in the same order each time. When nothing is ready and no timer is
set, nobody will ever wake anybody: that is a deadlock, and it is raised as one.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, tzinfo
from typing import Any, ParamSpec, TypeVar, TypeVarTuple

from palinurus.testing.fakes import START
from palinurus.testing.loop_time import excuse

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MOST_ROUNDS = 5_000_000
_TICK = 1e-6  # a leap never stands still, whatever rounding says


class Deadlock(Exception):
    """Everybody waits and nobody will ever be woken."""


class Livelock(Exception):
    """The loop turns round and round and does not come to rest."""


class _Leap(selectors.SelectSelector):
    """Leaps over the time for which a selector would wait. It watches no file: there is no outside."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.rounds = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.rounds += 1
        if timeout is None:
            raise Deadlock("nothing is ready and nothing is scheduled")
        if self.rounds > MOST_ROUNDS:
            raise Livelock(f"{MOST_ROUNDS:,} rounds of the event loop and no end")
        if timeout > 0:
            self.now += max(timeout, _TICK)
        return []


class OnTheSpot(ThreadPoolExecutor):
    """Threads that are none: the work is done before `submit` returns."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            with excuse("elsewhere it is done by another thread"):
                future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  # it belongs to whoever asks for the result, as with a real thread
            future.set_exception(error)
        return future


class VirtualThread(OnTheSpot):
    """One thread whose work takes virtual time, each piece as long as `pace` says: one after the other, in order."""

    def __init__(self, pace: Callable[[], float]) -> None:
        super().__init__()
        self.killed = False
        self._pace = pace
        self._free_at = 0.0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if self.killed:
            return Future()  # nobody is left to do it
        loop, seconds = asyncio.get_running_loop(), self._pace()
        if not seconds and loop.time() >= self._free_at:
            return super().submit(fn, *args, **kwargs)
        self._free_at = max(loop.time(), self._free_at) + max(seconds, _TICK)
        future: Future[T] = Future()
        loop.call_at(self._free_at, self._do, future, functools.partial(fn, *args, **kwargs))
        return future

    def kill(self) -> None:
        """What waits is never done."""
        self.killed = True

    def _do(self, future: Future[T], work: Callable[[], T]) -> None:
        if self.killed:
            return
        done = super().submit(work)
        if error := done.exception():
            future.set_exception(error)
        else:
            future.set_result(done.result())


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._leap = _Leap()
        self._spot = OnTheSpot()
        super().__init__(self._leap)
        self._clock_resolution = _TICK  # after months a nanosecond is less than the next number

    def time(self) -> float:
        return self._leap.now

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        done = (executor if isinstance(executor, VirtualThread) else self._spot).submit(func, *args)
        if not done.done():
            return asyncio.wrap_future(done, loop=self)
        future: asyncio.Future[T] = self.create_future()
        if error := done.exception():
            future.set_exception(error)
        else:
            future.set_result(done.result())
        return future


class VirtualClock:
    """Implements domain.Clock: wall time that follows the loop's time, and may be set as people set theirs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start: datetime = START, zone: tzinfo = UTC) -> None:
        self.zone = zone
        self._loop = loop
        self._start_ms = int(start.timestamp() * 1000)

    def now_ms(self) -> int:
        return self._start_ms + round(self._loop.time() * 1000)

    def set_by(self, seconds: float) -> None:
        """Someone moved the hands: wall time leaps, backwards too, and no timer notices."""
        self._start_ms += round(seconds * 1000)


def run_virtually(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """As asyncio.run, on virtual time. Raises Deadlock when `main` waits for what will never come."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())
