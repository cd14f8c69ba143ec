"""Kill -9 a process that delivers, again and again on one home: each delivery arrives once, or is marked ambiguous.

A kill comes when the seed says: while the process starts, when a message was posted, when one has arrived and its
sender has not been told, or just after it was told.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec
from deliverer import AT_ONCE, CHANNELS, PEOPLE

from homes import PATIENCE, PalHome, Talk
from palinurus.dispatch.delivery import DeliveryJob, delivery_of
from palinurus.storage.database import Database
from palinurus.storage.jobs import JobQueue

DELIVERER = Path(__file__).with_name("deliverer.py")
EACH = 12  # parcels that a process posts


@dataclass(frozen=True)
class Moment:
    """When to kill: at the so-many-eth time that something happens, and then a little later."""

    what: str  # start | posted | arrived | told
    times: int
    seconds: float

    @classmethod
    def drawn(cls, dice: random.Random) -> Moment:
        what = dice.choice(("start", "posted", "arrived", "arrived", "told", "told"))
        seconds = dice.uniform(0, 0.5) if what == "start" else dice.choice((0.0, dice.uniform(0, 0.01)))
        return cls(what, dice.randint(1, EACH - 2), seconds)


class LoopbackNetwork:
    """Shows what arrives; under `safe` a key is shown once. Now and then it is too busy to take anything."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.shown: list[DeliveryJob] = []
        self.repeats = 0
        self.happens: Callable[[str], None] = lambda _: None
        self.mute = False  # what arrives now is not answered: the moment before an answer is tried
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    def times(self, key: str) -> int:
        return sum(delivery.idempotency_key == key for delivery in self.shown)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            if line.endswith(b"\n"):
                writer.write(self._answer(msgspec.json.decode(line, type=DeliveryJob)))
                await writer.drain()
                self.happens("told")
        except ConnectionError:
            pass  # it was killed in between, on purpose
        finally:
            writer.close()

    def _answer(self, delivery: DeliveryJob) -> bytes:
        if self._dice.random() < 0.1:
            return b"busy\n"
        if delivery.channel == "safe" and self.times(delivery.idempotency_key):
            self.repeats += 1
        else:
            self.shown.append(delivery)
        self.happens("arrived")
        return b"" if self.mute else f"ok n-{delivery.idempotency_key}\n".encode()


async def deliver_again_and_again(
    root: Path, *, kills: int, seed: int, progress: Callable[[str], None] = lambda _: None
) -> Counter[str]:
    """How many parcels came to which end. Raises AssertionError, with the seed in it, when a promise was broken."""
    dice = random.Random(seed)
    try:
        async with LoopbackNetwork(dice) as network:
            return await _Rounds(PalHome(root), network, dice, progress).run(kills)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error


class _Rounds:
    def __init__(
        self, home: PalHome, network: LoopbackNetwork, dice: random.Random, progress: Callable[[str], None]
    ) -> None:
        home.root.mkdir(parents=True)
        self._home = home
        self._network = network
        self._dice = dice
        self._progress = progress
        self._acknowledged = 0  # parcels are numbered

    async def run(self, kills: int) -> Counter[str]:
        for number in range(kills):
            moment = Moment.drawn(self._dice)
            self._progress(f"kill {number + 1} of {kills}: {moment}")
            await self._killed(moment)
        talk = await self._deliverer()
        await talk.until(lambda line: line == "idle")
        ended = await talk.leave()
        assert ended.code == 0, ended
        self._note(talk)
        return await self._check(kills)

    async def _killed(self, moment: Moment) -> None:
        reached = asyncio.Event()
        seen: Counter[str] = Counter()

        def happens(what: str) -> None:
            seen[what] += 1
            if what == moment.what and seen[what] >= moment.times:
                self._network.mute = what == "arrived"
                reached.set()

        self._network.happens = happens
        talk = await self._deliverer(lambda line: happens(line.split()[0]))
        try:
            if moment.what != "start":
                over = asyncio.create_task(talk.until(lambda line: line == "idle"))  # with nothing left to kill it at
                waits = (asyncio.create_task(reached.wait()), over)
                await asyncio.wait(waits, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
                for task in waits:
                    task.cancel()
                await asyncio.wait(waits)
            # Not a wait for something to happen: the length of this pause is the fault that is tried.
            await asyncio.sleep(moment.seconds)
        finally:
            await talk.kill()
            self._network.happens = lambda _: None  # what arrives later is not of this moment, and must not mute
            self._network.mute = False
        self._note(talk)

    async def _deliverer(self, on_line: Callable[[str], None] = lambda _: None) -> Talk:
        arguments = (str(self._home.database), str(self._network.port), str(self._acknowledged), str(EACH))
        return await self._home.start(sys.executable, str(DELIVERER), *arguments, on_line=on_line)

    def _note(self, talk: Talk) -> None:
        complaints = [line for line in talk.complaints.splitlines() if " is ambiguous: " not in line]
        assert complaints == []
        posted = [int(line.removeprefix("posted k")) for line in talk.heard if line.startswith("posted ")]
        self._acknowledged = max((self._acknowledged, *(number + 1 for number in posted)))

    async def _check(self, kills: int) -> Counter[str]:
        database = Database(self._home.database, "home", readonly=True)
        kept = [delivery_of(job) for job in await JobQueue(database).recent(limit=1_000_000)]
        await database.close()
        assert [delivery.idempotency_key for delivery in reversed(kept)] == [f"k{n}" for n in range(self._acknowledged)]
        for delivery in kept:
            times = self._network.times(delivery.idempotency_key)
            allowed = {"sent": (1,), "ambiguous": (0, 1) if delivery.channel == "bare" else ()}
            assert times in allowed.get(delivery.state, ()), (delivery, times)
        for channel in CHANNELS:
            for person in PEOPLE:
                self._check_order(channel, person)
        states = Counter(delivery.state for delivery in kept)
        assert states["ambiguous"] <= kills * AT_ONCE, states
        return Counter(states) + Counter(repeated=self._network.repeats)

    def _check_order(self, channel: str, person: str) -> None:
        numbers = [
            int(delivery.idempotency_key[1:])
            for delivery in self._network.shown
            if (delivery.channel, delivery.to) == (channel, person)
        ]
        assert numbers == sorted(numbers), (channel, person, numbers)
