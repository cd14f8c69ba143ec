"""The stemmer of ranking and the stemmer of the text index are one."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from palinurus.text.words import beginning, folded, stem, words_of

ENDINGS = """
ational tional enci anci izer logi bli alli entli eli ousli ization ation ator alism iveness fulness ousness aliti
iviti biliti ical ness icate iciti ful ative alize al ance ence er ic able ible ant ement ment ent ion sion ou ism
ate iti ous ive ize s es ies sses ed eed ing ating bling izing y ly ll e
"""


def by_the_index(words: list[str]) -> list[str]:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE t USING fts5(w, tokenize = 'porter unicode61 remove_diacritics 2')")
    db.executemany("INSERT INTO t(rowid, w) VALUES (?, ?)", list(enumerate(words)))
    db.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, instance)")
    found = dict(db.execute("SELECT doc, term FROM v"))
    db.close()
    return [found[number] for number in range(len(words))]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("running", "run"),
        ("filing", "file"),
        ("activities", "activ"),
        ("relational", "relat"),
        ("happily", "happili"),
        ("agreed", "agre"),
        ("is", "is"),
        ("sky", "sky"),
        ("controlling", "control"),
    ],
)
def test_words_of_one_kind_have_one_stem(word: str, expected: str) -> None:
    assert stem(word) == expected == by_the_index([word])[0]


@example([("ay", "ed")])
@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.text("abcdeilmnorstuyzvwx", min_size=1, max_size=8), st.sampled_from(ENDINGS.split())),
        min_size=1,
        max_size=40,
    )
)
def test_every_made_up_word_is_stemmed_as_the_index_stems_it(parts: list[tuple[str, str]]) -> None:
    words = ["".join(part) for part in parts]
    assert [stem(word) for word in words] == by_the_index(words)
    assert all(word.startswith(beginning(stem(word))) for word in words)


def test_accents_and_case_do_not_make_another_word() -> None:
    words = ["Café", "naïve", "Ångström", "ÉCOLES", "señor"]
    assert [stem(folded(word)) for word in words] == by_the_index(words)
    assert words_of("Zoë's café_bar") == ["zoe", "s", "cafe", "bar"]


def test_a_word_too_long_to_be_one_stays_as_it_is() -> None:
    assert stem("a" * 100 + "ing") == "a" * 100 + "ing"
