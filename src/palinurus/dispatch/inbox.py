"""Accepted messages. A row here is the promise that a message will not be lost.

The row of a message is its *run*. It is committed before the sender is told; when its turn starts the message enters
the transcript under the run's id, so that starting twice cannot say it twice; when the turn ends the row keeps the
result, so that whoever asks again (a client whose holder died) gets the same answer and not a second turn.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from palinurus.dispatch.parcel import Parcel
from palinurus.domain.envelope import Inbound
from palinurus.domain.events import RunResult


class RunRecord(Struct, frozen=True):
    run_id: str
    idempotency_key: str
    session_key: str
    inbound: Inbound
    accepted_at: int
    attempts: int = 0  # after the first one: how often it was taken up again
    result: RunResult | None = None


class Inbox(Protocol):
    """Keeps accepted messages. When a call that writes returns, it is on the disk."""

    async def accept(self, record: RunRecord) -> RunRecord:
        """Keep it and give it, the very same, back; or the one that came first under the same idempotency key."""

    async def begin(self, run_id: str) -> None:
        """A run that another process had left is taken up again: one more attempt."""

    async def finish(self, result: RunResult, parcel: Parcel | None = None) -> Parcel | None:
        """The run is over. The first result stays.

        The parcel with its reply enters the outbox in the same breath: there is no result whose reply is lost. What
        was kept of it is given back; where its recipient has no room left it is kept as failed.
        """

    async def find(self, run_id: str) -> RunRecord | None: ...

    async def pending(self) -> list[RunRecord]:
        """Those without a result, in the order in which they were accepted."""
