"""Work on what was said, which may be megabytes: beside the event loop when it is much (promise 10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from palinurus.context.view import Line

MUCH = 20_000  # characters; reading them takes some ten milliseconds
MANY = 2_000  # lines; a look at each takes some milliseconds

T = TypeVar("T")


async def beside(lines: Sequence[Line], work: Callable[[], T]) -> T:
    left = MUCH
    for line in lines:
        left -= len(line.message.text)
        if left <= 0:
            return await asyncio.to_thread(work)
    return work()


async def beside_many(lines: Sequence[object], work: Callable[[], T]) -> T:
    """The same for work that looks at each line and hardly at its words, or knows most of them from before."""
    return await asyncio.to_thread(work) if len(lines) > MANY else work()
