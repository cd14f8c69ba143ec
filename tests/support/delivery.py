"""A network with senders as senders are: late, deaf, dead at the wrong moment."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from msgspec import Struct

from palinurus.dispatch.delivery import DeliveryJob
from palinurus.domain.errors import JobFailed, JobRefused


class Network:
    """What people have received. One that knows idempotency keys shows a message once, however often it comes."""

    def __init__(self, *, knows_keys: bool) -> None:
        self.knows_keys = knows_keys
        self.shown: list[DeliveryJob] = []
        self._keys: set[str] = set()

    def receive(self, delivery: DeliveryJob) -> str:
        if delivery.idempotency_key not in self._keys or not self.knows_keys:
            self.shown.append(delivery)
        self._keys.add(delivery.idempotency_key)
        return f"n-{delivery.idempotency_key}"

    def times(self, idempotency_key: str) -> int:
        return sum(delivery.idempotency_key == idempotency_key for delivery in self.shown)


class MemorySender:
    """Implements dispatch.delivery.ChannelSender: everything arrives, unless `before` or, too late, `after` raises."""

    def __init__(self, channel: str = "net", *, repeatable: bool = True, network: Network | None = None) -> None:
        self.channel = channel
        self.repeatable = repeatable
        self.network = network or Network(knows_keys=repeatable)
        self.attempts: list[DeliveryJob] = []  # each attempt
        self.before: Callable[[DeliveryJob], None] = lambda _: None
        self.after: Callable[[DeliveryJob], None] = lambda _: None

    @property
    def texts(self) -> list[str]:
        return [delivery.text for delivery in self.network.shown]

    async def send(self, delivery: DeliveryJob) -> str:
        self.attempts.append(delivery)
        self.before(delivery)
        await asyncio.sleep(0)
        receipt = self.network.receive(delivery)
        self.after(delivery)
        return receipt


class SenderFaults(Struct, frozen=True):
    """How often a sender goes wrong in each way."""

    fails: float = 0.0
    refuses: float = 0.0
    breaks: float = 0.0  # raises what it should not, before or after it arrived
    hangs: float = 0.0
    slow: float = 0.0


class FickleSender:
    """Implements dispatch.delivery.ChannelSender by seeded dice.

    `pass_on` is awaited where the process may end: just before the message arrives, and just after.
    """

    def __init__(
        self,
        channel: str,
        network: Network,
        dice: random.Random,
        faults: SenderFaults,
        pass_on: Callable[[str], Awaitable[None]],
    ) -> None:
        self.channel = channel
        self.repeatable = network.knows_keys
        self._network = network
        self._dice = dice
        self._faults = faults
        self._pass_on = pass_on

    async def send(self, delivery: DeliveryJob) -> str:
        if self._happens(self._faults.fails):
            raise JobFailed("the network is down", retry_after=self._dice.choice((None, 0.5, 30.0)))
        if self._happens(self._faults.refuses):
            raise JobRefused("nobody of that name")
        await self._stumble()
        await self._pass_on(f"send {delivery.idempotency_key}")
        receipt = self._network.receive(delivery)
        await self._pass_on(f"sent {delivery.idempotency_key}")
        await self._stumble()
        return receipt

    async def _stumble(self) -> None:
        """Where it is not known whether the message has arrived."""
        if self._happens(self._faults.slow):
            await asyncio.sleep(self._dice.expovariate(0.5))
        if self._happens(self._faults.breaks):
            raise self._dice.choice((ConnectionResetError("reset"), ValueError("no JSON"), asyncio.CancelledError()))
        if self._happens(self._faults.hangs):
            await asyncio.get_running_loop().create_future()

    def _happens(self, how_often: float) -> bool:
        return self._dice.random() < how_often
