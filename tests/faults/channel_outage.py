"""Messages queue up for many people while their network is down; then it comes back.

Nothing may be lost, doubled or change places, the gateway may not grow by what waits, and whoever sends one message
more than may wait for a person is told so.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from channels.networks.telegram import FakeTelegram
from homes import PATIENCE, PalHome, Talk
from palinurus.config.home import find_home
from palinurus.dispatch.delivery import MOST_WAITING
from palinurus.domain.errors import QueueFull
from palinurus.operations.message import SendMessage, send_message
from palinurus.runtime.home_access import HomeAccess
from support.wire import WireServer

AT_ONCE = 20  # who send at the same time
STALLED = 60.0  # seconds in which at least one message more is sent
FIRST = 1000  # the number of the first person
GROWTH_KIB = 40 * 1024  # whatever waits


async def outlast_an_outage(
    root: Path, *, people: int, each: int, progress: Callable[[str], None] = lambda _: None
) -> Counter[str]:
    """What was counted; memory in KiB. Raises AssertionError when a promise was broken."""
    network = FakeTelegram()
    await network.start()
    try:
        async with WireServer() as wire:
            outage = _Outage(PalHome(root), network, progress)
            outage.configure(wire.base_url)
            async with outage.home.talking("gateway", "run", "--port", "0") as gateway:
                await outage.run(gateway, people, each)
                gateway.process.terminate()
                ended = await gateway.ended()
                assert ended.code == 0, ended
        return outage.counted
    finally:
        await network.stop()


class _Outage:
    def __init__(self, home: PalHome, network: FakeTelegram, progress: Callable[[str], None]) -> None:
        self.home = home
        self.counted: Counter[str] = Counter()
        self._network = network
        self._progress = progress

    def configure(self, base_url: str) -> None:
        self.home.set_up(base_url)
        path = self.home.root / "palinurus.json"
        account = self._network.config() | {"retry": {"maxDelayMs": 500}}
        path.write_text(json.dumps(json.loads(path.read_text()) | {"channels": {"telegram": account}}))

    async def run(self, gateway: Talk, people: int, each: int) -> None:
        await gateway.until(lambda said: said.startswith("pal gateway at "))
        await _until(lambda: bool(self._network.offsets))
        await self._network.stop()
        self.counted["KiB before"] = _kib(gateway)
        await self._queue(people, each)
        self._network.sent.clear()
        self.counted["KiB while all wait"] = _kib(gateway)
        self._progress(f"{people * each:,} messages wait: {self.counted['KiB while all wait']:,} KiB")
        await self._network.start()
        await self._arrive(gateway, people * each + MOST_WAITING)
        self._check(people, each)
        growth = self.counted["KiB at most"] - self.counted["KiB before"]
        assert growth <= GROWTH_KIB, f"it has grown by {growth:,} KiB: {self.counted}"

    async def _queue(self, people: int, each: int) -> None:
        free = asyncio.Semaphore(AT_ONCE)
        access = HomeAccess(find_home(self.home.env), self.home.env, "pal test", warn=self._progress)
        async with access as door:

            async def write(person: int, count: int) -> None:
                async with free:
                    for number in range(count):
                        params = SendMessage("telegram", str(FIRST + person), f"message {number}")
                        await door.call(send_message, params, f"{person}-{number}")

            async with asyncio.TaskGroup() as group:
                for person in range(people):
                    group.create_task(write(person, each))
                group.create_task(write(people, MOST_WAITING))
            try:
                await write(people, MOST_WAITING + 1)  # the last one is new
            except QueueFull:
                self.counted["told that too many wait"] += 1

    async def _arrive(self, gateway: Talk, count: int) -> None:
        sent = self._network.sent
        while len(sent) < count:
            seen = len(sent)
            await _until(lambda: len(sent) > seen)  # noqa: B023  awaited at once
            self.counted["KiB at most"] = max(self.counted["KiB at most"], _kib(gateway))
            await asyncio.sleep(0.2)
            if len(sent) // 1000 > seen // 1000:
                self._progress(f"{len(sent):,} of {count:,} have arrived: {_kib(gateway):,} KiB")

    def _check(self, people: int, each: int) -> None:
        arrived: dict[str, list[str]] = defaultdict(list)
        for message in self._network.sent:
            arrived[message.chat].append(message.text)
        for person in range(people + 1):
            count = each if person < people else MOST_WAITING
            assert arrived.pop(str(FIRST + person)) == [f"message {number}" for number in range(count)], person
        assert not arrived, f"to nobody: {list(arrived)}"
        assert self.counted["told that too many wait"] == 1
        self.counted["messages"] = len(self._network.sent)


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(max(PATIENCE, STALLED)):
        while not holds():
            await asyncio.sleep(0.05)


def _kib(process: Talk) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1])  # type: ignore[index]  # it is always there
