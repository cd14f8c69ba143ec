"""Deliveries while a network is down: a tenth of the ten thousand messages in `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest
from channel_outage import outlast_an_outage

pytestmark = pytest.mark.slow


async def test_what_waits_for_a_network_arrives_in_order_and_who_sends_too_much_is_told(tmp_path: Path) -> None:
    counted = await outlast_an_outage(tmp_path / "home", people=100, each=10)
    assert counted["told that too many wait"] == 1
