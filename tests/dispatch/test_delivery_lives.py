"""Lives of deliveries on virtual time: senders that fail, hang and break, a disk that does too, a process that dies.

Whatever happens, what was posted ends sent exactly once where carriers can repeat, and never more than once elsewhere
without a word; what is called sent has arrived, and what is called failed has not.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from palinurus.dispatch.delivery import Deliveries, DeliveryJob
from palinurus.dispatch.jobs import Jobs
from palinurus.domain.envelope import Delivery
from palinurus.domain.errors import StorageError
from palinurus.storage.database import MemoryDatabase
from palinurus.storage.jobs import JobQueue, RetryPolicy
from palinurus.testing.fakes import SeededIds
from support import SOAK
from support.delivery import FickleSender, Network, SenderFaults
from support.faults import CALM, Border, Power, Trace, Weather, dice_for, faulty
from support.virtual import VirtualClock, run_virtually

REST = 3 * 24 * 3600.0  # virtual seconds in which everything must come to rest once all is calm
PEOPLE = ("ann", "bob", "cy")
LIVES = 2_000 if SOAK else 100
AT_A_TIME = 25
PATIENT = RetryPolicy(attempts=10_000, age_ms=10**12)


class Life:
    """Deliveries from a start to the moment when the current goes off."""

    def __init__(self, world: World, weather: Weather, faults: SenderFaults) -> None:
        self.power = Power()
        self._border = Border(self.power, weather, world.dice, world.trace)
        queue = faulty(world.queue, self._border)
        self.jobs = Jobs(queue, world.clock, world.new_id, world.dice.random, lambda _: None)
        self.jobs.grace_seconds = 5.0
        self.deliveries = Deliveries(self.jobs, retry=PATIENT, at_once=2)
        for channel, network in world.networks.items():
            refuses = faults.refuses if channel == "bare" else 0.0
            wrong = SenderFaults(faults.fails, refuses, faults.breaks, faults.hangs, faults.slow)
            self.deliveries.register(FickleSender(channel, network, world.dice, wrong, self._pass_on))

    async def _pass_on(self, what: str) -> None:
        """The network lies behind the border too, but no disk fails there."""
        await self.power.check()
        if self._border.dice.random() < self._border.weather.crash:
            self._border.trace.add("crash", what)
            self.power.cut()
            await self.power.check()

    async def begin(self) -> None:
        """Until it has started; a disk that is ill stops it, as it stops a process."""
        started = False
        while self.power.on and not started:
            with suppress(StorageError):
                await self.alive(self.jobs.start())
                started = True

    async def alive(self, work: Coroutine[Any, Any, object]) -> None:
        """Done in this life, or swept away with it."""
        task, dead = asyncio.create_task(work), asyncio.create_task(self.power.lost())
        await asyncio.wait((task, dead), return_when=asyncio.FIRST_COMPLETED)
        dead.cancel()
        task.cancel()
        await asyncio.wait((task, dead))
        if not task.cancelled():
            task.result()


class World:
    def __init__(self, seed: int) -> None:
        self.dice = dice_for(seed, "delivery")
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.new_id = SeededIds(seed)
        self.trace = Trace()
        self.queue = JobQueue(MemoryDatabase())
        self.ended: list[DeliveryJob] = []
        self.networks = {"safe": Network(knows_keys=True), "bare": Network(knows_keys=False)}
        self.acknowledged: list[str] = []
        self._unsure: list[tuple[Delivery, str]] = []  # posts that nobody has acknowledged
        self._weather, self._faults = _drawn(self.dice)
        self._life = Life(self, self._weather, self._faults)

    async def run(self, steps: int) -> None:
        await self._life.begin()
        for number in range(steps):
            if not self._life.power.on or self.dice.random() < 0.05:
                await self._next_life(self._weather, self._faults)
            await self._post(number)
            if self.dice.random() < 0.4:
                await asyncio.sleep(self.dice.expovariate(0.1))
        await self._next_life(CALM, SenderFaults())
        for place, key in self._unsure:
            await self._life.deliveries.post(place, f"words of {key}", key)
            self.acknowledged.append(key)
        async with asyncio.timeout(REST):
            while await self._life.deliveries.recent(states=("waiting", "sending")):
                await asyncio.sleep(10)
        await self._life.jobs.close()
        self.ended = list(reversed(await self._life.deliveries.recent(limit=1000)))

    async def _next_life(self, weather: Weather, faults: SenderFaults) -> None:
        if self._life.power.on and self.dice.random() < 0.5:
            await self._life.jobs.close()  # a process that is asked to leave
        self._life.power.cut()
        await self._life.jobs.close()
        while True:
            self._life = Life(self, weather, faults)
            await self._life.begin()
            if self._life.power.on:
                return

    async def _post(self, number: int) -> None:
        place = Delivery(self.dice.choice(("safe", "bare")), self.dice.choice(PEOPLE))
        key = f"k{number}"
        if self._unsure and self.dice.random() < 0.5:  # somebody asks again
            place, key = self._unsure.pop(0)
        self._unsure.append((place, key))
        with suppress(StorageError):
            await self._life.alive(self._life.deliveries.post(place, f"words of {key}", key))
            if self._life.power.on:
                self._unsure.remove((place, key))
                self.acknowledged.append(key)

    # -- what must hold in the end --

    def check(self) -> None:
        assert len(set(self.acknowledged)) == len(self.acknowledged)
        kept = {delivery.idempotency_key: delivery for delivery in self.ended}
        assert set(self.acknowledged) == set(kept)
        for delivery in kept.values():
            self._check_fate(delivery)
        for network in self.networks.values():
            self._check_order(network, [delivery.idempotency_key for delivery in kept.values()])

    def _check_fate(self, delivery: DeliveryJob) -> None:
        times = self.networks[delivery.channel].times(delivery.idempotency_key)
        if delivery.channel == "safe":
            assert (delivery.state, times) == ("sent", 1), delivery
            return
        allowed = {"sent": (1,), "failed": (0,), "ambiguous": (0, 1)}
        assert times in allowed.get(delivery.state, ()), (delivery, times)
        assert delivery.state != "ambiguous" or delivery.trouble, delivery

    def _check_order(self, network: Network, queued: list[str]) -> None:
        for person in PEOPLE:
            shown = [delivery.idempotency_key for delivery in network.shown if delivery.to == person]
            assert shown == sorted(shown, key=queued.index), (person, shown)


def _drawn(dice: random.Random) -> tuple[Weather, SenderFaults]:
    """Some worlds are calm, some have one kind of trouble, some have all kinds."""
    some = dice.choice([(), ("disk",), ("crash",), ("sender",), ("disk", "crash", "sender")])
    weather = Weather(
        delay=0.2 if "disk" in some else 0.0,
        fail=0.1 if "disk" in some else 0.0,
        crash=dice.uniform(0.01, 0.1) if "crash" in some else 0.0,
    )
    return weather, SenderFaults(*(dice.uniform(0, 0.25) for _ in range(5))) if "sender" in some else SenderFaults()


def live(seed: int, steps: int = 60) -> World:
    async def story() -> World:
        world = World(seed)
        await world.run(steps)
        return world

    world = run_virtually(story)
    try:
        world.check()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return world


@cache
def ended(seed: int) -> tuple[Counter[str], Counter[str]]:
    """The states of the deliveries of a life, and its troubles."""
    world = live(seed)
    return Counter(delivery.state for delivery in world.ended), Counter(world.trace.counts)


@pytest.mark.parametrize("first", range(0, LIVES, AT_A_TIME))
def test_every_delivery_has_the_fate_that_its_row_tells(first: int) -> None:
    for seed in range(first, first + AT_A_TIME):
        assert ended(seed)


def test_the_lives_hold_every_kind_of_trouble() -> None:
    """A test that nothing happens in would prove nothing."""
    states: Counter[str] = Counter()
    troubles: Counter[str] = Counter()
    for seed in range(40):
        for total, count in zip((states, troubles), ended(seed), strict=True):
            total.update(count)
    assert set(states) == {"sent", "failed", "ambiguous"}
    assert min(troubles["crash"], troubles["fail"]) > 20


def test_the_same_seed_is_the_same_life() -> None:
    assert live(7).trace.digest == live(7).trace.digest
