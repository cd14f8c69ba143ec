"""Gateways in processes of their own, shared by the attacks, and the clients of the gateway's own suite."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "gateway"))
from besieged import Besieged, besieged


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    """One that must be what it was after every attack."""
    with besieged(tmp_path_factory.mktemp("besieged")) as here:
        yield here


@pytest.fixture(scope="session")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    """One in which attackers hold a token and may change what it lets them change."""
    with besieged(tmp_path_factory.mktemp("playground")) as here:
        yield here
