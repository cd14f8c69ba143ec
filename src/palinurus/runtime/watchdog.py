"""Notices when a callback holds the event loop: more than 50 ms of processor time in one go (promise 10).

A thread looks at the loop from outside: how much processor time its thread has used, and which callback it is in. While
nothing happens it looks twice a second; when something begins, every 15 ms. A callback that it sees twice with more
than the limit between is slow, and told with its stack, at most once a minute. So nothing below 50 ms is told, and on a
machine that is not short of processors everything above 80 ms is. Time in which the loop's thread merely waits is not
counted, and neither is time in which this thread waited for a processor and could not look: a machine that sleeps, or
has too much to do, is no mistake of ours.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

log = logging.getLogger(__name__)

LIMIT_SECONDS = 0.05
CLOSE_SECONDS, IDLE_SECONDS = 0.015, 0.5  # between two looks
CLOSELY_FOR_SECONDS = 0.5  # after something happened
BUSY_SECONDS = 0.002  # of processor time between two looks: less is not worth a closer one
TELL_SECONDS = 60.0
FRAMES = 40  # of a stack that is told

_RUN = asyncio.Handle._run.__code__  # noqa: SLF001  # a frame of this is a callback
Cpu = Callable[[], float]
"""Seconds of processor time that the loop's thread has used."""

Queued = Callable[[], float]
"""Seconds for which the thread that asks has waited for a processor; always the same where the system does not tell."""


class Watchdog:
    """Implements gateway.http.metrics.Pulse. Made on the thread of the loop that it watches."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, cpu: Cpu | None = None, queued: Queued | None = None
    ) -> None:
        self.lag_seconds = 0.0
        self.slow = 0
        self.late = 0
        self._loop = loop
        self._owner = threading.get_ident()
        self._cpu = cpu or _cpu_of(self._owner)
        self._queued: Queued = queued or (lambda: 0.0)
        self._tells_callbacks = type(loop).__module__.startswith("asyncio.")  # uvloop's are not to be seen
        self._before = self._cpu()
        self._held: FrameType | None = None  # the callback that was running at the last look
        self._held_since = 0.0  # in processor time
        # A question that the loop has yet to answer: when it was asked, and the loop's processor time then. Set by the
        # thread alone, taken back by the loop alone.
        self._probe: tuple[float, float] | None = None
        self._counted = False  # whether this one was late already
        self._told_at = float("-inf")
        self._untold = 0
        self._closely = False
        self._closely_until = 0.0
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._over = False

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, name="pal-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(1)

    def stir(self) -> None:
        """Something begins: look closely for a while. Costs nothing while it does already."""
        if not self._closely:
            self._closely = True
            self._wake.set()

    def _watch(self) -> None:
        pause = IDLE_SECONDS
        with _queueing() as self._queued:
            while not self._over:
                pause = self.wait_and_look(pause)

    def wait_and_look(self, pause: float) -> float:
        """How long to wait for the next look."""
        queued, due = self._queued(), time.monotonic() + pause
        stirred = self._wake.wait(pause)
        self._wake.clear()
        now = time.monotonic()
        if stirred:
            self._closely_until = now + CLOSELY_FOR_SECONDS
        overslept = now - due
        if overslept > LIMIT_SECONDS:
            overslept -= self._queued() - queued
        return self.look(now, overslept=overslept)

    def look(self, now: float, *, overslept: float = 0.0) -> float:
        """One look; how long to wait for the next. `overslept`: for so long another thread did not let this one run."""
        cpu = self._cpu()
        used, self._before = cpu - self._before, cpu
        if used > BUSY_SECONDS:
            self._closely_until = now + CLOSELY_FOR_SECONDS
            self._look_at_callback(now, cpu, used, overslept)
            self._look_at_loop(now, cpu)
        else:
            self._held = None
            probe = self._probe
            self.lag_seconds = 0.0 if probe is None else now - probe[0]
        self._closely = now < self._closely_until
        if self._held is not None and cpu > self._held_since:
            return min(CLOSE_SECONDS, max(0.002, self._held_since + LIMIT_SECONDS - cpu))
        return CLOSE_SECONDS if self._closely else IDLE_SECONDS

    def _look_at_callback(self, now: float, cpu: float, used: float, overslept: float) -> None:
        stack = stack_of(self._owner)
        callback = next((frame for frame in reversed(stack) if frame.f_code is _RUN), None)
        in_callback = callback is not None or not self._tells_callbacks
        if in_callback and min(used, overslept) > LIMIT_SECONDS:
            # Nobody else was let run meanwhile: one call into C, which has just ended, and we were let run at once.
            self._found(now, used, stack)
            self._held = None
        elif callback is None or callback is not self._held:
            self._held, self._held_since = callback, cpu
        elif cpu - self._held_since > LIMIT_SECONDS:
            self._found(now, cpu - self._held_since, stack)
            self._held_since = float("inf")  # once for each

    def _look_at_loop(self, now: float, cpu: float) -> None:
        """Whether it comes round. A round of many small callbacks is late, and none of them is slow."""
        probe = self._probe
        if probe is None:
            self._probe, self._counted = (now, cpu), False
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # the loop is closed
                self._over = True
        elif cpu - probe[1] > LIMIT_SECONDS and not self._counted:
            self._counted = True
            self.late += 1
            if not self._tells_callbacks:
                self._found(now, LIMIT_SECONDS, stack_of(self._owner))

    def _answer(self) -> None:
        """On the loop."""
        if self._probe is not None:
            asked, cpu = self._probe
            self.lag_seconds = time.monotonic() - asked
            self.late += self._cpu() - cpu > LIMIT_SECONDS and not self._counted
            self._probe = None

    def _found(self, now: float, seconds: float, stack: Sequence[FrameType]) -> None:
        self.slow += 1
        if now - self._told_at < TELL_SECONDS:
            self._untold += 1
            return
        more = f", and {self._untold:,} others since the last one told" if self._untold else ""
        self._told_at, self._untold = now, 0
        lines = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in reversed(stack[:FRAMES]))
        told = "a callback has held the event loop for %d ms of processor time%s"
        log.warning(told, round(seconds * 1000), more, extra={"stack": "".join(lines.format()), "quiet": True})


def stack_of(thread: int) -> list[FrameType]:
    """The frames in which a thread is, the innermost first, while it goes on. Nothing of one that is not there.

    A frame gets its object when it is looked at. Python 3.11 may collect garbage in that moment and let the thread run
    meanwhile; then it reads the next frame from where there is none any more, and crashes. So the collector waits.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        frame, found = sys._current_frames().get(thread), []  # noqa: SLF001  # there is no other way to see it
        while frame is not None:
            found.append(frame)
            frame = frame.f_back
        return found
    finally:
        if collects:
            gc.enable()


def _cpu_of(thread: int) -> Cpu:
    """The clock of one thread; where the system has none, that of the whole process."""
    try:
        clock = time.pthread_getcpuclockid(thread)
    except (AttributeError, OSError):
        return time.process_time
    return lambda: time.clock_gettime(clock)


@contextmanager
def _queueing() -> Iterator[Queued]:
    """For the thread that asks for this, as Linux tells it."""
    try:
        schedule = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except OSError:
        yield lambda: 0.0
        return
    try:
        yield lambda: int(os.pread(schedule, 100, 0).split()[1]) / 1e9
    finally:
        os.close(schedule)
