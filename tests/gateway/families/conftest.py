"""A gateway's methods over a whole house, with a config in its home."""

from __future__ import annotations

import pytest
from family_asking import Asking

from palinurus.config.home import Home
from palinurus.testing.harness import Harness


@pytest.fixture
async def ask(pal: Harness, home: Home) -> Asking:
    return Asking(pal, home)
