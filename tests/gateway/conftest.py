"""A gateway for each test that asks for one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from serving import Running, running

from palinurus.config.home import Home


@pytest.fixture
async def served(home: Home) -> AsyncIterator[Running]:
    async with running(home) as here:
        yield here
