"""What a question is looked up by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.memory.terms import word_query
from palinurus.text.words import MAX_WORDS, index_words


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("When did Anna go to Porto?", ("anna", "go", "porto")),
        ("what is it", ("what", "is", "it")),  # nothing else to go by
        ('NEAR("a" OR b*) AND -c ^d: {e}', ("near", "b", "c", "e")),
        ("東京に行った", ("東京", "京に", "に行", "行っ", "った", "東", "京", "行")),
        ("猫", ("猫",)),
        ("ﬁne ｗｉｄｅ", ("fine", "wide")),
        ("🎉 !!! \x00", ()),
        ("Anna anna ANNA", ("anna",)),
    ],
)
def test_a_question_is_looked_up_by_the_words_that_say_what_it_is_about(question: str, words: tuple[str, ...]) -> None:
    assert word_query(question).words == words


def test_plain_text_goes_into_the_index_as_it_is() -> None:
    assert index_words("Anna's blue_bicycle") == "Anna's blue_bicycle"


def test_text_without_spaces_goes_in_as_pairs_and_single_ideographs() -> None:
    assert index_words("猫はタマ").split() == ["猫は", "はタ", "タマ", "猫"]


def test_a_question_of_one_character_finds_it_inside_longer_text() -> None:
    assert set(word_query("猫").words) <= set(index_words("黒猫が好き").split())


@given(st.text(max_size=3_000))
def test_any_text_is_a_bounded_question_without_what_an_index_would_obey(text: str) -> None:
    words = word_query(text).words
    assert len(words) <= MAX_WORDS
    assert all(character.isalnum() for word in words for character in word)
