"""A year in five time zones, with kills, sleeps and clocks that are set: each due time has one row and ends right."""

from __future__ import annotations

import pytest
from oracle import check
from year import simulate

from support import SOAK

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(100 if SOAK else 2))
def test_each_due_time_of_a_year_has_one_row_and_ends_as_the_oracle_says(seed: int) -> None:
    story = simulate(seed)
    ends = check(story)
    assert ends["ran"] > 100
    assert story.counts["kill"] > 10
