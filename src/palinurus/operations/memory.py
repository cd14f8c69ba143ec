"""Memory from any door: search it, read it, index it, see how it stands, watch it being indexed.

What the owner asks here is not narrowed by scope: that is for sessions, and their tools ask for themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import islice
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from palinurus.domain.errors import ConfigError, NotFound
from palinurus.memory.answer import Answer
from palinurus.memory.asking import IndexMemory, SearchMemory, question
from palinurus.memory.conversations import MANY, said_lines, session_of
from palinurus.memory.getting import MAX_CHARACTERS, MAX_LINES, Asked, MemoryText, get_lines
from palinurus.memory.memory import Memory
from palinurus.memory.report import MemoryStatus, Progress, SyncReport
from palinurus.operations.following import follow
from palinurus.operations.house import House
from palinurus.operations.operation import Metavar, Private, operation
from palinurus.sessions.transcript import decode_row

MOST_REPORTS = 100  # that wait for whoever watches
MOST_LINES, MOST_CHARACTERS = 100_000, 2 * 1024 * 1024

OfAgent = Annotated[str, Metavar("ID"), "Whose memory. Default: the default agent's."]
Line = Annotated[int, Meta(ge=1, le=2**31)]


class Indexing(Struct, frozen=True, omit_defaults=True):
    """How far it is, many times; at the end what was done."""

    progress: Progress | None = None
    report: SyncReport | None = None


class Watched(Struct, frozen=True, omit_defaults=True):
    report: SyncReport
    at: int  # milliseconds
    missed: int = 0  # reports before this one that nobody took in time


class Said(Struct, frozen=True, rename="camel"):
    """Where something was said. The session may have ended since."""

    session_key: str
    entry_id: str


def memory_of(house: House, agent: str) -> Memory:
    """Raises NotFound for an unknown agent, ConfigError when its memory is switched off."""
    memory = house.memory(agent.strip().lower() or house.agents.default)
    if not memory.settings.enabled:
        raise ConfigError("memory is switched off for this agent", hint="memory.search.enabled in the config")
    return memory


@operation("memory.search", scope="read")
async def search_memory(house: House, asked: SearchMemory) -> Answer:
    """Search memory as the agent does, and say how fresh the answer is."""
    memory = memory_of(house, asked.agent)
    return await memory.search(question(memory.settings, asked))


@operation("memory.status", scope="read")
async def show_memory_status(
    house: House, agent: OfAgent = "", deep: Annotated[bool, "Read every file and compare it with the index."] = False
) -> MemoryStatus:
    """Show how the index stands beside the disk. Exit code 1 when they differ.

    They are compared each time: by size and time of each file, or with --deep by what it says.

    Examples:
      pal memory status
      pal memory status --deep --json
    """
    memory = house.memory(agent.strip().lower() or house.agents.default)
    return await memory.status(deep=deep)


@operation("memory.get", scope="read")
async def get_memory(
    house: House,
    path: str,
    agent: OfAgent = "",
    from_: Annotated[Line | None, "The first line."] = None,
    lines: Annotated[Line | None, "How many lines."] = None,
    brief: Annotated[bool, Private, "No more than a session's tool would read."] = False,
) -> MemoryText:
    """Print lines of a memory file, named as search names it. Exit code 1 when there is no such file.

    Examples:
      pal memory get MEMORY.md
      pal memory get memory/2026-11-15.md#L3-L9
      pal memory get handbook/boats.md --from 10 --lines 5
    """
    whose = house.agents.get(agent.strip().lower() or house.agents.default)
    memory = house.memory(whose.id)
    most, room = (MAX_LINES, MAX_CHARACTERS) if brief else (MOST_LINES, MOST_CHARACTERS)
    asked = Asked(path, from_, lines)
    return await get_lines(memory, whose.files.boundary, asked, max_lines=most, max_characters=room)


@operation("memory.said", scope="read")
async def find_said(house: House, path: str, line: Line = 1, agent: OfAgent = "") -> Said:
    """A line of a past conversation, as a search cites it: `sessions/<id>.md`."""
    wanted = session_of(path)
    whose = agent.strip().lower() or house.agents.default
    known = await house.sessions.recent(agent=whose, limit=MANY, archived=True)
    session = next((each for each in known if each.id == wanted), None)
    if session is None:
        raise NotFound(f"there is no conversation {path[:200]!r}", hint="take it as memory.search tells it")
    entries = map(decode_row, await house.sessions.rows(session.id))
    told = next(islice(said_lines(entries, house.clock.zone), line - 1, None), None)
    if told is None:
        raise NotFound(f"{path[:200]!r} has no line {line}", hint="search again: it has changed since")
    return Said(session.key, told[1])


@operation("memory.index", scope="write")
async def index_memory(house: House, asked: IndexMemory) -> AsyncIterator[Indexing]:
    """Bring the index up to date. Whoever stops listening stops the work; what was indexed stays."""
    latest: list[Progress] = []

    def tell(progress: Progress) -> None:
        latest[:] = [progress]

    began = time.perf_counter()
    work = memory_of(house, asked.agent).sync(force=asked.force, progress=tell)
    steps = follow(work, latest)
    async with aclosing(steps):
        async for progress, report in steps:
            took = round((time.perf_counter() - began) * 1000, 1)  # vectors included
            yield Indexing(progress, msgspec.structs.replace(report, took_ms=took) if report else None)


@operation("memory.watch", scope="read", local=True)
async def watch_memory(house: House, agent: OfAgent = "") -> AsyncIterator[Watched]:
    """Each change as it is indexed, without end. Files are watched from now on, if they were not before."""
    memory = memory_of(house, agent)
    waiting: deque[SyncReport] = deque()
    came, missed = asyncio.Event(), 0

    def told(report: SyncReport) -> None:
        nonlocal missed
        if len(waiting) >= MOST_REPORTS:
            missed += 1
        else:
            waiting.append(report)
        came.set()

    stop = memory.listen(told)
    try:
        memory.start()
        while True:
            await came.wait()
            came.clear()
            while waiting:
                lost, missed = missed, 0
                yield Watched(waiting.popleft(), house.clock.now_ms(), lost)
    finally:
        stop()


OPERATIONS = (search_memory, show_memory_status, get_memory, find_said, index_memory, watch_memory)
