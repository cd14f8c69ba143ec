"""An open home whose model is scripted on a loopback wire."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from palinurus.config.home import Home
from palinurus.domain.envelope import Inbound
from palinurus.domain.events import RunResult
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import ToolResult
from palinurus.runtime.runtime import Runtime
from palinurus.runtime.services import HomeServices
from palinurus.sessions.transcript import decode_row, messages_of
from support.wire import Behaviour, WireServer

WAIT = 60.0


class OpenHome:
    def __init__(self, runtime: Runtime, server: WireServer) -> None:
        self.runtime = runtime
        self.server = server
        self._count = 0

    @property
    def services(self) -> HomeServices:
        return self.runtime.services

    async def hears(self, text: str, key: str = "agent:main:main", **more: Any) -> RunResult:
        self._count += 1
        inbound = Inbound(text, f"{self._count}-{text}", session_key=key, **more)
        result = await (await self.services.dispatcher.submit(inbound)).wait(WAIT)
        async with asyncio.timeout(WAIT):
            await self.services.hooks.idle()
        return result

    def says(self, *behaviours: Behaviour) -> None:
        self.server.script += behaviours

    def head(self) -> str:
        return json.dumps(self.server.requests[-1]["messages"][0])

    async def results(self, key: str = "agent:main:main") -> list[ToolResult]:
        session = await self.services.sessions.find(SessionKey.parse(key))
        rows = await self.services.sessions.rows(session.id) if session else []
        return [each for each in messages_of([decode_row(row) for row in rows]) if isinstance(each, ToolResult)]


@asynccontextmanager
async def opened(home: Home, env: Mapping[str, str] = {}, /, **sections: Any) -> AsyncIterator[OpenHome]:
    async with WireServer() as server:
        config = json.loads(home.config_path.read_text())
        config["agents"]["defaults"]["model"] = "mock/m"
        config["models"] = {"providers": {"mock": {"baseUrl": server.base_url}}}
        home.config_path.write_text(json.dumps({**config, **sections}))
        runtime = Runtime(home, {"PATH": "/usr/bin:/bin", **env})
        try:
            yield OpenHome(runtime, server)
        finally:
            await asyncio.wait_for(runtime.close(), WAIT)
