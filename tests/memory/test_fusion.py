"""What makes one candidate better than another."""

from __future__ import annotations

import random
from datetime import date

import pytest

from palinurus.memory.document import CandidateSet, DocumentRef, SearchCandidate
from palinurus.memory.rank import RankedList, rank
from palinurus.memory.settings import Ranking
from palinurus.memory.terms import asked_about, word_query

TODAY = date(2026, 11, 15)


def candidates(*lines: str, path: str = "memory/a.md", first: int = 1, **more: object) -> list[SearchCandidate]:
    """Lines of one file."""
    place = DocumentRef("memory", path)
    return [
        SearchCandidate(first + at, place, at + 1, at + 1, line, 0.0, 0.0, None, **more)  # type: ignore[arg-type]
        for at, line in enumerate(lines)
    ]


def ranked(question: str, found: list[SearchCandidate], *, by_vector: bool = False, **weights: float) -> RankedList:
    looked = CandidateSet(tuple(found), len(found), len(found) if by_vector else 0)
    days = asked_about(question, TODAY)
    return rank(word_query(question), looked, Ranking(**weights), by_vector=by_vector, today=TODAY, days=days)


def first(question: str, found: list[SearchCandidate], **options: float) -> str:
    return ranked(question, found, **options).ranked[0].candidate.text  # type: ignore[arg-type]


def test_the_line_with_more_of_the_words_is_better() -> None:
    assert first(
        "blue bicycle in Porto", [*candidates("a bicycle", "x", "y", "z", "a blue bicycle from Porto")]
    ).startswith("a blue")


def test_rare_words_count_more_than_common_ones() -> None:
    common = [f"the garden on day {number}" for number in range(8)]
    assert first("quince garden", candidates(*common, "rain", "rain", "a quince", "rain", "rain")) == "a quince"


def test_other_forms_of_a_word_are_that_word() -> None:
    assert first("Who was painting?", candidates("nothing here", "x", "y", "Anna paints and painted")).startswith(
        "Anna"
    )


def test_an_answer_is_found_beside_the_question_it_answers() -> None:
    talk = candidates("it is late", "how are you?", "did you find the ladder?", "behind the shed", "good", "it is late")
    order = [one.candidate.text for one in ranked("where is the ladder", talk).ranked]
    assert order[:2] == ["did you find the ladder?", "behind the shed"]


def test_lines_of_another_file_are_no_neighbours() -> None:
    one = candidates("the ladder", path="memory/a.md", first=1)
    other = candidates("rain", path="memory/b.md", first=2)
    rain = next(each for each in ranked("ladder", [*one, *other]).ranked if each.candidate.text == "rain")
    assert rain.score == 0


def test_headings_above_count_a_little() -> None:
    under = candidates("due on Friday", context="Atlas > Contract")
    elsewhere = candidates("due on Friday", path="memory/b.md", first=50)
    best = ranked("When is the Atlas contract due?", [*elsewhere, *under]).ranked[0]
    assert best.candidate.context == "Atlas > Contract"


@pytest.mark.parametrize("line", ["Anna: I went to Porto", "- **Anna**: went to Porto", "| Anna | went to Porto |"])
def test_a_line_that_begins_with_what_is_named_is_better_than_one_that_mentions_it(line: str) -> None:
    lines = candidates("Karl: tell me, Anna, who went to Porto", "x", "y", "z", line, "x", "y", "z")
    assert first("Where did Anna go? Porto?", lines) == line


def test_files_of_the_day_that_is_asked_about_are_better() -> None:
    files = [
        *candidates("- paid the plumber", path="memory/2026-11-02.md"),
        *candidates("- paid the plumber", path="memory/2026-11-10.md", first=10),
    ]
    assert ranked("who was paid last Tuesday", files).ranked[0].candidate.ref.path == "memory/2026-11-10.md"


def test_meaning_finds_what_shares_no_word() -> None:
    one = SearchCandidate(1, DocumentRef("memory", "a.md"), 1, 1, "bought a bike", 0, 0, 0.7)
    other = SearchCandidate(9, DocumentRef("memory", "a.md"), 9, 9, "rain all day", 0, 0, 0.1)
    assert ranked("purchase of a velocipede", [other, one], by_vector=True).ranked[0].candidate is one


def test_a_piece_without_a_vector_is_judged_by_its_words() -> None:
    place = DocumentRef("memory", "a.md")
    embedded = SearchCandidate(1, place, 1, 1, "rain all day", 0, 0, 0.3)
    new = SearchCandidate(9, place, 9, 9, "the blue ladder", 0, 0, None)
    assert ranked("blue ladder", [embedded, new], by_vector=True).ranked[0].candidate is new


def test_the_order_does_not_depend_on_how_the_candidates_came() -> None:
    lines = candidates(*(f"line {number} about the ladder and day {number % 3}" for number in range(30)))
    expected = [one.candidate.id for one in ranked("ladder day 2", lines).ranked]
    random.Random(1).shuffle(lines)
    assert [one.candidate.id for one in ranked("ladder day 2", lines).ranked] == expected


def test_no_candidates_are_no_results() -> None:
    assert ranked("ladder", []).ranked == []
