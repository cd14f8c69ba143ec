"""Memory's operations over a real index: in this process, and through the socket of the one who holds the home."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest

from palinurus.config.home import Home
from palinurus.domain.errors import ConfigError, NotFound, OutsideWorkspace
from palinurus.memory.answer import SyncReport
from palinurus.memory.question import IndexMemory, SearchMemory
from palinurus.memory.settings import MemorySettings, Sync
from palinurus.operations.memory import (
    IndexChange,
    find_said,
    get_memory,
    index_memory,
    search_memory,
    show_memory_status,
    watch_memory,
)
from palinurus.operations.remote import Hello, HomeIdentity, RemoteCaller, Server
from palinurus.operations.table import LocalCaller, OperationClient, Table, operations_in
from palinurus.runtime.memory import AgentMemories, Memories
from palinurus.testing.harness import Harness

HELLO = Hello(HomeIdentity("/home/palinurus.json", ""), 1, "pal")
SETTINGS = MemorySettings(embedder="none", sync=Sync(debounce_seconds=0.05, settle_seconds=0.2, sweep_minutes=0.005))

Opens = Callable[[MemorySettings], Awaitable[OperationClient]]


@pytest.fixture(params=["here", "by the socket"])
async def opens(
    request: pytest.FixtureRequest, pal: Harness, home: Home, workspace: Path, tmp_path: Path
) -> AsyncIterator[Opens]:
    """Opens a house whose memory has these settings, and gives a caller into it."""
    made: list[Memories] = []
    servers: list[Server] = []
    callers: list[RemoteCaller] = []

    async def make(settings: MemorySettings) -> OperationClient:
        def current(agent_id: str) -> AgentMemories:
            if agent_id != "main":
                raise NotFound(f"there is no agent {agent_id!r}")
            return AgentMemories(workspace, settings)

        memories = Memories(tmp_path / "derived", current, pal.sessions, pal.clock)
        made.append(memories)
        services = pal.services(home).replace(memory=memories.of)
        if request.param == "here":
            return LocalCaller(services)
        servers.append(Server(services, Table(operations_in("palinurus.operations.memory")), HELLO))
        await servers[-1].start(tmp_path / "pal.sock")
        callers.append(await RemoteCaller.connect(tmp_path / "pal.sock", HELLO))
        return callers[-1]

    yield make
    closing = [*(each.close for each in callers), *(each.close for each in servers), *(each.close for each in made)]
    for close in closing:
        await asyncio.wait_for(close(), 60)


@pytest.fixture
async def caller(opens: Opens, workspace: Path) -> OperationClient:
    (workspace / "memory").mkdir()
    (workspace / "memory" / "2026-11-15.md").write_text("# 2026-11-15\n\n- The rudder is green.\n- Ann has the sail.\n")
    return await opens(SETTINGS)


async def test_a_search_finds_cites_and_tells_how_fresh_it_is(caller: OperationClient) -> None:
    answer = await caller.call(search_memory, SearchMemory("which colour has the rudder?", max_results=1, explain=True))
    (best,) = answer.results
    assert (best.path, best.start_line, best.citation) == ("memory/2026-11-15.md", 3, "memory/2026-11-15.md#L3")
    assert best.factors
    assert (answer.freshness.state, answer.freshness.vectors) == ("fresh", "off")


@pytest.mark.parametrize(
    "query", ["", " ", '"', "AND OR NOT NEAR(", "*", "a\0b", "🛶", "x " * 50_000, "\ud800", "path:rudder", "rudder^2"]
)
async def test_any_text_is_a_question(caller: OperationClient, query: str) -> None:
    if "\ud800" in query and isinstance(caller, RemoteCaller):
        pytest.skip("half a character cannot be sent")
    answer = await caller.call(search_memory, SearchMemory(query))
    assert answer.freshness.state == "fresh"


async def test_a_budget_of_tokens_takes_the_place_of_the_characters(caller: OperationClient, workspace: Path) -> None:
    (workspace / "memory" / "many.md").write_text("".join(f"- the anchor number {n} is heavy\n" for n in range(400)))
    small = await caller.call(search_memory, SearchMemory("anchor", budget_tokens=50))
    large = await caller.call(search_memory, SearchMemory("anchor", budget_tokens=2_000))
    assert 0 < sum(len(each.snippet) for each in small.results) <= 200
    assert 4_000 < sum(len(each.snippet) for each in large.results) <= 8_000


async def test_indexing_tells_how_far_it_is_and_ends_with_a_report(caller: OperationClient, workspace: Path) -> None:
    items = [item async for item in caller.follow(index_memory, IndexMemory())]
    report = items[-1].report
    assert report is not None
    assert report.added == 3
    assert all(item.progress is not None for item in items[:-1])
    (workspace / "memory" / "2026-11-15.md").write_text("- all new\n")
    (*_, last) = [item async for item in caller.follow(index_memory, IndexMemory())]
    assert last.report is not None
    assert (last.report.changed, last.report.added) == (1, 0)


async def test_the_state_is_what_the_disk_says(caller: OperationClient, workspace: Path) -> None:
    await caller.call(search_memory, SearchMemory("x"))
    assert (await caller.call(show_memory_status, show_memory_status.params(deep=True))).difference_count == 0
    (workspace / "USER.md").unlink()
    status = await caller.call(show_memory_status, show_memory_status.params())
    assert [each.path for each in status.differences] == ["USER.md"]


async def test_lines_are_read_and_nothing_else(caller: OperationClient) -> None:
    found = await caller.call(get_memory, get_memory.params("memory/2026-11-15.md#L4"))
    assert (found.text, found.from_) == ("- Ann has the sail.", 4)
    with pytest.raises(OutsideWorkspace):
        await caller.call(get_memory, get_memory.params("../secret.md"))


async def test_whoever_watches_hears_of_every_change(caller: OperationClient, workspace: Path) -> None:
    feed = cast("AsyncGenerator[IndexChange]", caller.follow(watch_memory, watch_memory.params()))
    async with asyncio.timeout(60):
        first = await anext(feed)
        assert first.report.added == 3
        (workspace / "memory" / "new.md").write_text("- news\n")
        second = await anext(feed)
        assert second.report.added == 1
    await feed.aclose()


async def test_an_unknown_agent_and_a_memory_that_is_switched_off_are_said(opens: Opens) -> None:
    off = await opens(MemorySettings(enabled=False, embedder="none"))
    with pytest.raises(ConfigError, match="switched off"):
        await off.call(search_memory, SearchMemory("x"))
    with pytest.raises(NotFound):
        await off.call(show_memory_status, show_memory_status.params("nobody"))
    assert not (await off.call(show_memory_status, show_memory_status.params())).enabled


async def test_what_a_question_took_up_by_itself_is_told_to_those_who_watch(opens: Opens, workspace: Path) -> None:
    caller = await opens(MemorySettings(embedder="none", sync=Sync(watch=False, sweep_minutes=60)))
    feed = cast("AsyncGenerator[IndexChange]", caller.follow(watch_memory, watch_memory.params()))
    async with asyncio.timeout(60):
        assert (await anext(feed)).report.added == 2
        (workspace / "memory.md").write_text("- news\n")
        await caller.call(search_memory, SearchMemory("news"))
        assert (await anext(feed)).report == SyncReport(3, changed=1)
    await feed.aclose()


async def test_a_cited_line_of_a_conversation_is_found_where_it_was_said(opens: Opens, pal: Harness) -> None:
    door = await opens(msgspec.structs.replace(SETTINGS, sources=("memory", "sessions")))
    for words in ("good morning", "the heron stood in the reeds", "and then it flew"):
        await pal.hears(words)
    found = (await door.call(search_memory, SearchMemory("heron reeds", sources=("sessions",)))).results[0]
    lines = (await door.call(get_memory, get_memory.params(found.path))).text.split("\n")
    at = next(number for number, line in enumerate(lines, 1) if "heron" in line and line.startswith("User"))
    said = await door.call(find_said, find_said.params(found.path, at))
    (entry,) = [each for each in await pal.transcript() if each.id == said.entry_id]
    assert (said.session_key, entry.message.text) == ("agent:main:main", "the heron stood in the reeds")
    with pytest.raises(NotFound, match="no line"):
        await door.call(find_said, find_said.params(found.path, 1_000))
    with pytest.raises(NotFound, match="no session"):
        await door.call(find_said, find_said.params("sessions/nobody.md", 1))
