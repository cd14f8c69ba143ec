"""Promise 4 with a real process: a sample of what `make soak` does again and again."""

from __future__ import annotations

from pathlib import Path

import pytest
from cron_killing import kill_the_clock

pytestmark = pytest.mark.slow


async def test_a_gateway_that_is_killed_runs_each_due_time_once_and_loses_none(tmp_path: Path) -> None:
    counted = await kill_the_clock(tmp_path / "home", kills=4, seed=21)
    assert counted["kills"] >= 4
    assert counted["told ran"] > 4
    assert counted["run ran"] > 1
    assert counted["once ran"] == 4
