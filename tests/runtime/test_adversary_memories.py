"""A config that changes while files are being indexed, and one that wants no sweeps."""

from __future__ import annotations

import asyncio
from pathlib import Path

from palinurus.memory.memory import Memory
from palinurus.memory.question import Question
from palinurus.memory.settings import Collection, MemorySettings, Sync
from palinurus.memory.store import MemoryStore
from palinurus.runtime.memory import AgentMemories, Memories
from palinurus.sessions.store import SessionStore
from palinurus.storage.database import MemoryDatabase
from palinurus.testing.fakes import FakeClock, SeededIds

QUIET = Sync(watch=False, sweep_minutes=0)


async def test_what_an_old_config_indexed_last_is_not_left_behind_by_the_new_one(
    tmp_path: Path, clock: FakeClock, new_id: SeededIds
) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "col").mkdir()
    for number in range(300):
        (tmp_path / "col" / f"{number}.md").write_text(f"the anchor number {number}\n" * 20)
    with_it = MemorySettings(embedder="none", sync=QUIET, collections=(Collection("col", tmp_path / "col"),))
    without = MemorySettings(embedder="none", sync=QUIET)
    now = [with_it]
    memories = Memories(
        tmp_path / "d",
        lambda _: AgentMemories(tmp_path / "ws", now[0]),
        SessionStore(MemoryDatabase(), clock, new_id),
        clock,
    )
    async with asyncio.timeout(60):
        old = memories.of("main")
        writing, store = asyncio.Event(), old._store
        assert isinstance(store, MemoryStore)
        really = store.put

        async def put(documents):  # type: ignore[no-untyped-def]
            writing.set()
            await really(documents)

        store.put = put  # type: ignore[method-assign]
        asked = asyncio.create_task(old.search(Question("anchor")))
        await writing.wait()
        now[0] = without
        new = memories.of("main")
        await new.search(Question("anchor"))
        await asked
        await new.sync()
        status = await new.status()
        assert (status.files, status.difference_count) == (0, 0)
        await memories.close()


async def test_no_minutes_between_sweeps_means_that_there_are_none(
    tmp_path: Path, clock: FakeClock, new_id: SeededIds
) -> None:
    (tmp_path / "ws").mkdir()
    settings = MemorySettings(embedder="none", sync=QUIET)
    memories = Memories(
        tmp_path / "d",
        lambda _: AgentMemories(tmp_path / "ws", settings),
        SessionStore(MemoryDatabase(), clock, new_id),
        clock,
    )
    memory = memories.of("main")
    times = 0
    really = memory._index.sync

    async def counted(**more):  # type: ignore[no-untyped-def]
        nonlocal times
        times += 1
        return await really(**more)

    memory._index.sync = counted  # type: ignore[method-assign]
    memories.keep_up(["main"])
    assert isinstance(memory, Memory)
    assert memory._keeping_up is not None
    async with asyncio.timeout(60):
        await memory._keeping_up
    assert times == 1
    await memories.close()
