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

import msgspec
from msgspec import Struct

from palinurus.domain.errors import ConfigError, NotFound
from palinurus.memory.answer import Answer
from palinurus.memory.asking import AskMemory, FindSaid, GetMemory, IndexMemory, SearchMemory, question
from palinurus.memory.conversations import MANY, said_lines, session_of
from palinurus.memory.getting import MAX_CHARACTERS, MAX_LINES, Asked, MemoryText, get_lines
from palinurus.memory.memory import Memory
from palinurus.memory.report import MemoryStatus, Progress, SyncReport
from palinurus.operations.following import follow
from palinurus.operations.house import House
from palinurus.operations.table import Feed, Operation
from palinurus.sessions.transcript import decode_row

MOST_REPORTS = 100  # that wait for whoever watches
MOST_LINES, MOST_CHARACTERS = 100_000, 2 * 1024 * 1024


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


async def _search(house: House, params: SearchMemory) -> Answer:
    memory = memory_of(house, params.agent)
    return await memory.search(question(memory.settings, params))


async def _status(house: House, params: AskMemory) -> MemoryStatus:
    memory = house.memory(params.agent.strip().lower() or house.agents.default)
    return await memory.status(deep=params.deep)


async def _get(house: House, params: GetMemory) -> MemoryText:
    agent = house.agents.get(params.agent.strip().lower() or house.agents.default)
    memory = house.memory(agent.id)
    asked = Asked(params.path, params.from_, params.lines)
    lines, room = (MAX_LINES, MAX_CHARACTERS) if params.brief else (MOST_LINES, MOST_CHARACTERS)
    return await get_lines(memory, agent.files.boundary, asked, max_lines=lines, max_characters=room)


async def _said(house: House, params: FindSaid) -> Said:
    agent = params.agent.strip().lower() or house.agents.default
    wanted = session_of(params.path)
    known = await house.sessions.recent(agent=agent, limit=MANY, archived=True)
    session = next((each for each in known if each.id == wanted), None)
    if session is None:
        raise NotFound(f"there is no conversation {params.path[:200]!r}", hint="take it as memory.search tells it")
    entries = map(decode_row, await house.sessions.rows(session.id))
    told = next(islice(said_lines(entries, house.clock.zone), params.line - 1, None), None)
    if told is None:
        raise NotFound(f"{params.path[:200]!r} has no line {params.line}", hint="search again: it has changed since")
    return Said(session.key, told[1])


async def _index(house: House, params: IndexMemory) -> AsyncIterator[Indexing]:
    """Whoever stops listening stops the work; what was indexed stays."""
    latest: list[Progress] = []

    def tell(progress: Progress) -> None:
        latest[:] = [progress]

    began = time.perf_counter()
    work = memory_of(house, params.agent).sync(force=params.force, progress=tell)
    steps = follow(work, latest)
    async with aclosing(steps):
        async for progress, report in steps:
            took = round((time.perf_counter() - began) * 1000, 1)  # vectors included
            yield Indexing(progress, msgspec.structs.replace(report, took_ms=took) if report else None)


async def _watch(house: House, params: AskMemory) -> AsyncIterator[Watched]:
    """Each change as it is indexed, without end. Files are watched from now on, if they were not before."""
    memory = memory_of(house, params.agent)
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


SEARCH = Operation("memory.search", SearchMemory, Answer, "read", _search)
STATUS = Operation("memory.status", AskMemory, MemoryStatus, "read", _status)
GET = Operation("memory.get", GetMemory, MemoryText, "read", _get)
SAID = Operation("memory.said", FindSaid, Said, "read", _said)
INDEX = Feed("memory.index", IndexMemory, Indexing, "write", _index)
WATCH = Feed("memory.watch", AskMemory, Watched, "read", _watch, local=True)
OPERATIONS = (SEARCH, STATUS, GET, SAID, INDEX, WATCH)
