"""A home whose model is served on loopback."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from palinurus.config.home import Home
from support.wire import WireServer


@pytest.fixture
async def server(home: Home) -> AsyncIterator[WireServer]:
    """The home's model is `mock/m` of this server."""
    async with WireServer(models=("m",)) as server:
        config = json.loads(home.config_path.read_text())
        config["agents"]["defaults"]["model"] = "mock/m"
        config["models"] = {"providers": {"mock": {"baseUrl": server.base_url}}}
        home.config_path.write_text(json.dumps(config))
        yield server
