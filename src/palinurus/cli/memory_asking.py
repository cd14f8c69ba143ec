"""The ordinary way of a memory command: through the door of the home, to whoever holds it.

It is imported when it is needed: a question that can be answered by the quick way is not to wait for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from palinurus.cli.entrance import make_on_first_run, open_door
from palinurus.cli.shell import Shell
from palinurus.domain.errors import HolderLost
from palinurus.memory.answer import Answer
from palinurus.memory.asking import IndexMemory, SearchMemory
from palinurus.memory.report import OnProgress, SyncReport
from palinurus.operations.memory import Watched, index_memory, search_memory, watch_memory
from palinurus.wiring.door import Door


class Asking:
    """Asks one question after the other; the house stays warm in between."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def search(self, asked: SearchMemory) -> Answer:
        return await self._door.call(search_memory, asked)

    async def watch(self, agent: str) -> AsyncIterator[Watched]:
        async for item in self._door.follow(watch_memory, watch_memory.params(agent)):
            yield item


@asynccontextmanager
async def asking(shell: Shell) -> AsyncIterator[Asking]:
    make_on_first_run(shell)
    async with open_door(shell) as door:
        yield Asking(door)


async def search(shell: Shell, asked: SearchMemory) -> Answer:
    async with asking(shell) as desk:
        return await desk.search(asked)


async def index(shell: Shell, asked: IndexMemory, progress: OnProgress) -> SyncReport:
    """Raises HolderLost when the one who indexes goes away; what it had indexed stays."""
    make_on_first_run(shell)
    async with open_door(shell) as door:
        async for item in door.follow(index_memory, asked):
            if item.progress is not None:
                progress(item.progress)
            if item.report is not None:
                return item.report
    raise HolderLost("the process that indexed went away before it was done", hint="ask again; it goes on from there")
