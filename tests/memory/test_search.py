"""One question, one answer: cited, within its budget, and true about how fresh and how complete it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from notes import asked, search_over, write

from palinurus.memory.fill import VectorFiller
from palinurus.memory.question import Question
from palinurus.memory.search import MemorySearch
from palinurus.memory.settings import MemorySettings, Ranking, SearchLimits
from palinurus.memory.store import MemoryStore
from palinurus.testing.fakes import HashingEmbedder, Mood, MoodyEmbedder


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MemoryStore]:
    write(tmp_path)
    made = MemoryStore(tmp_path / "derived" / "memory.sqlite")
    async with asyncio.timeout(60):
        yield made
        await made.close()


@pytest.fixture
def search(tmp_path: Path, store: MemoryStore) -> MemorySearch:
    return search_over(tmp_path, store)


async def with_vectors(tmp_path: Path, store: MemoryStore, embedder: HashingEmbedder) -> MemorySearch:
    await asked(search_over(tmp_path, store), "anything")  # so that there are words
    await VectorFiller(store, embedder, share=1.0).run()
    return search_over(tmp_path, store, embedder)


async def test_a_result_is_the_whole_lines_it_cites(search: MemorySearch, tmp_path: Path) -> None:
    answer = await asked(search, "Why Postgres instead of Mongo?")
    best = answer.results[0]
    lines = (tmp_path / best.path).read_text(encoding="utf-8").splitlines()
    assert best.snippet == "\n".join(lines[best.start_line - 1 : best.end_line])
    assert best.citation == "memory/meetings/2026-10-02-kickoff.md#L6-L7"
    assert 0 < best.score <= 1


async def test_what_was_written_a_moment_ago_is_in_the_answer(search: MemorySearch, tmp_path: Path) -> None:
    await asked(search, "ladder")
    (tmp_path / "memory" / "2026-11-15.md").write_text("- The zeppelin landed in the orchard\n", encoding="utf-8")
    answer = await asked(search, "zeppelin")
    assert answer.results[0].path == "memory/2026-11-15.md"
    assert (answer.freshness.state, answer.freshness.caught_up) == ("fresh", 1)


async def test_without_an_embedder_the_answer_is_by_words_and_says_so(search: MemorySearch) -> None:
    answer = await asked(search, "ladder")
    assert (answer.mode, answer.freshness.vectors) == ("keyword", "off")


async def test_with_all_vectors_there_the_answer_is_hybrid(tmp_path: Path, store: MemoryStore) -> None:
    search = await with_vectors(tmp_path, store, HashingEmbedder())
    answer = await asked(search, "Who borrowed the ladder?")
    assert (answer.mode, answer.freshness.vectors) == ("hybrid", "complete")
    assert answer.freshness.embedded == answer.freshness.pieces > 0


async def test_words_of_a_new_file_are_found_before_its_vectors_are_there(tmp_path: Path, store: MemoryStore) -> None:
    search = await with_vectors(tmp_path, store, HashingEmbedder())
    (tmp_path / "memory" / "new.md").write_text("- The zeppelin landed in the orchard\n", encoding="utf-8")
    answer = await asked(search, "Where did the zeppelin land?")
    assert answer.results[0].path == "memory/new.md"
    assert (answer.mode, answer.freshness.vectors) == ("hybrid", "partial")


@pytest.mark.parametrize("mood", [Mood.FAILS, Mood.HANGS])
async def test_an_embedder_in_trouble_costs_the_vectors_and_nothing_else(
    tmp_path: Path, store: MemoryStore, mood: Mood
) -> None:
    await asked(search_over(tmp_path, store), "anything")  # the words are indexed
    search = search_over(tmp_path, store, MoodyEmbedder(mood, good_for=0))
    answer = await search.ask(Question("Who borrowed the ladder?", SearchLimits(seconds=0.4)))
    assert any("ladder" in result.snippet for result in answer.results)
    assert (answer.mode, answer.freshness.vectors) == ("keyword", "down")
    assert "by words alone" in answer.freshness.why


async def test_the_embedder_has_all_of_the_time_but_a_second(tmp_path: Path, store: MemoryStore) -> None:
    search = search_over(tmp_path, store, MoodyEmbedder(Mood.HANGS, good_for=0))
    answer = await search.ask(Question("Who borrowed the ladder?", SearchLimits(seconds=2.5)))
    assert answer.freshness.why.startswith("the embedder did not answer within 1.5 s")


async def test_a_question_by_words_alone_does_not_ask_the_embedder(tmp_path: Path, store: MemoryStore) -> None:
    embedder = HashingEmbedder()
    answer = await search_over(tmp_path, store, embedder).ask(Question("ladder", keyword_only=True))
    assert (answer.mode, embedder.queries) == ("keyword", [])


@pytest.mark.parametrize(
    "query",
    [
        'ladder AND ("', "ladder*", "NEAR(ladder wouter)", "-ladder", "col:ladder", "ladder\x00wouter", "🪜 ladder 🪜",
        "ladder " * 15_000, "'; DROP TABLE pieces; -- ladder", "\ud800 ladder", "^ladder +wouter", '"ladder"',
    ],
)  # fmt: skip
async def test_any_text_is_answered(search: MemorySearch, query: str) -> None:
    answer = await asked(search, query)
    assert any("ladder" in result.snippet for result in answer.results)


@pytest.mark.parametrize("query", ["", "   ", "🎉", "\x00", "???", "zzzzqqq"])
async def test_a_question_without_a_known_word_finds_nothing(search: MemorySearch, query: str) -> None:
    answer = await asked(search, query)
    assert answer.results == ()
    assert answer.freshness.state == "fresh"


async def test_a_budget_of_tokens_replaces_the_clamp(search: MemorySearch) -> None:
    narrow = await asked(search, "Where is grandfather's grey notebook?", SearchLimits(tokens=60))
    assert sum(len(result.snippet) + 1 for result in narrow.results) <= 60 * 4
    assert narrow.left_out > 0
    wide = await asked(search, "Where is grandfather's grey notebook?", SearchLimits(tokens=2_000))
    assert len(wide.results[0].snippet) > 700  # a whole line, however long


async def test_all_snippets_together_stay_within_the_characters(search: MemorySearch) -> None:
    answer = await asked(search, "Ines Wouter ladder Priya Jonas Lena Rafael", SearchLimits(characters=300))
    assert 0 < sum(len(result.snippet) for result in answer.results) <= 300


async def test_a_long_line_is_shown_where_its_words_are(search: MemorySearch) -> None:
    answer = await asked(search, "In which drawer under the barometer?", SearchLimits(snippet=120))
    best = answer.results[0]
    assert best.path == "memory/essay.md"
    assert len(best.snippet) <= 120
    assert "barometer" in best.snippet
    assert best.snippet.startswith("…")


async def test_no_more_results_than_wanted(search: MemorySearch) -> None:
    answer = await asked(search, "Ines ladder Wouter", SearchLimits(results=2))
    assert len(answer.results) == 2
    assert answer.left_out > 0


async def test_weak_finds_are_left_away_when_a_least_score_is_set(search: MemorySearch) -> None:
    strict = await search.ask(Question("Who borrowed the ladder?", min_score=0.4))
    loose = await search.ask(Question("Who borrowed the ladder?", min_score=0.0))
    assert 0 < len(strict.results) < len(loose.results)
    assert all(result.score >= 0.4 for result in strict.results)


async def test_an_explanation_adds_up_to_the_score(tmp_path: Path, store: MemoryStore) -> None:
    search = await with_vectors(tmp_path, store, HashingEmbedder())
    answer = await search.ask(Question("What did Lena bake on 12 November?", explain=True))
    best = answer.results[0]
    assert [factor.name for factor in best.factors] == ["words", "passage", "label", "date", "vector"]
    assert sum(factor.added for factor in best.factors) == pytest.approx(best.score, abs=0.002)


async def test_only_the_sources_asked_for_are_searched(search: MemorySearch) -> None:
    assert (await search.ask(Question("ladder", sources=("sessions",)))).results == ()
    assert (await search.ask(Question("ladder", sources=("memory",)))).results


async def test_citations_can_be_left_away(search: MemorySearch) -> None:
    answer = await search.ask(Question("ladder", cite=False))
    assert all(not result.citation for result in answer.results)


async def test_old_notes_fade_when_recency_is_wanted(tmp_path: Path, store: MemoryStore) -> None:
    for day in ("2026-11-13", "2024-01-05"):
        (tmp_path / "memory" / f"{day}.md").write_text("- The zeppelin landed\n", encoding="utf-8")
    fading = MemorySettings(ranking=Ranking(half_life_days=30))
    answer = await asked(search_over(tmp_path, store, settings=fading), "zeppelin")
    new, old = answer.results[0], answer.results[1]
    assert (new.path, old.path) == ("memory/2026-11-13.md", "memory/2024-01-05.md")
    assert old.score < new.score / 100


async def test_the_same_line_twice_gives_way_to_another_when_variety_is_wanted(
    tmp_path: Path, store: MemoryStore
) -> None:
    for name in ("one", "two"):
        (tmp_path / "memory" / f"{name}.md").write_text("- The zeppelin landed\n", encoding="utf-8")
    (tmp_path / "memory" / "three.md").write_text("- Zeppelin tickets cost ninety crowns a seat\n", encoding="utf-8")
    varied = MemorySettings(ranking=Ranking(mmr_lambda=0.3))
    answer = await asked(search_over(tmp_path, store, settings=varied), "zeppelin landed")
    assert answer.results[1].path == "memory/three.md"
