"""What the suites of skills share."""

from __future__ import annotations

from pathlib import Path

import pytest
from shelved import Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)
