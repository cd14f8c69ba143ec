"""Gateways for the suites of OpenAI's endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from speaking import Served

from palinurus.config.home import Home
from palinurus.gateway.websocket.methods import Endpoints
from palinurus.testing.harness import Harness

ALL = Endpoints()


@pytest.fixture
async def open_gateway(pal: Harness, home: Home) -> AsyncIterator[Callable[..., Any]]:
    opened: list[Served] = []

    async def make(endpoints: Endpoints = ALL) -> Served:
        served = Served(pal, home, endpoints)
        opened.append(served)
        await served.start()
        return served

    yield make
    for served in opened:
        await asyncio.wait_for(served.close(), 60)


@pytest.fixture
async def served(open_gateway: Callable[..., Any]) -> Served:
    one: Served = await open_gateway()
    return one
