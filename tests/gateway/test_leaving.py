"""Clients that leave leave nothing behind: a thousand that come and go must not wait for the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
from serving import PATIENCE, Running, Visitor

from palinurus.gateway.http.connections import HttpConnection, SocketConnection
from palinurus.gateway.websocket.socket import SocketClient
from palinurus.testing.loop_time import excuse

Leave = Callable[[], Awaitable[object]]


@contextmanager
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@asynccontextmanager
async def listening(served: Running) -> AsyncIterator[tuple[Leave, Leave]]:
    """A client on a WebSocket: how it says good-bye, and how it goes without a word."""
    visitor = await Visitor.enter(served.ws, served.token)

    async def abort() -> None:
        visitor.socket.transport.abort()

    yield visitor.leave, abort


@asynccontextmanager
async def asking(served: Running) -> AsyncIterator[tuple[Leave, Leave]]:
    """One that has asked over HTTP and could ask again."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n\r\n".encode())
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)

    async def close() -> None:
        writer.close()

    async def abort() -> None:
        writer.transport.abort()

    yield close, abort


def held_by(gateway_side: SocketConnection | HttpConnection | SocketClient) -> Iterator[object]:
    """It, and what asyncio has made for it."""
    yield gateway_side
    if not isinstance(gateway_side, SocketClient):
        yield gateway_side.transport
        yield gateway_side.transport.get_extra_info("socket")._sock


@pytest.mark.parametrize("way", [0, 1], ids=["with a good-bye", "without a word"])
@pytest.mark.parametrize(("client", "things"), [(listening, 4), (asking, 3)], ids=["listening", "asking"])
async def test_a_client_that_has_left_is_gone_without_waiting_for_the_collector(
    served: Running,
    client: Callable[[Running], AsyncIterator[tuple[Leave, Leave]]],
    things: int,
    way: int,
) -> None:
    async with client(served) as ways:
        with no_collector():
            kinds = (SocketConnection, HttpConnection, SocketClient)
            with excuse("the test looks at every object there is, and some import what they stand for"):
                seen = [weakref.ref(of) for each in gc.get_objects() if isinstance(each, kinds) for of in held_by(each)]
            assert len(seen) == things  # the connection and its client: what spoke HTTP went with the upgrade
            await ways[way]()
            async with asyncio.timeout(PATIENCE):
                while any(each() is not None for each in seen):
                    await asyncio.sleep(0)
