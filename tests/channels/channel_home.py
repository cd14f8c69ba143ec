"""A home with a gateway, a model on loopback and accounts of a network in memory."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from channels.memory_network import MemoryChannel, MemoryNetwork
from palinurus.config.home import Home
from palinurus.extensions.channels.host import ChannelHost, run_channels
from palinurus.extensions.channels.networks import NETWORKS, Network
from palinurus.operations.services import Services
from palinurus.sessions.transcript import decode_row, messages_of
from support.wire import Otherwise, Says, WireServer

sys.path.insert(0, str(Path(__file__).parent.parent / "gateway"))
from serving import Running, configure, running

ANSWER = Says("aye")
MAIN = "agent:main:main"
OWNER = {"ownerAllowFrom": ["memory:42"]}
OPEN = {"token": "t", "dmPolicy": "open", "allowFrom": ["*"], "groupPolicy": "open"}


class ChannelHome(Struct, frozen=True):
    running: Running
    model: WireServer
    network: MemoryNetwork
    home: Home

    @property
    def services(self) -> Services:
        return self.running.runtime.services

    @property
    def host(self) -> ChannelHost:
        return self.services.keep(ChannelHost)

    async def messages(self, key: str = MAIN) -> list[Any]:
        from palinurus.domain.keys import SessionKey

        session = await self.services.sessions.find(SessionKey.parse(key))
        rows = await self.services.sessions.rows(session.id) if session else []
        return messages_of([decode_row(row) for row in rows])

    async def rests(self) -> None:
        """Until every run is done and every delivery is sent."""
        async with asyncio.timeout(60):
            await self.services.dispatcher.idle()
            await self.services.jobs.idle()

    async def deliveries(self) -> list[Any]:
        return await self.services.deliveries.recent()


@asynccontextmanager
async def channel_home(
    home: Home,
    account: dict[str, Any] | None = None,
    *,
    otherwise: Otherwise = ANSWER,
    networks: dict[str, MemoryNetwork] | None = None,
    agents: dict[str, Any] | None = None,
    wait: bool = True,
    **more: Any,
) -> AsyncIterator[ChannelHome]:
    """`account` is what stands under channels.memory."""
    MemoryChannel.networks = networks or {"t": MemoryNetwork()}
    NETWORKS["memory"] = Network("channels.memory_network:MemoryChannel", "Memory")
    try:
        async with WireServer(otherwise=otherwise) as model:
            provider = {"baseUrl": model.base_url, "models": [{"id": "test", "contextWindow": 32000}]}
            known = json.loads(home.config_path.read_text())["agents"]["defaults"]
            configure(
                home,
                **{
                    "agents": {"defaults": known | {"model": "mine/test"} | (agents or {})},
                    "models": {"providers": {"mine": provider}},
                    "commands": OWNER,
                    "channels": {"memory": OPEN if account is None else account},
                }
                | more,
            )
            async with running(home) as served:
                made = ChannelHome(served, model, next(iter(MemoryChannel.networks.values())), home)
                task = asyncio.create_task(run_channels(made.services))
                if wait:
                    await made.network.until(lambda: made.network.inbox)
                try:
                    yield made
                finally:
                    await served.gateway.close()
                    task.cancel()
                    await asyncio.wait([task])
    finally:
        del NETWORKS["memory"]
        MemoryChannel.networks = {}
