"""Long work that reports how far it is: the newest progress now and then, the result at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

P = TypeVar("P")
R = TypeVar("R")

TELL_SECONDS = 0.1


async def follow(
    work: Coroutine[Any, Any, R], latest: list[P], *, to_its_end: bool = False
) -> AsyncGenerator[tuple[P | None, R | None], None]:
    """(progress, nothing) many times, then (nothing, the result). Raises what the work raises.

    The work puts its newest word into `latest` in place of the one before. Whoever closes this stops the work, unless
    it has to go `to_its_end`; either way it has ended then. Close it yourself (`contextlib.aclosing`).
    """
    task = asyncio.create_task(work)
    try:
        while not task.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(TELL_SECONDS):
                    await asyncio.shield(task)
            if latest and not task.done():
                yield latest.pop(), None
        yield None, await task
    finally:
        if not to_its_end:
            task.cancel()
        await asyncio.wait([task])
