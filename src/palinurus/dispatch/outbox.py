"""What the outbox needs of others: one who keeps parcels, and for each channel one who carries them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from msgspec import Struct

from palinurus.dispatch.parcel import Parcel, Recipient, State


class Receipt(Struct, frozen=True):
    id: str = ""  # the network's


class Carrier(Protocol):
    """Carries parcels by one channel."""

    @property
    def channel(self) -> str: ...

    @property
    def repeatable(self) -> bool:
        """Whether carrying a parcel twice under its idempotency key delivers it once."""

    async def carry(self, parcel: Parcel) -> Receipt:
        """Returns when the network has acknowledged it. Raises CarryFailed when it certainly has not arrived and may be
        tried again, CarryRefused when trying again is of no use; whatever else it raises leaves the fate unknown."""


class Outbox(Protocol):
    """Keeps parcels. When a call that writes returns, it is on the disk."""

    async def add(self, parcel: Parcel) -> Parcel:
        """Keep it; the one that is there already when its idempotency key is known. Raises QueueFull."""

    async def change(self, parcel: Parcel) -> Parcel | None:
        """Replace the row with this id and revision: the parcel at its next revision. None: somebody was quicker."""

    async def next(self, recipient: Recipient) -> Parcel | None:
        """The oldest of theirs that waits or is being sent."""

    async def recipients(self, channel: str = "") -> list[Recipient]:
        """Those for whom something waits or is being sent; an empty channel means every channel."""

    async def unfinished(self) -> list[Parcel]:
        """Those that are being sent, or were when a process died, oldest first."""

    async def find(self, beginning: str) -> list[Parcel]:
        """Those whose id begins so, in its order, at most two: enough to see whether it is clear which one is meant."""

    async def recent(self, *, states: Collection[State] = (), limit: int = 50) -> list[Parcel]:
        """Newest first; no states mean every state."""

    async def counts(self) -> dict[tuple[str, State], int]:
        """How many there are of each channel and state, but for those that were sent or dropped."""

    async def forget(self, before: int) -> int:
        """Remove what was sent or dropped and had been queued before that moment. How many."""
