"""A home that takes others in, and one that is taken."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from foreign_trees import Tree
from taking_in import Here

from palinurus.testing.fakes import FakeClock, SeededIds


@pytest.fixture
async def here(tmp_path: Path, clock: FakeClock, new_id: SeededIds) -> AsyncIterator[Here]:
    home = Here(tmp_path / "home", clock, new_id)
    yield home
    await home.database.close()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / ".openclaw")
