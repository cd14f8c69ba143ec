"""An outbox in memory, and a network with carriers as carriers are: late, deaf, dead at the wrong moment."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection
from itertools import islice

import msgspec
from msgspec import Struct

from palinurus.dispatch.outbox import Receipt
from palinurus.dispatch.parcel import MOST_WAITING, Parcel, Recipient, State, given_up, no_room
from palinurus.domain.errors import CarryFailed, CarryRefused, QueueFull

OPEN = ("waiting", "sending")
DONE = ("sent", "dropped")


class MemoryOutbox:
    """Implements dispatch.outbox.Outbox."""

    def __init__(self) -> None:
        self.parcels: dict[str, Parcel] = {}  # by id, in the order in which they were queued

    async def add(self, parcel: Parcel) -> Parcel:
        await asyncio.sleep(0)
        return self.put(parcel)

    async def change(self, parcel: Parcel) -> Parcel | None:
        await asyncio.sleep(0)
        known = self.parcels.get(parcel.id)
        if known is None or known.revision != parcel.revision:
            return None
        changed = self.parcels[parcel.id] = msgspec.structs.replace(parcel, revision=parcel.revision + 1)
        return changed

    async def next(self, recipient: Recipient) -> Parcel | None:
        await asyncio.sleep(0)
        return next(iter(self._open(recipient)), None)

    async def recipients(self, channel: str = "") -> list[Recipient]:
        await asyncio.sleep(0)
        waiting = [parcel for parcel in self.parcels.values() if parcel.state in OPEN]
        return list(dict.fromkeys(parcel.recipient for parcel in waiting if channel in ("", parcel.channel)))

    async def unfinished(self) -> list[Parcel]:
        await asyncio.sleep(0)
        return [parcel for parcel in self.parcels.values() if parcel.state == "sending"]

    async def find(self, beginning: str) -> list[Parcel]:
        await asyncio.sleep(0)
        found = [parcel for parcel in self.parcels.values() if parcel.id.startswith(beginning)]
        return sorted(found, key=lambda parcel: parcel.id)[:2]

    async def recent(self, *, states: Collection[State] = (), limit: int = 50) -> list[Parcel]:
        await asyncio.sleep(0)
        newest = reversed(list(self.parcels.values()))
        return list(islice((parcel for parcel in newest if not states or parcel.state in states), limit))

    async def counts(self) -> dict[tuple[str, State], int]:
        await asyncio.sleep(0)
        counts: dict[tuple[str, State], int] = {}
        for parcel in self.parcels.values():
            if parcel.state not in DONE:
                counts[parcel.channel, parcel.state] = counts.get((parcel.channel, parcel.state), 0) + 1
        return counts

    async def forget(self, before: int) -> int:
        await asyncio.sleep(0)
        old = [parcel for parcel in self.parcels.values() if parcel.state in DONE and parcel.queued_at < before]
        for parcel in old:
            del self.parcels[parcel.id]
        return len(old)

    def put(self, parcel: Parcel) -> Parcel:
        for known in self.parcels.values():
            if known.idempotency_key == parcel.idempotency_key:
                return known
        if len(self._open(parcel.recipient)) >= MOST_WAITING:
            raise no_room(parcel)
        self.parcels[parcel.id] = parcel
        return parcel

    def put_reply(self, parcel: Parcel) -> Parcel:
        """As storage.outbox.add_reply: never refused."""
        try:
            return self.put(parcel)
        except QueueFull as error:
            failed = self.parcels[parcel.id] = given_up(parcel, error.message)
            return failed

    def _open(self, recipient: Recipient) -> list[Parcel]:
        return [parcel for parcel in self.parcels.values() if parcel.recipient == recipient and parcel.state in OPEN]


class Network:
    """What people have received. One that knows idempotency keys shows a parcel once, however often it comes."""

    def __init__(self, *, knows_keys: bool) -> None:
        self.knows_keys = knows_keys
        self.shown: list[Parcel] = []
        self._keys: set[str] = set()

    def receive(self, parcel: Parcel) -> Receipt:
        if parcel.idempotency_key not in self._keys or not self.knows_keys:
            self.shown.append(parcel)
        self._keys.add(parcel.idempotency_key)
        return Receipt(f"n-{parcel.idempotency_key}")

    def times(self, idempotency_key: str) -> int:
        return sum(parcel.idempotency_key == idempotency_key for parcel in self.shown)


class MemoryCarrier:
    """Implements dispatch.outbox.Carrier: everything arrives, unless `before` or, too late, `after` raises."""

    def __init__(self, channel: str = "net", *, repeatable: bool = True, network: Network | None = None) -> None:
        self.channel = channel
        self.repeatable = repeatable
        self.network = network or Network(knows_keys=repeatable)
        self.carried: list[Parcel] = []  # each attempt
        self.before: Callable[[Parcel], None] = lambda _: None
        self.after: Callable[[Parcel], None] = lambda _: None

    @property
    def texts(self) -> list[str]:
        return [parcel.text for parcel in self.network.shown]

    async def carry(self, parcel: Parcel) -> Receipt:
        self.carried.append(parcel)
        self.before(parcel)
        await asyncio.sleep(0)
        receipt = self.network.receive(parcel)
        self.after(parcel)
        return receipt


class Ways(Struct, frozen=True):
    """How often a carrier goes each of the wrong ways."""

    fails: float = 0.0
    refuses: float = 0.0
    breaks: float = 0.0  # raises what it should not, before or after it arrived
    hangs: float = 0.0
    slow: float = 0.0


class FickleCarrier:
    """Implements dispatch.outbox.Carrier by seeded dice.

    `pass_on` is awaited where the house may go down: just before the parcel arrives, and just after.
    """

    def __init__(
        self,
        channel: str,
        network: Network,
        dice: random.Random,
        ways: Ways,
        pass_on: Callable[[str], Awaitable[None]],
    ) -> None:
        self.channel = channel
        self.repeatable = network.knows_keys
        self._network = network
        self._dice = dice
        self._ways = ways
        self._pass_on = pass_on

    async def carry(self, parcel: Parcel) -> Receipt:
        if self._happens(self._ways.fails):
            raise CarryFailed("the network is down", retry_after=self._dice.choice((None, 0.5, 30.0)))
        if self._happens(self._ways.refuses):
            raise CarryRefused("nobody of that name")
        await self._stumble()
        await self._pass_on(f"carry {parcel.idempotency_key}")
        receipt = self._network.receive(parcel)
        await self._pass_on(f"carried {parcel.idempotency_key}")
        await self._stumble()
        return receipt

    async def _stumble(self) -> None:
        """Where it is not known on which side of the border the parcel is."""
        if self._happens(self._ways.slow):
            await asyncio.sleep(self._dice.expovariate(0.5))
        if self._happens(self._ways.breaks):
            raise self._dice.choice((ConnectionResetError("reset"), ValueError("no JSON"), asyncio.CancelledError()))
        if self._happens(self._ways.hangs):
            await asyncio.get_running_loop().create_future()

    def _happens(self, how_often: float) -> bool:
        return self._dice.random() < how_often
