"""One suite for every keeper of traces."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from palinurus.domain.messages import Usage
from palinurus.ledger.trace import ModelStep, RunTrace, Status, ToolStep, TraceStore
from palinurus.storage.database import Database

KEPT = 5


@pytest.fixture
def store(database: Database) -> TraceStore:
    return TraceStore(database, kept=KEPT)


def trace(run_id: str, status: Status = "ok", *, session: str = "agent:main:main", ms: int = 7) -> RunTrace:
    steps = (
        ModelStep(1, "openai", "m", 5, 2, Usage(10, 3, 1), "toolUse", notices=("tried again",)),
        ToolStep(6, "exec", 1, "sandbox", is_error=True, approval="denied", approval_ms=1),
    )
    return RunTrace(run_id, session, "cli", 1_000, status, 1, ms, "openai/m", Usage(10, 3, 1), steps=steps)


async def ids(store: TraceStore, limit: int = 50, **wanted: str) -> list[str]:
    return [found.run_id for found in await store.recent(limit=limit, **wanted)]  # type: ignore[arg-type]


async def test_what_was_noted_is_found_again_as_it_was(store: TraceStore) -> None:
    store.note(trace("r1"))
    assert await store.find("r1") == [trace("r1")]
    assert await store.recent(limit=9) == [trace("r1")]


async def test_the_newest_come_first_and_only_as_many_as_are_wanted(store: TraceStore) -> None:
    for number in range(4):
        store.note(trace(f"r{number}"))
    assert await ids(store, 3) == ["r3", "r2", "r1"]


async def test_one_session_or_one_status_can_be_asked_for(store: TraceStore) -> None:
    store.note(trace("a"))
    store.note(trace("b", "error"))
    store.note(trace("c", session="agent:main:other"))
    assert await ids(store, session="agent:main:main") == ["b", "a"]
    assert await ids(store, status="error") == ["b"]
    assert await ids(store, session="agent:main:other", status="error") == []


async def test_a_run_is_found_by_the_beginning_of_its_id_and_two_are_enough_to_see_that_it_is_not_clear(
    store: TraceStore,
) -> None:
    for run_id in ("aa1", "aa2", "aa3", "b_", "B%"):
        store.note(trace(run_id))
    assert [found.run_id for found in await store.find("aa")] == ["aa1", "aa2"]
    assert [found.run_id for found in await store.find("aa3")] == ["aa3"]
    assert [found.run_id for found in await store.find("b")] == ["b_"]
    for nothing in ("x", "%", "_", "aa1x", "🦀"):
        assert await store.find(nothing) == []


async def test_a_run_that_was_taken_up_again_has_one_trace_the_last(store: TraceStore) -> None:
    store.note(trace("a", "error"))
    store.note(trace("b"))
    store.note(trace("a", ms=99))
    assert await store.find("a") == [trace("a", ms=99)]
    assert await ids(store) == ["a", "b"]


async def test_only_the_last_are_kept(store: TraceStore) -> None:
    for number in range(3 * KEPT):
        store.note(trace(f"r{number:02}"))
    assert await ids(store) == [f"r{number:02}" for number in range(3 * KEPT - 1, 2 * KEPT - 1, -1)]


async def test_a_trace_on_a_disk_that_cannot_be_written_is_lost_without_a_word_to_the_run(tmp_path: Path) -> None:
    await Database(tmp_path / "home.sqlite", "home").close()
    database = Database(tmp_path / "home.sqlite", "home", readonly=True)
    store = TraceStore(database)
    store.note(trace("r1"))
    assert await store.recent(limit=5) == []
    await database.close()


async def test_a_trace_waits_for_no_commit_and_goes_with_the_next_one(tmp_path: Path) -> None:
    database = Database(tmp_path / "home.sqlite", "home")
    commits: list[int] = []
    database.on_commit = lambda writes, seconds: commits.append(writes)
    store = TraceStore(database)
    store.note(trace("r1"))
    store.note(trace("r2"))
    await asyncio.wait_for(database.write(lambda _: None), 60)
    assert commits in ([], [3])  # told right behind what was waited for
    await database.close()
    assert commits[:1] == [3]
