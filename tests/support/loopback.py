"""Channels without a network: what people write is received, and what agents send is kept."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

from palinurus.dispatch.reception import ReceivedMessage
from palinurus.domain.envelope import Inbound, Peer
from palinurus.domain.events import RunResult
from palinurus.runtime.runtime import Runtime

from .delivery import MemorySender

SECONDS = 60.0


class LoopbackChannel:
    """One channel of a home."""

    def __init__(self, runtime: Runtime, name: str) -> None:
        self.services = runtime.services
        self.name = name
        self.sender = MemorySender(name)
        self.services.deliveries.register(self.sender)
        self._numbers = count()

    async def hears(
        self, text: str, *, sender: str, chat: str = "direct", account: str = "", **peer: Any
    ) -> ReceivedMessage:
        """A message, as an adapter would hand it in. `chat`: direct, group:ID or channel:ID."""
        kind, _, name = chat.partition(":")
        where = Peer(name or sender, kind, **peer)  # type: ignore[arg-type]
        inbound = Inbound(
            text, f"{self.name}-{next(self._numbers)}", channel=self.name, account=account, sender=sender, peer=where
        )
        return await asyncio.wait_for(self.services.reception.receive(inbound), SECONDS)

    async def asks(self, text: str, **who: Any) -> RunResult:
        """The same, up to the reply of the one run that it starts."""
        received = await self.hears(text, **who)
        assert received.outcome == "accepted", received
        (run,) = received.runs
        return await run.wait(SECONDS)

    async def sent(self, number: int) -> list[tuple[str, str]]:
        """The first messages that agents have sent: to whom, and what."""
        async with asyncio.timeout(SECONDS):
            while len(self.sender.network.shown) < number:
                await asyncio.sleep(0.01)
        return [(each.to, each.text) for each in self.sender.network.shown]
