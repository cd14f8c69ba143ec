"""Promise 6 with two processes: a sample of the thousand messages of `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest
from crowd import talk_all_at_once

pytestmark = pytest.mark.slow


async def test_two_processes_and_a_killed_holder_keep_every_message_once_and_in_order(tmp_path: Path) -> None:
    await talk_all_at_once(tmp_path / "home", messages=80, sessions=3, kills=3, seed=1)
