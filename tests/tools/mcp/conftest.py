"""Servers for these tests, and a way to call their tools as the registry would."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from calling import Made

from palinurus.extensions.mcp.connection import load_package
from palinurus.extensions.mcp.servers import McpServers
from palinurus.extensions.mcp.settings import ServerSettings
from palinurus.testing.fakes import FakeClock

HERE = Path(__file__).parent


@pytest.fixture
async def make(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Callable[..., Made]]:
    """`make(plain("greets"), …)`: servers that are ended with the test."""
    made: list[Made] = []
    await load_package()  # takes longer than some of these servers are given

    def make(*settings: ServerSettings, **options: Any) -> Made:
        given = {"first_seconds": 60.0, **options}  # on a busy machine a server takes long to start
        made.append(Made(McpServers(settings, tmp_path / "listings", clock, **given)))
        return made[-1]

    yield make
    for each in made:
        async with asyncio.timeout(60):
            await each.servers.close()


@pytest.fixture
def plain(tmp_path: Path) -> Callable[..., ServerSettings]:
    """`plain("greets", starts=file)`: the settings of a server that takes no package."""

    def plain(*words: str, name: str = "plain", timeout: float = 60.0, **values: Any) -> ServerSettings:
        said = (*words, *(f"{word}={value}" for word, value in values.items()))
        args = (str(HERE / "plain_server.py"), *said)
        return ServerSettings(name, sys.executable, args, cwd=str(tmp_path), timeout_seconds=timeout)

    return plain


@pytest.fixture
def official(tmp_path: Path) -> ServerSettings:
    args = (str(HERE / "official_server.py"), "stdio")
    return ServerSettings("harbour", sys.executable, args, {"GREETING": "ahoy"}, str(tmp_path), timeout_seconds=60.0)


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """Wait for a condition that another process brings about, and not for ever."""

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                await asyncio.sleep(0.01)

    return until
