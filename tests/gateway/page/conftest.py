"""A browser at the gateway's door."""

from __future__ import annotations

import pytest
from browsing import Browser
from serving import Running


@pytest.fixture
def browser(served: Running) -> Browser:
    return Browser(served)
