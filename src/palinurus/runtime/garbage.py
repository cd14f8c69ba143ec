"""Garbage collection in small, frequent steps.

When Python collects its oldest generation it looks at everything that lives: with a thousand clients that holds the
event loop for a tenth of a second and more. Here what has lived through a sweep is put aside, and the next sweep looks
only at what came since. Things that are put aside still go with their last reference, which is how almost everything
goes here; for circles among them everything is looked at again now and then, when nothing runs.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

LOOK_SECONDS = 0.25
YOUNG = 4  # collections of the youngest generation that make one of the middle due: three thousand things are new
ROUNDS = 1  # collections of the middle generation that make a sweep due
WHOLE_SECONDS = 6 * 3600.0  # from one look at everything to the next
NEVER = 1_000_000_000


@asynccontextmanager
async def collecting_garbage(idle: Callable[[], bool], *, whole_seconds: float = WHOLE_SECONDS) -> AsyncIterator[None]:
    """Sweep for as long as this lasts. `idle` tells whether a pause would be noticed by nobody.

    The collector belongs to the whole process: this is for the one who owns it, once it has started.
    """
    before = gc.get_threshold()
    gc.freeze()  # all that the start has loaded stays anyway
    gc.set_threshold(before[0], YOUNG, NEVER)
    task = asyncio.create_task(_sweep(idle, whole_seconds))
    try:
        yield
    finally:
        task.cancel()
        gc.set_threshold(*before)
        gc.unfreeze()


async def _sweep(idle: Callable[[], bool], whole_seconds: float) -> None:
    whole_at = time.monotonic() + whole_seconds
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if time.monotonic() >= whole_at and idle():
            whole_at = time.monotonic() + whole_seconds
            gc.unfreeze()
        elif gc.get_count()[2] < ROUNDS:
            continue
        gc.collect()
        gc.freeze()
