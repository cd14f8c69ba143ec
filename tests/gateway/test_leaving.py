"""Clients that leave leave nothing behind: a thousand that come and go must not wait for the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import weakref

from serving import PATIENCE, Running, Visitor

from palinurus.gateway.connections import Connection, Http
from palinurus.gateway.socket import SocketClient


async def test_a_client_that_has_left_is_gone_without_waiting_for_the_collector(served: Running) -> None:
    visitor = await Visitor.enter(served.ws, served.token)
    gc.collect()
    gc.disable()
    try:
        seen = [weakref.ref(each) for each in gc.get_objects() if isinstance(each, Connection | Http | SocketClient)]
        assert len(seen) == 2  # the connection and its client: what spoke HTTP went with the upgrade
        visitor.socket.transport.abort()
        async with asyncio.timeout(PATIENCE):
            while any(each() is not None for each in seen):
                await asyncio.sleep(0)
    finally:
        gc.enable()
