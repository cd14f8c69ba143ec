"""Errands: short work on a session that is no turn, done in its lane between two of them.

A reset, words put into a transcript, the end of a conversation: none of it may come between a call and its result. Who
asks waits a bounded time. An errand whose asker has gone is done all the same: it was asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from palinurus.dispatch.lanes import Lanes
from palinurus.domain.errors import PalinurusError, WaitTimeout

PATIENCE_SECONDS = 60.0

T = TypeVar("T")


async def run_errand(
    lanes: Lanes, key: str, work: Callable[[], Awaitable[T]], *, patience: float = PATIENCE_SECONDS
) -> T:
    """What the work gives, when its turn in the lane has come. Raises what it raises, QueueFull or WaitTimeout."""
    outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    outcome.add_done_callback(_looked_at)

    async def job() -> None:
        try:
            outcome.set_result(await work())
        except PalinurusError as error:  # an answer, and nothing that the lane has to log
            outcome.set_exception(error)

    def broke(error: BaseException) -> None:
        outcome.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    with lanes.place(key):
        lanes.start(key, job, broke, counted=False)
    try:
        async with asyncio.timeout(patience):
            return await asyncio.shield(outcome)
    except TimeoutError:
        raise WaitTimeout(f"{key} is still busy", hint="it is done when what runs there has ended, or /stop") from None


def _looked_at(outcome: asyncio.Future[T]) -> None:
    """Nobody may be waiting any more: then a failure is nobody's."""
    if not outcome.cancelled():
        outcome.exception()
