"""Lanes: one turn at a time in a session, and only so many in the whole house.

A lane is a line of people waiting before one door. It exists while somebody waits, has a cap, and says so when it is
full. The two `except Exception` of the house are here and at the channel hosts: a turn that breaks in an unforeseen
way must not take the next one with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext

from palinurus.domain.errors import QueueFull

log = logging.getLogger(__name__)

Job = Callable[[], Awaitable[None]]
"""One turn."""

OnBreak = Callable[[BaseException], None]
"""Told when its job raised; the lane has logged it and goes on with the next. Must not raise."""


class Lanes:
    def __init__(self, *, at_once: int, cap: int = 100) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._cap = cap
        self._waiting: dict[str, deque[tuple[Job, OnBreak, AbstractAsyncContextManager[None]]]] = {}
        self._coming: Counter[str] = Counter()  # places held for messages that are being accepted
        self._workers: set[asyncio.Task[None]] = set()

    @contextmanager
    def place(self, key: str) -> Iterator[None]:
        """A place in the lane, held while a message is being accepted. Raises QueueFull when there is none."""
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

    def start(self, key: str, job: Job, on_break: OnBreak, *, counted: bool = True) -> None:
        """Put the job at the end of its lane; it runs when all before it in the lane have ended.

        One that is not counted needs none of the places in the house: it is no turn, and is over in a moment.
        """
        waits = (job, on_break, self._free if counted else nullcontext())
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
            job, on_break, place = lane[0]
            async with place:
                try:
                    await job()
                except asyncio.CancelledError as error:
                    if _is_cancelled():
                        raise
                    on_break(error)  # something that the turn waited for was cancelled: the lane itself was not
                except Exception as error:
                    log.exception("a turn in %s broke", key)
                    on_break(error)
            lane.popleft()
        del self._waiting[key]

    @property
    def busy(self) -> int:
        """How many jobs wait or run."""
        return sum(map(len, self._waiting.values()))

    async def idle(self) -> None:
        """Until nobody waits and nothing runs."""
        while self._workers:
            await asyncio.wait(self._workers)

    async def cancel(self) -> None:
        """Drop everything at once, as a crash would."""
        for worker in self._workers:
            worker.cancel()
        await self.idle()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
