"""A house in this process, on a home of its own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from palinurus.config.home import Home
from palinurus.runtime.runtime import Runtime


@pytest.fixture
async def runtime(home: Home) -> AsyncIterator[Runtime]:
    """Without vectors: the embedder is a process that takes seconds to start."""
    text = home.config_path.read_text()
    home.config_path.write_text(
        text.replace('"model"', '"memorySearch": {"provider": "none", "sources": ["memory", "sessions"]}, "model"', 1)
    )
    runtime = Runtime(home, dict(os.environ))
    try:
        yield runtime
    finally:
        await runtime.close()
