"""Nothing that was said is lost, whatever the model and the machine do: a sample of `make soak`."""

from __future__ import annotations

import pytest
from losing import converse

from support import SOAK


def test_nothing_that_was_said_is_ever_lost() -> None:
    converse(examples=5, steps=30, derandomize=True)


@pytest.mark.slow
def test_nothing_that_was_said_is_ever_lost_in_hundreds_of_steps() -> None:
    converse(examples=8 if SOAK else 3, steps=50, derandomize=not SOAK)
