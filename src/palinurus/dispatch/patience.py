"""How long a turn may take. The time that a person needs to answer is not the turn's."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from palinurus.dispatch.runs import Run
from palinurus.domain.events import ApprovalAsked, ApprovalSettled, RunEvent


class TimeLimit:
    """A turn that takes too long is stopped like one that somebody stops: what it had said is kept. 0: no limit."""

    def __init__(self, run: Run, seconds: float) -> None:
        self._run = run
        self._seconds = seconds
        self._left = seconds
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._asked: set[str] = set()  # approvals that somebody has yet to answer

    def __enter__(self) -> Self:
        self._go_on()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pause()

    def emit(self, event: RunEvent) -> None:
        """Pass an event on to the run; the clock stands still from a question to its answer."""
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
