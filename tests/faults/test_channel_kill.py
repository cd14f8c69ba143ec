"""Channels under kill -9 and faults of their network: a sample of the fifty kills in `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest
from channel_killing import kill_a_channel

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("network", ["telegram", "custom"])
async def test_every_message_is_answered_once_or_its_answer_is_listed_with_a_reason(
    network: str, tmp_path: Path
) -> None:
    counted = await kill_a_channel(tmp_path / "home", network, messages=60, kills=4, seed=1)
    assert counted["messages"] == 60
    assert counted["sent"] >= 20, counted
    assert counted["ambiguous"] >= (network == "telegram"), counted  # else no fault and no kill has hit a message
    if network == "custom":  # it knows idempotency keys: in doubt is only what was refused when it was repeated
        assert counted["ambiguous"] <= counted["gone"], counted
