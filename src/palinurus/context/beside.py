"""Work on what was said, which may be megabytes: beside the event loop when it is much (promise 10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from palinurus.context.view import Line

MUCH = 20_000  # characters; reading them takes some ten milliseconds

T = TypeVar("T")


async def beside(lines: Sequence[Line], work: Callable[[], T]) -> T:
    if sum(len(line.message.text) for line in lines) < MUCH:
        return work()
    return await asyncio.to_thread(work)
