"""STOP: how what goes on is cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Stopped(Exception):
    """Raised inside `Stop.interruptible` when somebody said stop."""


class Stop:
    """STOP, out of band: interrupts what may be interrupted, at once, and never a write to the store."""

    def __init__(self) -> None:
        self.reason = ""  # empty until somebody said stop
        self._inside: asyncio.Task[object] | None = None
        self._cancelled = False  # whether we have cancelled what is inside

    @property
    def requested(self) -> bool:
        return bool(self.reason)

    def request(self, reason: str = "stopped by the user") -> None:
        if not self.requested and self._inside is not None:
            self._inside.cancel()
            self._cancelled = True
        self.reason = self.reason or reason

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Work in here may be cut short; it then ends with Stopped."""
        if self.reason:
            raise Stopped
        task = self._inside = asyncio.current_task()
        try:
            yield
        except asyncio.CancelledError:
            if not self._cancelled or (task is not None and task.cancelling() > 1):
                raise  # somebody else has cancelled the task: that counts
            raise Stopped from None
        finally:
            # Taken back even when the work swallowed it: a task that counts as cancelled takes its lane with it.
            if self._cancelled and task is not None:
                task.uncancel()
            self._inside, self._cancelled = None, False
