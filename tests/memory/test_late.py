"""Late interaction: the words of a line that mean those of the question, also when they are others."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from notes import search_over

from palinurus.domain.errors import EmbedderError
from palinurus.memory.answer import SearchAnswer
from palinurus.memory.embedder import check_vectors
from palinurus.memory.fill import VectorFiller
from palinurus.memory.late import CODE_BYTES, DIMENSIONS, QueryTokens, late_scores
from palinurus.memory.question import Question
from palinurus.memory.store import MemoryStore
from palinurus.testing.fakes import HashingEmbedder, TokenEmbedder, vector_of

DOG, CAR = b"\x0f" * CODE_BYTES, b"\x33" * CODE_BYTES  # orthogonal


def question(*words: str, codes: tuple[bytes, ...]) -> QueryTokens:
    bits = "".join(f"{byte:08b}" for code in codes for byte in code)
    states = struct.pack(f"<{len(bits)}f", *((2 * int(bit) - 1) / DIMENSIONS**0.5 for bit in bits))
    return QueryTokens(words, states)


def scores(asked: QueryTokens, lines: dict[int, bytes], *, files: dict[int, int] | None = None) -> dict[int, float]:
    return late_scores(asked, {"dog": 1, "car": 90}, 100, lines, files or dict.fromkeys(lines, 1))


def test_a_line_with_the_word_scores_one_and_one_without_it_nothing() -> None:
    found = scores(question("dog", codes=(DOG,)), {1: CAR + DOG, 9: CAR})
    assert found == pytest.approx({1: 1.0, 9: 0.0})


def test_the_line_beside_it_scores_a_little_less_and_none_in_another_file() -> None:
    found = scores(question("dog", codes=(DOG,)), {1: CAR, 2: DOG, 3: CAR, 4: CAR}, files={1: 1, 2: 2, 3: 2, 4: 2})
    assert found[1] == found[4] == 0
    assert 0.5 < found[3] < found[2]


def test_rare_words_weigh_more() -> None:
    found = scores(question("dog", "car", codes=(DOG, CAR)), {1: DOG, 9: CAR})
    assert found[1] > found[9]


def test_scores_stay_between_nothing_and_one() -> None:
    opposite = bytes(255 - byte for byte in DOG)
    assert scores(question("dog", codes=(DOG,)), {1: opposite, 9: DOG}) == pytest.approx({1: 0.0, 9: 1.0})
    assert scores(question("dog", codes=(DOG,)), {}) == {}


@pytest.mark.parametrize("told", [b"", b"\0", b"\0\0", b"\2\0half"])
def test_what_is_no_question_is_none(told: bytes) -> None:
    assert QueryTokens.read(told) is None


def test_codes_may_follow_a_vector_only_in_a_space_that_has_them() -> None:
    vector = vector_of("x", 64)
    check_vectors(TokenEmbedder().space, [vector, vector + DOG], 2)
    with pytest.raises(EmbedderError, match="66 dimensions"):
        check_vectors(HashingEmbedder().space, [vector + DOG], 1)
    with pytest.raises(EmbedderError, match="dimensions"):
        check_vectors(TokenEmbedder().space, [vector[:-4]], 1)


# -- in a search -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MemoryStore]:
    (tmp_path / "memory").mkdir()
    lines = [f"- the {kind} of day {day} was fine" for day in range(9) for kind in ("weather", "soup")]
    (tmp_path / "memory" / "a.md").write_text("\n".join([*lines, "- the spaniel slept", *lines]), encoding="utf-8")
    made = MemoryStore(tmp_path / "derived" / "memory.sqlite")
    async with asyncio.timeout(60):
        yield made
        await made.close()


async def answer(tmp_path: Path, store: MemoryStore, embedder: HashingEmbedder) -> SearchAnswer:
    search = search_over(tmp_path, store, embedder)
    await search.ask(Question("anything"))  # so that there are words
    assert not (await VectorFiller(store, embedder, share=1.0).run()).trouble
    return await search.ask(Question("dog", explain=True))


async def test_a_word_is_found_by_another_that_means_it(tmp_path: Path, store: MemoryStore) -> None:
    found = await answer(tmp_path, store, TokenEmbedder({"spaniel": "dog"}))
    best = found.results[0]
    assert best.snippet == "- the spaniel slept"
    assert {factor.name: factor.value for factor in best.factors}["late"] == pytest.approx(1.0)
    assert sum(factor.added for factor in best.factors) == pytest.approx(best.score, abs=1e-3)


async def test_without_codes_a_search_is_as_before(tmp_path: Path, store: MemoryStore) -> None:
    found = await answer(tmp_path, store, HashingEmbedder())
    assert found.mode == "hybrid"
    assert not [factor for result in found.results for factor in result.factors if factor.name == "late"]


async def test_a_new_way_to_code_words_is_another_space(tmp_path: Path, store: MemoryStore) -> None:
    await answer(tmp_path, store, HashingEmbedder())
    found = await answer(tmp_path, store, TokenEmbedder({"spaniel": "dog"}))
    assert found.results[0].snippet == "- the spaniel slept"
    assert await store.space_in_use() == TokenEmbedder().space.id
