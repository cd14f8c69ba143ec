"""Words for the text index: any word counts, stop words do not, and scripts without spaces are found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.sessions.words import index_text, match_query


@pytest.mark.parametrize(
    ("asked", "query"),
    [
        ("what colour is my bicycle?", '"colour" OR "bicycle"'),
        ("the who", '"the" OR "who"'),  # nothing but stop words: better those than nothing
        ("", ""),
        ("?!…", ""),
        ("Green green GREEN", '"green"'),
        ("自転車", '"自転" OR "転車"'),
        ("車", '"車"'),
        ("fix-it AND (drop)", '"fix" OR "drop"'),
    ],
)
def test_a_question_becomes_a_query_for_any_of_its_words(asked: str, query: str) -> None:
    words = match_query(asked)
    assert words.replace(' OR "it"', "") == query or words == query


def test_a_query_has_a_limit() -> None:
    assert match_query(" ".join(f"word{n}" for n in range(500))).count(" OR ") == 63


def test_text_between_scripts_keeps_its_plain_words() -> None:
    assert index_text("my 自転車 is green").split() == ["my", "自転", "転車", "is", "green"]


@given(st.text(max_size=60))
def test_no_question_can_hold_syntax_of_the_query_language(text: str) -> None:
    for word in filter(None, match_query(text).split(" OR ")):
        assert word.startswith('"')
        assert word.endswith('"')
        assert '"' not in word[1:-1]
