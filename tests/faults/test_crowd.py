"""Promise 6 with two processes: a sample of the thousand messages of `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest
from crowd import talk_all_at_once

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("queue", ["followup", "steer"])
async def test_two_processes_and_a_killed_holder_keep_every_message_once_and_in_order(
    tmp_path: Path, queue: str
) -> None:
    await talk_all_at_once(tmp_path / "home", messages=80, sessions=3, kills=3, seed=1, queue=queue)
