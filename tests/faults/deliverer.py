"""A process that delivers, for the fault suite: posts messages and has them sent to a server on loopback.

    python deliverer.py DATABASE PORT FIRST COUNT

It prints `ready`, `posted KEY` when a message is on the disk, and `idle` when nothing is left to send; it ends with its
input. Messages go in turn by a channel whose network knows idempotency keys and by one whose network does not.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import msgspec

from palinurus.dispatch.delivery import Deliveries, DeliveryJob
from palinurus.dispatch.jobs import Jobs
from palinurus.domain.clock import SystemClock, random_id
from palinurus.domain.envelope import Delivery
from palinurus.domain.errors import JobFailed
from palinurus.storage.database import Database
from palinurus.storage.jobs import JobQueue, RetryPolicy

CHANNELS = ("safe", "bare")
PEOPLE = ("ann", "bob", "cy")
AT_ONCE = 2
# A busy machine kills late, and what waits unanswered until then is tried many times.
RETRY = RetryPolicy(first_ms=5, longest_ms=50, attempts=100_000)


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class LoopbackSender:
    """Implements dispatch.delivery.ChannelSender: one line there, one line back."""

    def __init__(self, channel: str, port: int) -> None:
        self.channel = channel
        self.repeatable = channel == "safe"
        self._port = port

    async def send(self, delivery: DeliveryJob) -> str:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError as error:
            raise JobFailed(f"nobody is there: {error}") from None
        try:
            writer.write(msgspec.json.encode(delivery) + b"\n")
            answer = (await reader.readline()).decode().split()
        finally:
            writer.close()
        if answer[:1] == ["busy"]:
            raise JobFailed("the network is busy")
        if answer[:1] != ["ok"]:
            raise ConnectionError("no answer")
        return answer[1]


def place_of(number: int) -> Delivery:
    return Delivery(CHANNELS[number % 2], PEOPLE[number % 3])


async def main(database_path: str, port: int, first: int, count: int) -> None:
    database = Database(Path(database_path), "home")
    jobs = Jobs(JobQueue(database), SystemClock(), random_id, random.random, lambda _: None)
    deliveries = Deliveries(jobs, retry=RETRY, at_once=AT_ONCE)
    for channel in CHANNELS:
        deliveries.register(LoopbackSender(channel, port))
    await jobs.start()
    tell("ready")
    for number in range(first, first + count):
        await deliveries.post(place_of(number), f"words {number}", f"k{number}")
        tell(f"posted k{number}")
    while await deliveries.recent(states=("waiting", "sending")):
        await asyncio.sleep(0.01)
    tell("idle")
    await asyncio.to_thread(sys.stdin.read)
    await jobs.close()
    await database.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:5])))
