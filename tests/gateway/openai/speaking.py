"""A gateway on loopback over a house with a scripted model, and somebody who speaks OpenAI's language to it."""

from __future__ import annotations

from typing import Any

import httpx2
import msgspec

from palinurus.config.home import Home
from palinurus.extensions.openai_api.routes import routes
from palinurus.gateway.auth.devices import ConnectAuthenticator
from palinurus.gateway.auth.guard import Guard, server_address
from palinurus.gateway.http.app import make_app
from palinurus.gateway.http.server import HttpServer
from palinurus.gateway.hub import Hub
from palinurus.gateway.websocket.methods import Endpoints, GatewayContext, Methods
from palinurus.gateway.websocket.socket import Sockets
from palinurus.operations.access import AccessStore, Register
from palinurus.operations.table import Table
from palinurus.storage.database import MemoryDatabase
from palinurus.testing.harness import Harness

TOKEN = "a-token-of-the-owner"
WAIT = 60.0


class Served:
    """A gateway that listens, and somebody who speaks to it."""

    def __init__(self, pal: Harness, home: Home, endpoints: Endpoints) -> None:
        self.pal = pal
        self.register = Register(AccessStore(MemoryDatabase()), pal.clock, pal.new_id)
        guard = Guard(self.register, server_address(0), lambda: TOKEN, pal.clock)
        self.services, hub = pal.services(home), Hub()
        desk = GatewayContext(self.services, guard, hub, pal.new_id, endpoints, pal.clock.now_ms())
        keeper = ConnectAuthenticator(guard, hub, pal.clock, pal.new_id)
        app = make_app(desk, Sockets(desk, Methods((), Table()), keeper), routes(desk))
        self._listening = HttpServer(app, ["127.0.0.1"], 0)
        guard.address = server_address(self._listening.port)
        self.url = f"http://127.0.0.1:{self._listening.port}"
        headers = {"authorization": f"Bearer {TOKEN}"}
        self.http = httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=WAIT)

    async def start(self) -> None:
        await self._listening.start()

    async def close(self) -> None:
        await self.http.aclose()
        await self.pal.lanes.cancel()  # a run that nobody ends would hold the server
        await self._listening.close()

    async def chat(self, *messages: Any, headers: dict[str, str] | None = None, **further: Any) -> httpx2.Response:
        said = [{"role": "user", "content": message} if isinstance(message, str) else message for message in messages]
        body = {"model": "palinurus", "messages": said, **further}
        return await self.http.post("/v1/chat/completions", json=body, headers=headers)

    async def respond(self, body: Any, headers: dict[str, str] | None = None, **further: Any) -> httpx2.Response:
        return await self.http.post("/v1/responses", json={"input": body, **further}, headers=headers)

    async def keys(self) -> list[str]:
        """All sessions, newest first."""
        return [session.key for session in await self.pal.sessions.recent()]


def events(text: str) -> list[Any]:
    """The data of server-sent events; `[DONE]` as it is."""
    found = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [data if data == "[DONE]" else msgspec.json.decode(data) for data in found]


def tool(name: str = "weather") -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
    return {"type": "function", "function": {"name": name, "description": "Look.", "parameters": parameters}}
