"""A home of its own for each test, and a model server on loopback."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from homes import PalHome, parrot
from support.wire import WireServer


@pytest.fixture
async def wire() -> AsyncIterator[WireServer]:
    async with WireServer(otherwise=parrot) as server:
        yield server


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other users can enter too, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="pal-fault-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
async def home(place: Path, wire: WireServer) -> PalHome:
    """A home that is set up and has a model."""
    home = PalHome(place / "home")
    home.set_up(wire.base_url)
    return home
