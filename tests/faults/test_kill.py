"""Promise 1 under kill -9: a sample of what `make soak` does two hundred times."""

from __future__ import annotations

from pathlib import Path

import pytest
from killing import kill_again_and_again

from homes import PalHome

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("queue", ["followup", "steer"])
async def test_a_kill_at_any_moment_of_a_turn_loses_nothing_that_was_acknowledged(tmp_path: Path, queue: str) -> None:
    await kill_again_and_again(PalHome(tmp_path / "home"), kills=8, seed=2, queue=queue)
