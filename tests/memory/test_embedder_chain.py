"""Several embedders in order: which of them makes vectors, whose vectors are searched, and what the answers say."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from palinurus.config.home import Home
from palinurus.memory.embedder import EmbedderChain, Space
from palinurus.memory.embedders import embedded as wired
from palinurus.memory.memory import Memory
from palinurus.memory.question import Question
from palinurus.memory.settings import SearchLimits
from palinurus.runtime.memory import EmbedderMeter, EmbedderSource
from palinurus.runtime.runtime import Runtime
from palinurus.testing.fakes import FakeClock, HashingEmbedder, Mood, MoodyEmbedder
from support.embedding_server import KEY, EmbeddingServer, Refuses

NOTES = "".join(f"- The ship number {number} is called Aster {number}.\n" for number in range(40))
SHORT = SearchLimits(seconds=2.0)


class HomeWithMemory:
    """A home whose config may change."""

    def __init__(self, home: Home, workspace: Path, runtime: Runtime) -> None:
        self._home = home
        self._workspace = workspace
        self._runtime = runtime

    def configure(self, search: dict[str, Any], **more: Any) -> None:
        config = {"agents": {"defaults": {"workspace": str(self._workspace), "memorySearch": search}}, **more}
        self._home.config_path.write_text(json.dumps(config))

    @property
    def memory(self) -> Memory:
        self._runtime.services.agents.refresh()
        return self._runtime.services.memory("main").builtin

    async def size_on_disk(self) -> int:
        return (await self.memory.status()).index_bytes

    async def asks(self, query: str = "Which ship is called Aster 7?") -> Any:
        return await self.memory.search(Question(query, SHORT))


@pytest.fixture
async def home_with(
    home: Home, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[..., HomeWithMemory]]:
    """Opens a home with these settings. Its embedded model is a quick one."""
    monkeypatch.setattr(wired, "EmbeddedModel", lambda: HashingEmbedder(32, "small"))
    (workspace / "MEMORY.md").write_text(NOTES)
    opened: list[Runtime] = []

    def make(**search: Any) -> HomeWithMemory:
        made = HomeWithMemory(home, workspace, Runtime(home, dict(os.environ)))
        made.configure(search)
        opened.append(made._runtime)
        return made

    async with asyncio.timeout(60):
        yield make
        for runtime in opened:
            await runtime.close()


def openai_at(server: EmbeddingServer, **more: Any) -> dict[str, Any]:
    return {
        "provider": "openai",
        "model": "m",
        "remote": {"baseUrl": f"{server.url}/v1", "apiKey": KEY},
        **more,
    }


async def test_texts_go_to_the_service_that_the_config_names_and_the_answer_says_so(
    home_with: Callable[..., HomeWithMemory],
) -> None:
    async with EmbeddingServer() as server:
        pal = home_with(**openai_at(server))
        report = await pal.memory.sync()
        assert report.embedder_trouble == ""
        answer = await pal.asks()
        assert (answer.mode, answer.provider, answer.model, answer.fallback) == ("hybrid", "openai", "m", None)
        assert "Which ship is called Aster 7?" in server.texts
        status = await pal.memory.status()
        assert (status.backend, status.provider, status.model, status.fallback) == ("builtin", "openai", "m", None)
        assert status.to_embed == 0
        assert json.loads(msgspec.json.encode(status))["fallback"] is None
        totals = await pal._runtime.services.usage.totals("model", zone=pal._runtime.services.clock.zone)
        assert [each.name for each in totals] == ["openai/m"]
        assert totals[0].usage.input > 100


async def test_nothing_leaves_the_machine_unless_the_config_says_so(
    home_with: Callable[..., HomeWithMemory], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    pal = home_with()
    await pal.memory.sync()
    assert (await pal.asks()).provider == "testing"  # the embedded model's stand-in


async def test_while_a_service_refuses_the_next_makes_vectors_and_it_is_said(
    home_with: Callable[..., HomeWithMemory],
) -> None:
    async with EmbeddingServer(*[Refuses(401)] * 50) as server:
        pal = home_with(**openai_at(server))
        report = await pal.memory.sync()
        assert report.embedder_trouble == ""
        answer = await pal.asks()
        assert (answer.mode, answer.provider, answer.model) == ("hybrid", "testing", "small")
        assert answer.fallback is not None
        assert answer.fallback.from_ == "openai"
        assert "refused the key" in answer.fallback.reason
        assert KEY not in answer.fallback.reason
        status = await pal.memory.status()
        assert (status.provider, status.fallback) == ("testing", answer.fallback)


async def test_without_a_fallback_words_alone_answer_and_it_is_said(home_with: Callable[..., HomeWithMemory]) -> None:
    async with EmbeddingServer(*[Refuses(401)] * 50) as server:
        pal = home_with(**openai_at(server, fallback="none"))
        assert "refused the key" in (await pal.memory.sync()).embedder_trouble
        answer = await pal.asks()
        assert answer.results
        assert (answer.mode, answer.provider, answer.freshness.vectors) == ("keyword", "", "down")
        assert "refused the key" in answer.freshness.why


@pytest.mark.parametrize("provider", ["my-own", "gemini", "openai-compatible"])
async def test_one_that_cannot_be_opened_is_said_and_replaced(
    home_with: Callable[..., HomeWithMemory], provider: str
) -> None:
    """There is no such embedder, there is no key, there is no address."""
    pal = home_with(provider=provider)
    assert (await pal.memory.sync()).embedder_trouble == ""
    answer = await pal.asks()
    assert (answer.mode, answer.provider) == ("hybrid", "testing")
    assert answer.fallback is not None
    assert answer.fallback.from_ == provider


async def test_a_provider_of_models_may_embed_too(home_with: Callable[..., HomeWithMemory]) -> None:
    async with EmbeddingServer() as server:
        pal = home_with()
        providers = {"house": {"baseUrl": f"{server.url}/v1", "apiKey": KEY}}
        search = {"provider": "house", "model": "bge/m3", "fallback": "none"}
        pal.configure(search, models={"providers": providers})
        assert (await pal.memory.sync()).embedder_trouble == ""
        assert (await pal.asks()).model == "bge/m3"
        assert server.headers[-1]["authorization"] == f"Bearer {KEY}"


async def test_a_days_tokens_are_not_exceeded(home_with: Callable[..., HomeWithMemory]) -> None:
    async with EmbeddingServer() as server:
        settings = openai_at(server, fallback="none")
        settings["remote"]["tokensPerDay"] = 100
        pal = home_with(**settings)
        report = await pal.memory.sync()
        assert "100 tokens of today" in report.embedder_trouble
        answer = await pal.asks()
        assert answer.results
        assert len(server.texts) < 10


async def test_a_slow_service_costs_a_search_no_more_than_its_time(home_with: Callable[..., HomeWithMemory]) -> None:
    async with EmbeddingServer() as server:
        pal = home_with(**openai_at(server, fallback="none"))
        await pal.memory.sync()
        server.delay = 3600.0
        answer = await pal.memory.search(Question("Aster 7", SearchLimits(seconds=0.4)))
        assert answer.results
        assert (answer.mode, answer.freshness.vectors) == ("keyword", "down")
        assert "did not answer within" in answer.freshness.why


async def test_a_switch_under_load_mixes_no_spaces_and_leaves_no_gap(
    home_with: Callable[..., HomeWithMemory], workspace: Path
) -> None:
    """Both models have vectors of the same size, so that only their directions tell a mixture."""
    lines = [f"- Note {number}: harbour {number * 7} has berth {number * 13}." for number in range(600)]
    (workspace / "MEMORY.md").write_text("\n".join(lines) + "\n")
    async with EmbeddingServer() as server:
        pal = home_with(**openai_at(server, model="one", fallback="none"))
        await pal.memory.sync()
        (before,) = await pal.memory.spaces()
        size = await pal.size_on_disk()
        server.delay = 0.02
        pal.configure(openai_at(server, model="two", fallback="none"))
        pal.memory.start()
        served: list[str] = []
        while "two" not in served or len(served) < served.index("two") + 20:
            number = len(served) * 37 % 600
            answer = await pal.memory.search(Question(lines[number][2:], SHORT, explain=True))
            best = answer.results[0]
            assert best.snippet.removeprefix("- ") == lines[number][2:]
            assert answer.mode == "hybrid", answer.freshness
            (vector,) = [each for each in best.factors if each.name == "vector"]
            assert vector.value > 0.8, "a question of one space was compared with vectors of another"
            served.append(answer.model)
        assert served == sorted(served), "it changed once"
        assert "one" in served, "the old space was searched while the new one was filled"
        (after,) = await pal.memory.spaces()
        assert (before.model, after.model, after.state, after.embedded) == ("one", "two", "searched", after.pieces)
        assert await pal.size_on_disk() <= 1.1 * size


async def test_whoever_goes_back_to_the_embedded_model_sends_nothing_more(
    home_with: Callable[..., HomeWithMemory],
) -> None:
    async with EmbeddingServer() as server:
        pal = home_with(**openai_at(server))
        await pal.memory.sync()
        sent = len(server.paths)
        pal.configure({"provider": "embedded"})
        answer = await pal.asks()
        assert (answer.mode, answer.freshness.vectors) == ("keyword", "down")
        assert "not complete yet" in answer.freshness.why
        await pal.memory.sync()
        assert (await pal.asks()).provider == "testing"
        assert len(server.paths) == sent


def space_of(model: str, dimensions: int = 8) -> Space:
    return Space("testing", model, dimensions, "unit")


@pytest.mark.parametrize("model", ["m", "a/b/c", "ünï"])
def test_a_space_is_read_from_its_id(model: str) -> None:
    assert Space.read(space_of(model).id) == space_of(model)
    assert space_of(model).fits(space_of(model, 0))
    assert not space_of(model).fits(space_of(model, 9))
    assert not space_of(model).fits(space_of("other", 0))


async def test_the_first_one_serves_again_when_it_works_and_its_vectors_were_kept() -> None:
    from palinurus.domain.errors import EmbedderError

    first, second = MoodyEmbedder(Mood.FAILS, model="first"), HashingEmbedder(32, "second")
    chain = EmbedderChain((first, second))
    assert not chain.failed(first, EmbedderError("late"))
    chain.worked(first)
    assert not chain.failed(first, EmbedderError("late"))
    assert chain.failed(first, EmbedderError("late again"))
    assert (chain.serving, chain.kept) == (second, (first.space,))
    assert chain.fallback is not None
    assert chain.fallback.reason == "late again"
    assert not chain.failed(second, EmbedderError("nobody is left", lasting=True))
    await chain.try_first()
    assert chain.serving is second
    first.mood = Mood.WELL
    await chain.try_first()
    assert (chain.serving, chain.fallback, chain.kept) == (first, None, ())


async def test_of_two_that_reserve_the_first_tokens_of_a_day_at_once_none_is_forgotten(clock: FakeClock) -> None:
    looked: list[asyncio.Event] = []

    class Ledger:
        async def totals(self, *_: Any, **__: Any) -> list[Any]:
            looked.append(asyncio.Event())
            await looked[-1].wait()
            return []

    source = EmbedderSource(
        cast("Any", None), str, cast("Any", None), cast("Any", None), cast("Any", Ledger), str, cast("Any", None)
    )
    meter = EmbedderMeter(source, "openai", "main", 100, clock, books=False)
    tasks = [asyncio.create_task(meter.reserve("m", 60)) for _ in range(2)]
    async with asyncio.timeout(10):
        while len(looked) < 2:
            await asyncio.sleep(0)
        for each, task in zip(looked, tasks, strict=True):
            each.set()
            await asyncio.wait([task])
    assert [task.exception() is None for task in tasks] == [True, False], "a hundred tokens are not enough for both"
