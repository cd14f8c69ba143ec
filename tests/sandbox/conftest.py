"""Who starts the sandboxes that others try to escape from."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from starters import Starter, starter

ORDINARY = 48_217


@pytest.fixture(scope="module", params=["root", "ordinary user"])
def room(request: pytest.FixtureRequest) -> Iterator[Starter]:
    """A workspace behind bubblewrap's walls, started by root and by an ordinary user."""
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("this is not root")
    user = ORDINARY if request.param != "root" and os.geteuid() == 0 else None
    with starter(user) as found:
        yield found
