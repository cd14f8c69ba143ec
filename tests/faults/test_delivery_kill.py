"""Promise 3 under kill -9: every parcel arrives exactly once, or is marked as ambiguous."""

from __future__ import annotations

from pathlib import Path

import pytest
from delivering import deliver_again_and_again

pytestmark = pytest.mark.slow


async def test_a_kill_at_any_moment_of_a_delivery_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    ends = await deliver_again_and_again(tmp_path / "home", kills=25, seed=5)
    assert ends["sent"] > 25
    assert ends["ambiguous"] >= 1, ends  # else no kill has come while something was on its way
    assert ends["repeated"] >= 1, ends
