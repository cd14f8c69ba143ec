"""The side door: an agent's memory for one quick command, while nobody holds the home.

A search takes milliseconds, and waking the whole house for it would take most of a second: reading the config,
gathering tools, models and sessions. Here only the memory is opened, by the note that the last one who read the config
left (config/shortcut.py), and under the same lock as ever: one process writes. Whatever is not quick or not simple
goes by the ordinary door: no note, somebody who holds the home, a question by meaning, conversations as a source,
notes that are in no file yet, vectors that are missing, or more changes than a moment allows for.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import tzinfo
from pathlib import Path

from msgspec import Struct

from palinurus.config.home import Home
from palinurus.config.shortcut import KnownMemory, read_shortcut
from palinurus.domain.clock import SystemClock
from palinurus.domain.errors import StorageError
from palinurus.memory.answer import Answer
from palinurus.memory.asking import IndexMemory, SearchMemory, question
from palinurus.memory.document import MEMORY
from palinurus.memory.embedders.parts import SPACE
from palinurus.memory.index import MemoryIndex
from palinurus.memory.report import SyncReport
from palinurus.memory.scan import Scanner
from palinurus.memory.search import MemorySearch
from palinurus.storage.memory import SqliteMemory
from palinurus.storage.unplaced import notes_wait
from palinurus.wiring.lock import HomeLock

NOBODY = "none"
MOMENT = 2.0  # seconds that the home may be held by one who answers nobody else


class _Parts(Struct, frozen=True):
    store: SqliteMemory
    index: MemoryIndex
    search: MemorySearch


async def quick_search(home: Home, asked: SearchMemory, command: str) -> Answer | None:
    """The answer, or None: ask at the ordinary door."""
    agent, known = _known(home, asked.agent)
    if known is None or not (asked.keyword or known.settings.embedder == NOBODY):
        return None
    with suppress(StorageError):  # the ordinary door mends it, or says what is wrong
        async with _opened(home, agent, known, command) as parts:
            return None if parts is None else await parts.search.ask(question(known.settings, asked))
    return None


async def quick_index(home: Home, asked: IndexMemory, command: str) -> SyncReport | None:
    """What was done, or None: there is more to do than this door is for. What it has done by then stays."""
    agent, known = _known(home, asked.agent)
    if known is None or asked.force:
        return None
    with suppress(StorageError):
        async with _opened(home, agent, known, command) as parts:
            if parts is not None:
                report = await parts.index.sync(seconds=MOMENT)
                complete = known.settings.embedder == NOBODY or await _has_all_vectors(parts.store)
                return report if complete and not report.behind else None
    return None


async def _has_all_vectors(store: SqliteMemory) -> bool:
    totals = await store.totals()
    return await store.space_in_use() == SPACE.id and totals.embedded.get(SPACE.id, 0) >= totals.pieces


def _known(home: Home, agent: str) -> tuple[str, KnownMemory | None]:
    note = read_shortcut(home)
    if note is None:
        return agent, None
    agent_id = agent.strip().lower() or note.default_agent
    known = note.agents.get(agent_id)
    simple = known is not None and known.settings.enabled and set(known.settings.sources) <= {MEMORY}
    # Where no file can be written, notes wait in the database, which is not opened here.
    simple = simple and known is not None and os.access(known.workspace, os.W_OK)
    return agent_id, known if simple else None


@asynccontextmanager
async def _opened(home: Home, agent_id: str, known: KnownMemory, command: str) -> AsyncIterator[_Parts | None]:
    """None when there is no index yet, somebody else holds the home, or what is searched is not in files alone."""
    path = home.root / "derived" / "memory" / f"{agent_id}.sqlite"
    lock = HomeLock(home.root / "lock")
    if not path.exists() or not lock.acquire(command):
        yield None
        return
    try:
        if notes_wait(home.root / "home.sqlite"):
            yield None
            return
        parts = _parts(path, known)
        try:
            yield parts
        finally:
            await parts.index.close()
            await parts.store.close()
    finally:
        lock.release()


def _parts(path: Path, known: KnownMemory) -> _Parts:
    settings = known.settings
    clock = SystemClock(_zone(known.zone))
    store = SqliteMemory(path)
    scanner = Scanner(known.workspace, settings.collections, sources=settings.sources)
    index = MemoryIndex(store, scanner, clock, settings)
    return _Parts(store, index, MemorySearch(index, store, None, settings, clock))


def _zone(name: str) -> tzinfo | None:
    if not name:
        return None
    from zoneinfo import ZoneInfo  # three milliseconds that most need not pay

    return ZoneInfo(name)
