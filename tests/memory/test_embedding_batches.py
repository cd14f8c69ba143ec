"""OpenAI's Batch API: durable jobs that are submitted, looked at, resumed after a restart, and never trusted."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from palinurus.config.home import Home
from palinurus.memory.answer import SearchAnswer
from palinurus.memory.memory import Memory
from palinurus.memory.question import Question
from palinurus.memory.settings import SearchLimits
from palinurus.runtime.memory import BATCH_JOB
from palinurus.runtime.runtime import Runtime
from palinurus.storage.jobs import Job
from support.embedding_batches import BatchDesk, Lines, as_list
from support.embedding_server import KEY, EmbeddingServer

LINES = [f"- Note {number}: harbour {number * 7} has berth {number * 13}." for number in range(60)]


class BatchHome:
    """A home whose large index is embedded by batches; `restart` is what a crash or a new release does."""

    def __init__(self, home: Home, workspace: Path, server: EmbeddingServer) -> None:
        self._home = home
        self.workspace = workspace
        self.server = server
        self.desk = BatchDesk()
        server.other = self.desk.answer
        self.runtime = Runtime(home, dict(os.environ), process="pid 1 (gateway)")

    def configure(self, remote: Mapping[str, Any] = MappingProxyType({}), **batch: Any) -> None:
        batch = {"enabled": True, "pollIntervalMs": 100, "least": 20, **batch}
        remote = {"baseUrl": f"{self.server.url}/v1", "apiKey": KEY, "batch": batch, **remote}
        search = {"provider": "openai", "model": "m", "fallback": "none", "remote": remote, "sync": {"watch": False}}
        agents = {"defaults": {"workspace": str(self.workspace), "memorySearch": search}}
        self._home.config_path.write_text(json.dumps({"agents": agents}))

    async def start(self) -> None:
        await self.runtime.services.jobs.start()
        self.memory.start()

    async def restart(self) -> None:
        await self.runtime.close()
        self.runtime = Runtime(self._home, dict(os.environ), process="pid 1 (gateway)")
        await self.start()

    @property
    def memory(self) -> Memory:
        return self.runtime.services.memory("main").builtin

    async def jobs(self) -> list[Job]:
        return await self.runtime.services.jobs.of_lane(BATCH_JOB, "main")

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                await self._hurry()

    async def complete(self) -> None:
        """Until every line has a vector."""
        async with asyncio.timeout(60):
            while (status := await self.memory.status()).to_embed or status.pieces < len(LINES):
                await self._hurry()

    async def _hurry(self) -> None:
        """What is looked at after a minute is looked at now."""
        await self.runtime.services.jobs.hurry(BATCH_JOB)
        self.memory.nudge()
        await asyncio.sleep(0.05)

    async def asks(self, line: str) -> SearchAnswer:
        answer = await self.memory.search(Question(line, SearchLimits(seconds=5.0), explain=True))
        assert answer.results[0].snippet == line
        return answer


@pytest.fixture
async def pal(home: Home, workspace: Path) -> AsyncIterator[BatchHome]:
    (workspace / "MEMORY.md").write_text("\n".join(LINES) + "\n")
    async with asyncio.timeout(60), EmbeddingServer() as server:
        made = BatchHome(home, workspace, server)
        made.configure()
        yield made
        await made.runtime.close()


async def test_a_large_first_index_is_one_batch_and_new_lines_do_not_wait_for_it(pal: BatchHome) -> None:
    pal.desk.looks = 10**6
    pal.desk.spoil = lambda lines: lines[::-1]
    await pal.start()
    await pal.until(lambda: bool(pal.desk.looked))
    assert len(pal.desk.submitted) == 1
    assert [each for each in pal.server.texts if "has berth" in each] == []
    with (pal.workspace / "MEMORY.md").open("a") as file:
        file.write("- A gull has stolen the winch handle.\n")
    answer = await pal.memory.search(Question("gull winch", SearchLimits(seconds=5.0)))
    assert answer.freshness.vectors == "partial"
    assert (await pal.memory.status()).by_batch
    await pal.until(lambda: any("gull has stolen" in each for each in pal.server.texts))
    pal.desk.looks = 0
    await pal.complete()
    answer = await pal.asks(LINES[17])
    assert (answer.mode, answer.freshness.vectors) == ("hybrid", "complete")
    [vector] = [each for each in answer.results[0].factors if each.name == "vector"]
    assert vector.value > 0.8, "the vectors belong to their texts, in whatever order they came"
    [job] = await pal.jobs()
    assert (job.state, job.outcome is not None) == ("done", True)
    assert pal.desk.files == {}, "the texts do not stay with the service"


@pytest.mark.parametrize("lost", [0, 1])
async def test_after_a_restart_it_is_looked_at_and_not_submitted_again(pal: BatchHome, lost: int) -> None:
    """`lost`: also when the process ended between the submission and the commit of what the service said."""
    pal.desk.looks, pal.desk.loses_answer = 10**6, lost
    await pal.start()
    await pal.until(lambda: bool(pal.desk.batches))
    await pal.restart()
    pal.desk.looks = 0
    await pal.complete()
    assert len(pal.desk.submitted) == 1
    assert [each for each in pal.server.texts if "has berth" in each] == []


async def test_a_service_that_makes_no_batch_for_now_has_the_texts_once_and_they_are_booked_once(
    pal: BatchHome,
) -> None:
    pal.desk.busy, pal.desk.looks = 3, 0
    await pal.start()
    await pal.complete()
    assert (pal.desk.calls.count("POST files"), len(pal.desk.submitted)) == (1, 1)
    assert pal.desk.files == {}
    [booked] = await pal.runtime.services.usage.totals("model", zone=pal.runtime.services.clock.zone)
    assert booked.calls == 1 + pal.desk.calls.count("POST embeddings")


async def test_the_file_of_a_batch_is_made_beside_the_event_loop(
    pal: BatchHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred megabytes take seconds (promise 10)."""
    threads = set[bool]()

    def estimate(text: str) -> int:
        threads.add(threading.current_thread() is threading.main_thread())
        return len(text)

    monkeypatch.setattr("palinurus.extensions.embedders.batches.estimate_tokens", estimate)
    await pal.start()
    await pal.until(lambda: bool(pal.desk.submitted))
    assert threads == {False}


