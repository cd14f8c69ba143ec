"""The owner's own questions: read, counted, and the misses told."""

from __future__ import annotations

import pytest

from palinurus.cli.memory_eval import Case, read_cases, score_answers
from palinurus.domain.errors import BadRequest
from palinurus.memory.answer import IndexFreshness, SearchAnswer, SearchResult

FRESH = IndexFreshness("fresh", 1)


def answer(*places: tuple[str, int, int]) -> SearchAnswer:
    return SearchAnswer(tuple(SearchResult(path, start, end, 1.0, "x") for path, start, end in places), FRESH)


def test_recall_counts_any_and_all_and_names_what_was_missed() -> None:
    cases = [
        Case("one", (("a.md", 3),)),
        Case("two", (("a.md", 3), ("b.md", 9))),
        Case("three", (("c.md", 1),)),
        Case("four", (("d.md", 1), ("d.md", 2))),
    ]
    answers = [
        answer(("x.md", 1, 1), ("a.md", 2, 4)),
        answer(("a.md", 3, 3)),
        answer(("c.md", 2, 9)),
        answer(("d.md", 1, 2)),
    ]
    result = score_answers(cases, answers)
    assert (result.questions, result.any, result.all) == (4, 0.75, 0.5)
    assert result.reciprocal_rank == (0.5 + 1 + 0 + 1) / 4
    assert [miss.query for miss in result.misses] == ["two", "three"]
    assert result.misses[0].missing == ("b.md#L9",)
    assert result.misses[1].found == ("c.md#L2-L9",)


def test_questions_are_read_a_line_each() -> None:
    text = '{"query": "q", "expect": [["a.md", 3]]}\n\n{"query": "r", "expect": [["b.md", 1], ["c.md", 2]], "id": 7}\n'
    assert read_cases(text) == [Case("q", (("a.md", 3),)), Case("r", (("b.md", 1), ("c.md", 2)))]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no questions"),
        ('{"query": "q", "expect": [["a.md", 3]]}\n[1]', "line 2"),
        ('{"query": "q", "expect": [["a.md", "3"]]}', "line 1"),
        ('{"query": " ", "expect": [["a.md", 3]]}', "line 1"),
        ('{"query": "q", "expect": []}', "line 1"),
    ],
)
def test_a_line_that_is_no_question_is_named_with_an_example(text: str, said: str) -> None:
    with pytest.raises(BadRequest, match=said) as refused:
        read_cases(text)
    assert '"expect"' in refused.value.hint
