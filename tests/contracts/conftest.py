"""Every store is held to its suite in memory, as tests and the simulator have it, and on a disk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palinurus.storage.database import Database, MemoryDatabase


@pytest.fixture(params=["memory", "disk"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    made = MemoryDatabase() if request.param == "memory" else Database(tmp_path / "home.sqlite", "home")
    yield made
    await made.close()
