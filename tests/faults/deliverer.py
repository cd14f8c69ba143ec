"""A process that delivers, for the fault suite: posts parcels of its own and has them carried to a server on loopback.

    python deliverer.py DATABASE PORT FIRST COUNT

It prints `ready`, `posted KEY` when a parcel is on the disk, and `idle` when nothing is left to carry; it ends with its
input. Parcels go in turn by a channel whose network knows idempotency keys and by one whose network does not.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import msgspec

from palinurus.dispatch.carrying import Limits
from palinurus.dispatch.delivery import Deliveries
from palinurus.dispatch.outbox import Receipt
from palinurus.dispatch.parcel import Parcel, Patience
from palinurus.domain.clock import SystemClock, random_id
from palinurus.domain.envelope import Delivery
from palinurus.domain.errors import CarryFailed
from palinurus.storage.database import Database
from palinurus.storage.outbox import SqliteOutbox

CHANNELS = ("safe", "bare")
PEOPLE = ("ann", "bob", "cy")
AT_ONCE = 2
# A busy machine kills late, and what waits unanswered until then is tried many times.
LIMITS = Limits(Patience(first_ms=5, longest_ms=50, attempts=100_000), at_once=AT_ONCE)


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class LoopbackCarrier:
    """Implements dispatch.outbox.Carrier: one line there, one line back."""

    def __init__(self, channel: str, port: int) -> None:
        self.channel = channel
        self.repeatable = channel == "safe"
        self._port = port

    async def carry(self, parcel: Parcel) -> Receipt:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError as error:
            raise CarryFailed(f"nobody is there: {error}") from None
        try:
            writer.write(msgspec.json.encode(parcel) + b"\n")
            answer = (await reader.readline()).decode().split()
        finally:
            writer.close()
        if answer[:1] == ["busy"]:
            raise CarryFailed("the network is busy")
        if answer[:1] != ["ok"]:
            raise ConnectionError("no answer")
        return Receipt(answer[1])


def place_of(number: int) -> Delivery:
    return Delivery(CHANNELS[number % 2], PEOPLE[number % 3])


async def main(database_path: str, port: int, first: int, count: int) -> None:
    database = Database(Path(database_path), "home")
    deliveries = Deliveries(SqliteOutbox(database), SystemClock(), random_id, random.random, limits=LIMITS)
    for channel in CHANNELS:
        deliveries.register(LoopbackCarrier(channel, port))
    await deliveries.start()
    tell("ready")
    for number in range(first, first + count):
        await deliveries.post(place_of(number), f"words {number}", f"k{number}")
        tell(f"posted k{number}")
    await deliveries.idle()
    tell("idle")
    await asyncio.to_thread(sys.stdin.read)
    await deliveries.close()
    await database.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:5])))
