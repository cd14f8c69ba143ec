"""A megabyte from a sender, through the front door: it is heard, stored and answered in the time it needs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from palinurus.dispatch.dispatcher import MAX_TEXT
from palinurus.testing.harness import Harness


@pytest.mark.parametrize("unit", ["a", " x", "/t ", "/queue ", "/model ", "yesterday ", "sk-", "`", "漢", "Mr. "])
async def test_a_message_of_a_megabyte_is_answered_without_holding_the_program(
    unit: str, pal: Harness, cpu_limit: Callable[[float], AbstractContextManager[None]]
) -> None:
    pal.model.window = 4 * MAX_TEXT  # nothing needs to be summed up
    pal.model.says("Heard.")
    text = "Look: " + unit * ((MAX_TEXT - 20) // len(unit)) + " end"
    with cpu_limit(20):
        assert (await pal.hears(text)).text == "Heard."
    assert len(pal.model.requests) == 1
