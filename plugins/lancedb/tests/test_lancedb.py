"""A memory index in LanceDB, held to what every index of a memory keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contracts import test_memory_store as suite
from palinurus.testing.loop_time import excuse

pytest.importorskip("lancedb")
pytestmark = pytest.mark.real
with excuse("first imports"):
    import lancedb.index  # noqa: F401
    from palinurus_lancedb.store import LanceStore

LEFT_OUT = {"test_what_was_put_is_found_with_its_place_and_lines": "LanceDB does not count the pieces with a word"}
for _name, _test in vars(suite).items():
    if _name.startswith("test_") and _name not in LEFT_OUT:
        globals()[_name] = _test


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LanceStore]:
    made = LanceStore(tmp_path / "index")
    yield made
    await made.close()
