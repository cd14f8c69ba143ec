"""Promises 1 and 3 at the gateway's door: a sample of what `make soak` does a hundred times."""

from __future__ import annotations

from pathlib import Path

import pytest
from gateway_killing import kill_the_gateway

from homes import PalHome

pytestmark = pytest.mark.slow


async def test_clients_that_come_back_find_every_message_once_and_every_reply_once(tmp_path: Path) -> None:
    counted = await kill_the_gateway(PalHome(tmp_path / "home"), kills=3, sessions=24, seed=3)
    assert counted["came back"] >= 3 * 24
    assert counted["looked up"] > 0
