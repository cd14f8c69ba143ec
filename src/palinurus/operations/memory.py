"""Memory from every surface: search it, read it, index it, show its state, watch it being indexed.

What the owner asks here is not narrowed by scope: that is for sessions, and their tools ask for themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct

from palinurus.domain.errors import ConfigError, NotFound
from palinurus.memory.answer import IndexExport, MemoryStatus, Progress, SearchAnswer, SyncReport, VectorSpace
from palinurus.memory.conversations import MANY, said_lines, session_of
from palinurus.memory.get import MAX_CHARACTERS, MAX_LINES, LineRange, MemoryText, get_lines
from palinurus.memory.question import IndexMemory, SearchMemory, question
from palinurus.operations.operation import Metavar, Private, operation
from palinurus.operations.progress import follow
from palinurus.operations.services import Services
from palinurus.operations.table import mcp_tool
from palinurus.sessions.transcript import decode_row

if TYPE_CHECKING:
    from palinurus.memory.backend import AgentMemory

MOST_REPORTS = 100  # that wait for whoever watches
MOST_LINES, MOST_CHARACTERS = 100_000, 2 * 1024 * 1024

OfAgent = Annotated[str, Metavar("ID"), "Whose memory. Default: the default agent's."]
Line = Annotated[int, Meta(ge=1, le=2**31)]
WhoseMemory = Annotated[str, "whose memory; the default agent's when left out"]  # as other agents are told


class IndexStep(Struct, frozen=True, omit_defaults=True):
    """How far it is, many times; at the end what was done."""

    progress: Progress | None = None
    report: SyncReport | None = None


class IndexChange(Struct, frozen=True, omit_defaults=True):
    report: SyncReport
    at: int  # milliseconds
    missed: int = 0  # reports before this one that nobody took in time


class SourceMessage(Struct, frozen=True, rename="camel"):
    """Where something was said. The session may have ended since."""

    session_key: str
    entry_id: str


def memory_of(services: Services, agent: str) -> AgentMemory:
    """Raises NotFound for an unknown agent, ConfigError when its memory is switched off."""
    memory = services.memory(agent.strip().lower() or services.agents.default)
    if not memory.settings.enabled:
        raise ConfigError("memory is switched off for this agent", hint="memory.search.enabled in the config")
    return memory


MEMORY_SEARCH = mcp_tool(
    "memory_search",
    "Search what an agent of this home has noted for its owner. Each result says where it stands; memory_get reads "
    "around it.",
    ("query", Annotated[str, Meta(min_length=1, max_length=4_000), "a question or words"]),
    ("agent", WhoseMemory, ""),
    ("max_results", Annotated[int, Meta(ge=1, le=50), "at most so many"], 10),
    ("min_score", Annotated[float, Meta(ge=0, le=1), "none below this score"], 0.0),
    private=True,
)


@operation("memory.search", scope="read", mcp=MEMORY_SEARCH)
async def search_memory(services: Services, asked: SearchMemory) -> SearchAnswer:
    """Search memory as the agent does, and show how up to date the index is."""
    memory = memory_of(services, asked.agent)
    return await memory.search(question(memory.settings, asked))


@operation("memory.status", scope="read")
async def show_memory_status(
    services: Services,
    agent: OfAgent = "",
    deep: Annotated[bool, "Read every file and compare it with the index."] = False,
) -> MemoryStatus:
    """Compare the index with the files on disk. Exit code 1 when they differ.

    Files are compared by size and time, or with --deep by content.

    Examples:
      pal memory status
      pal memory status --deep --json
    """
    memory = services.memory(agent.strip().lower() or services.agents.default)
    return await memory.status(deep=deep)


@operation("memory.spaces", scope="read")
async def list_spaces(services: Services, agent: OfAgent = "") -> tuple[VectorSpace, ...]:
    """List the vector spaces of the index: one per embedder, more than one only while the embedder changes.

    Examples:
      pal memory spaces
      pal memory spaces --agent work --json
    """
    return await services.memory(agent.strip().lower() or services.agents.default).builtin.spaces()


MEMORY_GET = mcp_tool(
    "memory_get",
    "Read lines of a memory file, by the path that memory_search tells.",
    ("path", Annotated[str, "as memory_search tells it"]),
    ("agent", WhoseMemory, ""),
    ("from_", Annotated[int, Meta(ge=0, le=2**31), "the first line"], 0),
    ("lines", Annotated[int, Meta(ge=0, le=MAX_LINES), "how many lines; 0: as many as fit"], 0),
    private=True,
)


@operation("memory.get", scope="read", mcp=MEMORY_GET)
async def get_memory(
    services: Services,
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
    whose = services.agents.get(agent.strip().lower() or services.agents.default)
    memory = services.memory(whose.id)
    most, room = (MAX_LINES, MAX_CHARACTERS) if brief else (MOST_LINES, MOST_CHARACTERS)
    asked = LineRange(path, from_, lines)
    return await get_lines(memory, whose.files.boundary, asked, max_lines=most, max_characters=room)


@operation("memory.said", scope="read")
async def find_said(services: Services, path: str, line: Line = 1, agent: OfAgent = "") -> SourceMessage:
    """A line of a past conversation, as a search cites it: `sessions/<id>.md`."""
    whose = agent.strip().lower() or services.agents.default
    wanted = session_of(services.memory(whose).own_path(path))
    known = await services.sessions.recent(agent=whose, limit=MANY, archived=True)
    session = next((each for each in known if each.id == wanted), None)
    if session is None:
        raise NotFound(f"there is no session {path[:200]!r}", hint="use a path as memory.search shows it")
    entries = map(decode_row, await services.sessions.rows(session.id))
    told = next(islice(said_lines(entries, services.clock.zone), line - 1, None), None)
    if told is None:
        raise NotFound(f"{path[:200]!r} has no line {line}", hint="search again: it has changed since")
    return SourceMessage(session.key, told[1])


@operation("memory.index", scope="write")
async def index_memory(services: Services, asked: IndexMemory) -> AsyncIterator[IndexStep]:
    """Bring the index up to date. Whoever stops listening stops the work; what was indexed stays."""
    latest: list[Progress] = []

    def tell(progress: Progress) -> None:
        latest[:] = [progress]

    began = time.perf_counter()
    work = memory_of(services, asked.agent).sync(force=asked.force, progress=tell)
    steps = follow(work, latest)
    async with aclosing(steps):
        async for progress, report in steps:
            took = round((time.perf_counter() - began) * 1000, 1)  # vectors included
            yield IndexStep(progress, msgspec.structs.replace(report, took_ms=took) if report else None)


@operation("memory.export", scope="read", local=True)
async def export_memory(
    services: Services,
    to: Annotated[str, "A new file, as an absolute path."],
    agent: OfAgent = "",
) -> IndexExport:
    """Write the index as an SQLite database of the form that OpenClaw's documents describe."""
    return await memory_of(services, agent).builtin.export(Path(to))


@operation("memory.watch", scope="read", local=True)
async def watch_memory(services: Services, agent: OfAgent = "") -> AsyncIterator[IndexChange]:
    """Each change as it is indexed, without end. Files are watched from now on, if they were not before."""
    memory = memory_of(services, agent)
    waiting = asyncio.Queue[SyncReport](MOST_REPORTS)
    missed = 0

    def told(report: SyncReport) -> None:
        nonlocal missed
        if waiting.full():
            missed += 1
        else:
            waiting.put_nowait(report)

    stop = memory.listen(told)
    try:
        memory.start()
        while True:
            report = await waiting.get()
            lost, missed = missed, 0
            yield IndexChange(report, services.clock.now_ms(), lost)
    finally:
        stop()
