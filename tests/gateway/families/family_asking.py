"""Somebody who asks methods of the gateway: parameters go in as JSON and results come out as JSON, as in frames."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any, Self

import msgspec
from websockets.asyncio.client import ClientConnection, connect

from palinurus.config.home import Home
from palinurus.gateway.auth.devices import ConnectAuthenticator
from palinurus.gateway.auth.guard import Guard, Principal, server_address
from palinurus.gateway.http.app import make_app
from palinurus.gateway.http.server import HttpServer
from palinurus.gateway.hub import Hub, Publisher
from palinurus.gateway.openclaw import METHODS
from palinurus.gateway.protocol import RequestFrame
from palinurus.gateway.websocket.methods import ClientSession, GatewayContext, Methods
from palinurus.gateway.websocket.requests import take_key
from palinurus.gateway.websocket.socket import Sockets
from palinurus.operations.access import AccessStore, Register
from palinurus.operations.scopes import SCOPES, Scope
from palinurus.operations.services import Services
from palinurus.runtime.table import TABLE
from palinurus.storage.database import MemoryDatabase
from palinurus.testing.harness import Harness

TOKEN = "a-token-of-the-owner"
WAIT = 60.0


def all_methods() -> Methods:
    return Methods(METHODS, TABLE)


class Asking:
    """One client of a gateway over the house of a Harness, without a wire. Implements hub.Listener."""

    def __init__(self, pal: Harness, home: Home, services: Services | None = None) -> None:
        self.pal = pal
        self.home = home
        self.hub = Hub()
        self.services = services or pal.services(home)
        clock = self.services.clock
        self.register = Register(AccessStore(MemoryDatabase()), clock, pal.new_id)
        guard = Guard(self.register, server_address(0), lambda: TOKEN, clock)
        self.desk = GatewayContext(self.services, guard, self.hub, pal.new_id, started_at=clock.now_ms())
        self.methods = all_methods()
        self.heard: list[tuple[str, Any]] = []
        self.services.dispatcher.runs.listen(Publisher(self.hub, clock))
        self.services.holder.publish = self.hub.publish

    def send_event(self, event: str, payload: msgspec.Raw) -> None:
        self.heard.append((event, msgspec.json.decode(payload)))

    async def __call__(self, method: str, scopes: Iterable[Scope] = SCOPES, /, **params: Any) -> Any:
        return await self.sends(method, msgspec.json.encode(params), scopes)

    async def sends(self, name: str, raw: bytes, scopes: Iterable[Scope] = SCOPES) -> Any:
        method = self.methods.get(name)
        client = ClientSession(self.desk, Principal("somebody", "somebody", frozenset(scopes)), self)
        assert client.principal.may(method.scope), f"{name} needs {method.scope}"
        key, params = take_key(RequestFrame("1", name, msgspec.Raw(raw)))
        found = method.handler(client, self.methods.params(method, params), key)
        async with asyncio.timeout(WAIT):
            if method.feed:
                return [msgspec.json.decode(msgspec.json.encode(item)) async for item in found]  # type: ignore[union-attr]
            result = await found  # type: ignore[misc]
        # What is published as the schema of the result is what comes: the other side reads it by that type.
        told = msgspec.json.encode(result)
        msgspec.json.decode(told, type=method.result)
        return msgspec.json.decode(told)

    def sockets(self) -> Sockets:
        keeper = ConnectAuthenticator(self.desk.guard, self.hub, self.pal.clock, self.pal.new_id)
        return Sockets(self.desk, self.methods, keeper)


class Line:
    """A real WebSocket to a gateway that listens on loopback: frames out, frames in."""

    def __init__(self, ask: Asking) -> None:
        self._ask = ask
        self._count = 0

    async def __aenter__(self) -> Self:
        self.sockets = self._ask.sockets()
        self._listening = HttpServer(make_app(self._ask.desk, self.sockets, []), ["127.0.0.1"], 0)
        self._ask.desk.guard.address = server_address(self._listening.port)
        await self._listening.start()
        self.clients: list[ClientConnection] = []
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self.clients:
            await client.close()
        await self._ask.pal.lanes.cancel()  # a run that nobody ends would hold the server
        await asyncio.wait_for(self._listening.close(), 60)

    async def open(self) -> ClientConnection:
        """A client that was asked who it is."""
        client = await connect(f"ws://127.0.0.1:{self._listening.port}/", open_timeout=WAIT)
        self.clients.append(client)
        await self.read(client)
        return client

    async def connect(self, token: str = TOKEN) -> ClientConnection:
        """A client that was let in."""
        client = await self.open()
        answer = await self.call(client, "connect", auth={"token": token}, client={"id": "test"})
        assert answer["ok"], answer
        return client

    async def call(self, client: ClientConnection, method: str, /, **params: Any) -> Any:
        """The response frame, whatever events come before it."""
        await self.send(client, method, params)
        return await self.answer(client)

    async def send(self, client: ClientConnection, method: str, params: dict[str, Any], **more: Any) -> None:
        self._count += 1
        frame = {"type": "req", "id": str(self._count), "method": method, "params": params}
        await client.send(json.dumps({**frame, **more}))

    async def answer(self, client: ClientConnection) -> Any:
        """The response to what was sent last."""
        wanted = str(self._count)
        while True:
            frame = await self.read(client)
            if frame["type"] == "res" and frame["id"] == wanted:
                return frame

    async def until(self, client: ClientConnection, event: str, **payload: Any) -> Any:
        """The payload of the next event of this name that has these fields."""
        while True:
            frame = await self.read(client)
            if frame["type"] == "event" and frame["event"] == event and payload.items() <= frame["payload"].items():
                return frame["payload"]

    async def read(self, client: ClientConnection) -> Any:
        return json.loads(await asyncio.wait_for(client.recv(), WAIT))
