"""Cues are tried only where one of their words is met: the weight is the same as if all had been tried."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.context import extract
from palinurus.context.extract import worth
from palinurus.extensions.migrate.ingest import facts
from palinurus.extensions.migrate.ingest.facts import kind_by_words

# Every word of every pattern, and what makes none of them match.
SOURCES = [cue.pattern.pattern for cue in extract._ALL] + [pattern.pattern for _, pattern in facts._WORDS]
LETTERS = sorted({word for source in SOURCES for word in re.findall(r"[^\W\d_]+|[^\x00-\x7f]", source)})
EXTRA = ["the", "boat", "I", "We", "we'll", "don't", "[ ]", "2026-11-16", "12.30", "$5", "3 kg", "x_must", "follow-up"]
EXTRA += ["ever", "erinnerung", "Lieblingsfarbe", "meine", "unser", "days", "Noor", "?", "calls", "me", "e\u0301"]
sentences = st.lists(st.sampled_from([*LETTERS, *EXTRA]) | st.text(max_size=3), max_size=9)


def plainly(sentence: str, by_user: bool) -> float:
    small = sentence.lower()
    found = [cue.weight for cue in extract._ALL if (by_user or not cue.by_user) and cue.pattern.search(small)]
    score = sum(found) + min(3, len(extract._NAME.findall(sentence)))
    return score * (0.5 if sentence.endswith(("?", "？")) else 1) * (1.5 if by_user else 1)


@given(sentences, st.sampled_from([" ", "", "-", " to "]), st.booleans())
def test_the_weight_is_that_of_all_cues(words: list[str], between: str, by_user: bool) -> None:
    sentence = between.join(words)
    weight = plainly(sentence, by_user)
    assert worth(sentence, by_user=by_user) == weight
    assert worth(sentence, by_user=by_user, enough=weight) == weight


@given(sentences, st.sampled_from([" ", "", "-", " to "]))
def test_the_kind_is_that_of_all_cues(words: list[str], between: str) -> None:
    sentence = between.join(words)
    small = sentence.lower().replace("’", "'")
    assert kind_by_words(sentence) == next((kind for kind, cue in facts._WORDS if cue.search(small)), None)


@pytest.mark.parametrize("source", SOURCES)
@given(st.data())
def test_whatever_a_pattern_takes_is_met_by_its_words(source: str, data: st.DataObject) -> None:
    sentence = data.draw(st.from_regex(source)).lower()
    assert worth(sentence, by_user=True) == plainly(sentence, by_user=True)
    small = sentence.replace("’", "'")
    assert kind_by_words(sentence) == next((kind for kind, cue in facts._WORDS if cue.search(small)), None)
