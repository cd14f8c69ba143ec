"""Promise 10 at the gateway: a sample of the ten minutes with a thousand clients in `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest
from gateway_soak import besiege, check_steady

pytestmark = pytest.mark.slow


async def test_clients_that_listen_talk_and_come_and_go_leave_the_gateway_as_it_was(tmp_path: Path) -> None:
    counted = await besiege(tmp_path / "home", clients=100, seconds=6.0, warm_turns=400, seed=4)
    check_steady(counted)
    assert counted["came and went"] > 0
