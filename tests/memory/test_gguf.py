"""GGUF files of the user: an embedder, a reranker and a query expander, with the one file that is reachable here.

SmolLM2 chats: it is a poor embedder, and its judgment is worth nothing. So this shows that the parts work, not that
they help.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from palinurus.config.home import Home
from palinurus.domain.errors import EmbedderError
from palinurus.memory.answer import SearchAnswer
from palinurus.memory.embedder import check_vectors
from palinurus.memory.embedders import gguf
from palinurus.memory.embedders.gguf import GgufEmbedder, GgufExpander, GgufReranker
from palinurus.memory.question import SearchMemory
from palinurus.operations.memory import search_memory
from palinurus.providers.smollm.packages import weights_file
from palinurus.runtime.runtime import Runtime

real = pytest.mark.real
WEIGHTS = weights_file({})
needs_weights = pytest.mark.skipif(WEIGHTS is None, reason="`pal models install embedded` was not run")
NOTES = "".join(f"- Ship {number} is called Aster {number}.\n" for number in range(30)) + "- The dog is in Rome.\n"


@real
@needs_weights
async def test_a_file_embeds_reranks_and_writes() -> None:
    assert WEIGHTS is not None
    embedder, reranker, expander = GgufEmbedder(WEIGHTS), GgufReranker(WEIGHTS), GgufExpander(WEIGHTS)
    async with asyncio.timeout(60):
        texts = ["Anna bought a blue bicycle.", "", "x " * 600, "記憶は海である"]
        vectors = [*await embedder.embed(texts), await embedder.embed_query(texts[0])]
        check_vectors(embedder.space, vectors, 5)
        assert embedder.space.id.startswith(f"local/{WEIGHTS.name}/576/unit,")
        first, again = (struct.unpack("<576f", vector) for vector in (vectors[0], vectors[4]))
        assert math.fsum(a * b for a, b in zip(first, again, strict=True)) > 0.99
        scores = await reranker.judge("Who bought a bicycle?", texts)
        assert len(scores) == 4
        assert all(0 <= score <= 1 for score in scores)
        assert all(word == word.lower() for word in await expander.widen("Which cities did Anna visit?"))
        for each in (embedder, reranker, expander):
            await each.close()


@real
@needs_weights
async def test_a_home_searches_with_them(home: Home, workspace: Path) -> None:
    search = {
        "provider": "local",
        "local": {"modelPath": str(WEIGHTS)},
        "query": {"rerank": {"modelPath": str(WEIGHTS)}, "expansion": {"modelPath": str(WEIGHTS)}},
        "limits": {"timeoutMs": 30_000},
    }
    async with asyncio.timeout(60):
        answer = await asked(home, workspace, search, "Which ship is called Aster 7?")
    assert (answer.provider, answer.model, answer.freshness.why) == ("local", WEIGHTS.name if WEIGHTS else "", "")
    assert "rerank" in [each.name for each in answer.results[0].factors]


async def asked(home: Home, workspace: Path, search: dict[str, Any], query: str) -> SearchAnswer:
    (workspace / "MEMORY.md").write_text(NOTES)
    agents = {"defaults": {"workspace": str(workspace), "memorySearch": search}}
    home.config_path.write_text(json.dumps({"agents": agents}))
    runtime = Runtime(home, dict(os.environ))
    try:
        await runtime.services.memory("main").sync()
        return await search_memory.function(runtime.services, SearchMemory(query, explain=True))
    finally:
        await runtime.close()


class Judge:
    """The fourth is best."""

    def __init__(self) -> None:
        self.asked: list[Sequence[str]] = []

    async def judge(self, query: str, texts: Sequence[str]) -> list[float]:
        self.asked.append(texts)
        return [float(at == 3) for at in range(len(texts))]

    async def close(self) -> None: ...


MODELS = {"rerank": {"modelPath": "/models/judge.gguf", "candidates": 5}, "expansion": {"modelPath": "/models/w.gguf"}}


async def test_a_rerankers_judgment_is_half_of_the_score_and_words_of_an_expander_are_looked_for(
    home: Home, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = Judge()
    monkeypatch.setattr(gguf, "GgufReranker", lambda _: judge)

    class Widener(Judge):
        async def widen(self, query: str) -> tuple[str, ...]:
            return ("rome", "paris")

    monkeypatch.setattr(gguf, "GgufExpander", lambda _: Widener())
    search = {"provider": "none", "query": MODELS}
    answer = await asked(home, workspace, search, "Which ship is called Aster?")
    assert len(judge.asked[0]) == 5
    assert judge.asked[0][3].endswith(answer.results[0].snippet)
    factors = answer.results[0].factors
    assert min(1.0, sum(each.added for each in factors)) == pytest.approx(answer.results[0].score, abs=0.001)
    assert [(each.value, each.weight) for each in factors if each.name == "rerank"] == [(1.0, 0.5)]
    assert all(0 <= each.score <= 1 for each in answer.results)
    answer = await asked(home, workspace, search, "Which cities did Anna visit?")
    assert "Rome" in str(answer.results)
    answer = await asked(home, workspace, {"provider": "none"}, "Which cities did Anna visit?")
    assert "Rome" not in str(answer.results)


@pytest.mark.parametrize("fails", ["missing", "hangs", "raises"])
async def test_models_that_fail_cost_only_their_help_and_it_is_said(
    home: Home, workspace: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    class Bad:
        async def judge(self, query: str, texts: Sequence[str]) -> list[float]:
            if fails == "hangs":
                await asyncio.get_running_loop().create_future()
            raise EmbedderError("no such tensor")

        widen = judge

        async def close(self) -> None: ...

    if fails != "missing":
        monkeypatch.setattr(gguf, "GgufReranker", lambda _: Bad())
    search = {"provider": "none", "query": {"rerank": MODELS["rerank"]}, "limits": {"timeoutMs": 500}}
    answer = await asked(home, workspace, search, "Which ship is called Aster 8?")
    assert "Aster 8." in answer.results[0].snippet
    assert answer.freshness.why.startswith("not reranked: ")
    assert "rerank" not in [each.name for each in answer.results[0].factors]


async def test_a_local_embedder_without_its_file_is_said_and_replaced_by_words(home: Home, workspace: Path) -> None:
    search = {"provider": "local", "local": {"modelPath": "/models/none.gguf"}, "fallback": "none"}
    answer = await asked(home, workspace, search, "Which ship is called Aster 8?")
    assert (answer.mode, answer.freshness.vectors) == ("keyword", "down")
    assert "there is no GGUF file /models/none.gguf" in answer.freshness.why
