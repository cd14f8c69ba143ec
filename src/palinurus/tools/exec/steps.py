"""Answers a command line that runs because of grants: may its next step start?

The steps before it may have changed what it means: `git add sub` can make `git status` run what `sub` names. So each
step is judged just before it starts, and not all of them before the first. running.py asks, over a pair of sockets that
the programs do not inherit.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from palinurus.domain.errors import PalinurusError, SandboxError

LONGEST_ANSWER = 2_000  # characters
PATIENCE_SECONDS = 20.0

Judge = Callable[[int], Awaitable[str]]
"""Says why the step in this place may not start; empty when it may."""


class Queue:
    """Commands that were granted and use a repository run one after the other: as with steps, one of them may change
    what the next one means, so that one is judged when this one has ended."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def enter(self) -> Callable[[], None]:
        """Wait for the others. What comes back is to be called when it has ended; once more does no harm. Raises
        SandboxError when the others take too long."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._lock.acquire()
        except TimeoutError:
            hint = "wait until it has ended, or end it with process"
            raise SandboxError("another granted command is still at work on a repository", hint=hint) from None
        return partial(_release, [self._lock])


class StepChecks:
    """Those of the commands that run. Each ends with its command."""

    def __init__(self) -> None:
        self._going: set[asyncio.Task[None]] = set()

    @contextmanager
    def opened(self, judge: Judge) -> Iterator[int]:
        """A descriptor to be given to running.py inside the block."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        task = asyncio.create_task(_answer(ours, judge))
        self._going.add(task)
        task.add_done_callback(self._going.discard)
        with theirs:
            yield theirs.fileno()


def _release(held: list[asyncio.Lock]) -> None:
    if held:
        held.pop().release()


async def _answer(ours: socket.socket, judge: Judge) -> None:
    loop = asyncio.get_running_loop()
    with ours, suppress(ConnectionError):  # the command was ended while we thought about it
        while asked := await loop.sock_recv(ours, 64):
            why = await _judged(judge, int(asked))
            await loop.sock_sendall(ours, f"{' '.join(why.split())[:LONGEST_ANSWER]}\n".encode(errors="replace"))


async def _judged(judge: Judge, place: int) -> str:
    try:
        return await judge(place)
    except (PalinurusError, OSError, ValueError) as error:
        return f"it could not be judged: {error}"