async def test_a_batch_that_exceeds_the_tokens_of_a_day_leaves_the_texts_to_be_embedded_directly(
    pal: BatchHome,
) -> None:
    many = [f"- Berth {number} has berth {number * 17}." for number in range(300)]
    (pal.workspace / "MEMORY.md").write_text("\n".join(many) + "\n")
    pal.configure({"tokensPerDay": 1_500})
    await pal.start()
    await pal.until(lambda: any("has berth" in each for each in pal.server.texts))
    [job] = await pal.jobs()
    assert (job.state, pal.desk.files, pal.desk.submitted) == ("failed", {}, [])


async def test_what_an_expired_batch_has_made_is_used_and_the_rest_is_made_by_the_next(pal: BatchHome) -> None:
    pal.desk.ends = "expired"
    pal.desk.spoil = lambda lines: lines[: max(1, len(lines) // 2)]
    await pal.start()
    await pal.complete()
    assert 60 > len(pal.desk.bodies) - 60 >= 30, "twice, and the last few directly"
    assert [each.state for each in await pal.jobs()] == ["done"] * len(pal.desk.submitted)
    assert 0 < len([each for each in pal.server.texts if "has berth" in each]) < 20
    assert (await pal.asks(LINES[41])).freshness.vectors == "complete"


BAD: dict[str, Callable[[Lines], Lines]] = {
    "nothing": lambda _: [],
    "another size": lambda lines: [_with(as_list(each), lambda vector: vector[:-1]) for each in lines],
    "no direction": lambda lines: [_with(as_list(each), lambda vector: [0.0 for _ in vector]) for each in lines],
    "no vectors": lambda lines: [{**each, "response": {"status_code": 500, "body": {"error": {}}}} for each in lines],
    "no JSON": lambda lines: ["x" for _ in lines],
}


def _with(line: Any, change: Callable[[list[float]], list[float]]) -> Any:
    [vector] = line["response"]["body"]["data"]
    vector["embedding"] = change(vector["embedding"])
    return line


@pytest.mark.parametrize("how", [*BAD, "failed", "cancelled"])
async def test_where_a_batch_gives_nothing_the_texts_are_embedded_directly(pal: BatchHome, how: str) -> None:
    pal.desk.looks = 0
    if how in BAD:
        pal.desk.spoil = BAD[how]
    else:
        pal.desk.ends, pal.desk.spoil = how, lambda _: []
    await pal.start()
    await pal.until(lambda: bool(pal.desk.batches))
    await pal.complete()
    [job] = await pal.jobs()
    assert job.state == "failed"
    assert (how != "failed") or "the queue of tokens is full" in job.trouble
    assert KEY not in job.trouble
    assert len([each for each in pal.server.texts if "has berth" in each]) == 60
    assert (await pal.asks(LINES[3])).freshness.vectors == "complete"


async def test_bad_vectors_of_a_batch_are_left_out_and_the_good_ones_kept(pal: BatchHome) -> None:
    pal.desk.spoil = lambda lines: [*lines[:50], *(_with(as_list(each), lambda one: one[:-1]) for each in lines[50:])]
    await pal.start()
    await pal.complete()
    [job] = await pal.jobs()
    assert b"50 vectors" in bytes(job.outcome or b"")
    assert b"12 could not be used" in bytes(job.outcome or b"")
    assert len([each for each in pal.server.texts if "has berth" in each]) == 12


async def test_a_batch_that_takes_too_long_is_cancelled(pal: BatchHome) -> None:
    pal.desk.looks = 10**6
    pal.configure(timeoutMinutes=1)
    await pal.start()
    await pal.until(lambda: bool(pal.desk.looked))
    await pal.runtime.services.database.write(
        lambda tx: tx.connection.execute("UPDATE jobs SET added_at = added_at - 120000 WHERE kind = ?", (BATCH_JOB,))
    )
    await pal.complete()
    [job] = await pal.jobs()
    assert (job.state, pal.desk.batches["batch-1"]["status"]) == ("failed", "cancelling")
    assert "longer than 1 minutes" in job.trouble
    assert pal.desk.files == {}


async def test_few_texts_and_a_config_without_batches_are_embedded_directly(pal: BatchHome) -> None:
    for batch in ({"least": 1_000}, {"enabled": False}):
        pal.configure(**batch)
        await pal.start()
        await pal.complete()
        assert pal.desk.submitted == []
        assert await pal.jobs() == []


async def test_bodies_are_what_openais_own_types_say(pal: BatchHome) -> None:
    openai = pytest.importorskip("openai")
    from pydantic import TypeAdapter

    types = openai.types
    await pal.start()
    await pal.complete()
    TypeAdapter(types.batch_create_params.BatchCreateParams).validate_python(pal.desk.submitted[0], strict=True)
    for body in pal.desk.bodies:
        TypeAdapter(types.embedding_create_params.EmbeddingCreateParams).validate_python(body, strict=True)
    types.Batch.model_validate(pal.desk.batches["batch-1"])  # what our server says is what theirs says
