"""The small web of these tests: see small_web.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from small_web import FakeNet, Server, call

from palinurus.domain.tool import ToolOutput
from palinurus.tools.settings import FetchSettings, SearchSettings


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = listening.sockets[0].getsockname()[1]
    yield made
    listening.close()


@pytest.fixture
def fetch(server: Server) -> Callable[..., Awaitable[ToolOutput]]:
    """web_fetch, with that server as the one private host that is allowed. Keywords are settings or arguments."""

    async def fetch(url: str, **said: Any) -> ToolOutput:
        arguments = {name: said.pop(name) for name in ("max_chars", "raw") if name in said}
        settings = FetchSettings(**{"allow_private": (f"127.0.0.1:{server.port}",), **said})
        return await call("web_fetch", settings, SearchSettings(), {"url": url, **arguments})

    return fetch


@pytest.fixture
def net() -> FakeNet:
    return FakeNet()
