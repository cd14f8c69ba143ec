"""Keyword answers keep coming, whatever the embedder does, and say so (promise 12)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from palinurus.domain.errors import ConfigError, StorageFull
from palinurus.memory.answer import IndexFreshness, SearchAnswer
from palinurus.memory.chunk import chunk
from palinurus.memory.document import DocumentRef, FileRow
from palinurus.memory.embedder import Embedder, EmbedderChain
from palinurus.memory.fill import VectorFiller
from palinurus.memory.question import Question
from palinurus.memory.search import MemorySearch
from palinurus.memory.settings import MemorySettings, SearchLimits
from palinurus.memory.store import MemoryStore
from palinurus.testing.fakes import FakeClock, HashingEmbedder, Mood, MoodyEmbedder

NOTES = "- Anna bought a blue bicycle in Porto.\n- The boiler was mended by Karl.\n- Rain all day."
BAD = [Mood.FAILS, Mood.HANGS, Mood.WRONG_DIMENSION, Mood.NOT_A_NUMBER, Mood.TOO_LONG, Mood.TOO_FEW]


class Still:
    """An index that is as the disk is."""

    async def catch_up(self, seconds: float) -> IndexFreshness:
        return IndexFreshness("fresh", 1)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MemoryStore]:
    made = MemoryStore(tmp_path / "memory.sqlite")
    async with asyncio.timeout(60):
        digest = hashlib.sha256(NOTES.encode()).digest()
        row = FileRow(DocumentRef("memory", "memory/2026-11-15.md"), (len(NOTES), 1, 0, 0), digest, 0)
        await made.put([(row, chunk(NOTES, row.ref.path, 400))])
        yield made
        await made.close()


async def asked(store: MemoryStore, embedder: Embedder | None) -> SearchAnswer:
    search = MemorySearch(Still(), store, embedder, MemorySettings(), FakeClock())
    return await search.ask(Question("Who mended the boiler?", SearchLimits(seconds=0.4)))


@pytest.mark.parametrize("mood", BAD)
@pytest.mark.parametrize("filled", [True, False])
async def test_a_question_that_cannot_be_embedded_is_answered_by_words(
    store: MemoryStore, mood: Mood, filled: bool
) -> None:
    embedder = MoodyEmbedder(mood, good_for=None if filled else 0)
    await VectorFiller(store, embedder, step_seconds=0.1).run()
    embedder.good_for = 0
    answer = await asked(store, embedder)
    assert "Karl" in answer.results[0].snippet
    assert (answer.mode, answer.freshness.vectors) == ("keyword", "down")
    assert answer.freshness.why


async def test_while_a_new_space_is_filled_the_answer_is_never_of_two_spaces(store: MemoryStore) -> None:
    old, new = HashingEmbedder(model="old"), MoodyEmbedder(Mood.FAILS, good_for=2, model="new")
    await VectorFiller(store, old).run()
    filler = VectorFiller(store, new, step=1)
    await filler.run()
    by_new, by_old = await asked(store, new), await asked(store, old)
    assert by_new.results
    assert (by_new.mode, by_old.mode) == ("keyword", "hybrid")
    new.mood = Mood.WELL
    await filler.run()
    by_new, by_old = await asked(store, new), await asked(store, old)
    assert (by_new.mode, by_old.mode) == ("hybrid", "keyword")
    assert by_new.freshness.vectors == "complete"


async def test_partial_vectors_are_used_and_told(store: MemoryStore) -> None:
    embedder = MoodyEmbedder(Mood.FAILS, good_for=1)
    await VectorFiller(store, embedder, step=1).run()
    embedder.mood = Mood.WELL
    answer = await asked(store, embedder)
    assert (answer.mode, answer.freshness.vectors, answer.freshness.embedded) == ("hybrid", "partial", 1)


class Faulty(HashingEmbedder):
    """Code of a plugin, or one whose key is not to be had."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        raise self.error

    async def embed_query(self, text: str) -> bytes:
        raise self.error


@pytest.mark.parametrize(
    "error", [KeyError("data"), ConfigError("the file of the key is not there"), StorageFull("full")]
)
async def test_whatever_an_embedder_raises_costs_neither_the_answer_nor_those_after_it(
    store: MemoryStore, error: Exception
) -> None:
    embedder = Faulty(error)
    filled = await VectorFiller(store, EmbedderChain([embedder])).run()
    answer = await asked(store, embedder)
    assert "Karl" in answer.results[0].snippet
    assert (answer.mode, answer.freshness.vectors) == ("keyword", "down")
    for told in (filled.trouble, answer.freshness.why):
        assert (getattr(error, "message", "") or "testing failed: KeyError: 'data'") in told
