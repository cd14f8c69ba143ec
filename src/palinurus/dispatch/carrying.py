"""Lines before the carriers: each recipient's parcels one after the other, recipients side by side.

"Sending" is on the disk before a carrier is called, and what became of the parcel before the next one is looked at. A
disk that fails in between is asked again and again: until it has written the outcome, nothing more is sent to that
recipient, and if the process dies the parcel is in doubt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from palinurus.dispatch.outbox import Carrier, Outbox
from palinurus.dispatch.parcel import (
    LEFT_BEHIND,
    Parcel,
    Patience,
    Recipient,
    ambiguous,
    arrived,
    begun,
    given_up,
    in_doubt,
    put_off,
)
from palinurus.domain.clock import Clock
from palinurus.domain.errors import CarryFailed, CarryRefused, StorageError
from palinurus.sessions.journal import Redact

log = logging.getLogger(__name__)

T = TypeVar("T")


class Limits(Struct, frozen=True):
    patience: Patience = Patience()
    at_once: int = 8  # recipients of one channel
    carry_seconds: float = 60.0  # after which nobody knows what became of it
    grace_seconds: float = 10.0  # for what is being carried when we leave


DEFAULT = Limits()


class _Service(NamedTuple):
    carrier: Carrier
    free: asyncio.Semaphore


class Lines:
    def __init__(self, outbox: Outbox, clock: Clock, dice: Callable[[], float], redact: Redact, limits: Limits) -> None:
        self._outbox = outbox
        self._clock = clock
        self._dice = dice
        self._redact = redact
        self._limits = limits
        self._patience = limits.patience
        self._services: dict[str, _Service] = {}  # by channel
        self._lines: dict[Recipient, asyncio.Event] = {}  # whom somebody works for; set when there is news
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = False

    @property
    def channels(self) -> frozenset[str]:
        return frozenset(self._services)

    def register(self, carrier: Carrier) -> None:
        self._services[carrier.channel] = _Service(carrier, asyncio.Semaphore(self._limits.at_once))
        if self._open:
            self._spawn(self._resume(carrier.channel))

    def unregister(self, channel: str) -> None:
        self._services.pop(channel, None)

    async def open(self) -> None:
        self._open = True
        for recipient in await self._outbox.recipients():
            self.wake(recipient)

    async def close(self) -> None:
        self._open = False
        for news in self._lines.values():
            news.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._limits.grace_seconds)
        while self._tasks:  # a carrier may swallow a cancellation and wait again
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=1)

    async def idle(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    def wake(self, recipient: Recipient) -> None:
        """There may be something to do for them."""
        if recipient in self._lines:
            self._lines[recipient].set()
        elif self._open and recipient.channel in self._services:
            self._lines[recipient] = asyncio.Event()
            self._spawn(self._serve(recipient))

    async def _resume(self, channel: str) -> None:
        for recipient in await self._insist(lambda: self._outbox.recipients(channel)):
            self.wake(recipient)

    async def _serve(self, recipient: Recipient) -> None:
        """Until nothing is left to carry there, or nobody to carry it."""
        news = self._lines[recipient]
        try:
            while self._open and (service := self._services.get(recipient.channel)):
                news.clear()
                parcel = await self._insist(lambda: self._outbox.next(recipient))
                if parcel is None and not news.is_set():
                    return
                if parcel is not None and await self._due(parcel, news):
                    async with service.free:
                        await self._carry(service.carrier, parcel)
        finally:
            del self._lines[recipient]

    async def _due(self, parcel: Parcel, news: asyncio.Event) -> bool:
        """Wait for its time. False when there was news first: it may be another's turn."""
        pause = parcel.due_at - self._clock.now_ms()
        if not 0 < pause <= self._patience.longest_ms:  # longer: somebody has set the clock back
            return True
        try:
            async with asyncio.timeout(pause / 1000):
                await news.wait()
        except TimeoutError:
            return True
        return False

    async def _carry(self, carrier: Carrier, parcel: Parcel) -> None:
        if not self._open:
            return
        if parcel.state == "sending":  # and nobody sends it: its line is this one
            parcel = in_doubt(parcel, LEFT_BEHIND, self._clock.now_ms())
        if parcel.unsure and not carrier.repeatable:
            await self._keep(ambiguous(parcel))
            return
        held = await self._keep(begun(parcel))
        if held is not None:
            await self._keep(await self._fate(carrier, held))

    async def _fate(self, carrier: Carrier, parcel: Parcel) -> Parcel:
        try:
            async with asyncio.timeout(self._limits.carry_seconds):
                receipt = await carrier.carry(parcel)
        except CarryFailed as error:
            return self._put_off(parcel, str(error), error.retry_after or 0)
        except CarryRefused as error:
            return given_up(parcel, self._redact(str(error)))
        except asyncio.CancelledError as error:
            if _is_cancelled():  # we leave; the row says "sending", and whoever reads it next knows what that means
                raise
            return self._doubt(carrier, parcel, repr(error))
        except TimeoutError:
            return self._doubt(carrier, parcel, f"no answer within {self._limits.carry_seconds:g} s")
        except Exception as error:  # noqa: BLE001  # the edge of a channel: whatever it was, the fate is unknown
            return self._doubt(carrier, parcel, repr(error))
        return arrived(parcel, receipt.id)

    def _doubt(self, carrier: Carrier, parcel: Parcel, why: str) -> Parcel:
        doubtful = in_doubt(parcel, self._redact(why), self._clock.now_ms())
        return self._put_off(doubtful, why) if carrier.repeatable else ambiguous(doubtful)

    def _put_off(self, parcel: Parcel, why: str, retry_after: float = 0) -> Parcel:
        asked = min(round(retry_after * 1000), self._patience.longest_ms)
        pause = max(asked, self._patience.pause(parcel.attempts, self._dice()))
        return put_off(parcel, self._redact(why), self._clock.now_ms(), self._patience, pause)

    async def _keep(self, parcel: Parcel) -> Parcel | None:
        kept = await self._insist(lambda: self._outbox.change(parcel))
        if kept is not None and kept.state in ("ambiguous", "failed"):
            log.warning("parcel %s to %s is %s: %s", kept.id, kept.recipient, kept.state, kept.trouble)
        return kept

    async def _insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        for tried in count(1):
            try:
                return await ask()
            except StorageError as error:
                if tried == 1:
                    log.warning("the outbox waits for the disk: %s", error)
                await asyncio.sleep(self._patience.pause(tried, self._dice()) / 1000)
        raise AssertionError  # count() does not end

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="delivery")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
