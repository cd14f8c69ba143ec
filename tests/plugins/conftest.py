from __future__ import annotations

from collections.abc import Iterator

import pytest
from plugged import fresh_modules


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    with fresh_modules():
        yield
