"""A sample of the long talk that `make soak` has two thousand turns of."""

from __future__ import annotations

from pathlib import Path

import pytest
from long_talk import WINDOW, talk_for_long


@pytest.mark.slow
async def test_a_long_talk_with_tools_stays_within_a_small_window(tmp_path: Path) -> None:
    talked = await talk_for_long(tmp_path, turns=120)
    assert talked.fullest <= WINDOW
    assert talked.compactions >= 6
    assert talked.flushes >= 3
    assert talked.slower < 4, str(talked)  # the soak says 1.5; other suites run beside this one
