"""A sample of the kills of `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory_killing import kill_the_indexer


@pytest.mark.slow
async def test_an_indexer_that_is_killed_leaves_an_index_that_the_next_sweep_makes_right(tmp_path: Path) -> None:
    seen = await kill_the_indexer(tmp_path, kills=6, seed=6)
    assert seen["kills"] == 6
    assert seen["sweeps"] >= 1
