"""Patterns are found as `re` finds them, in time linear in the text."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.text.patterns import LONGEST_TEXT, LinearPatterns

ATOMS = st.sampled_from(("a", "b", ".", r"\w", r"\d", r"\s", "[ab]", "[^a]", "[a-c1]", "é", "_"))
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(("*", "+", "?", "{0,2}", "{2}", "*?"))).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
        inner.map(lambda one: rf"\b{one}"),
        inner.map(lambda one: rf"{one}\b"),
        inner.map(lambda one: f"^{one}"),
        inner.map(lambda one: rf"{one}\Z"),
    ),
    max_leaves=6,
)


@given(PATTERNS, st.text("abcAB1é _\n", max_size=12))
def test_a_pattern_is_found_exactly_where_re_finds_it(pattern: str, text: str) -> None:
    try:
        found = LinearPatterns([pattern]).found_in(text)
    except ValueError:
        assert len(pattern) > 200 or "{" in pattern
        return
    assert found is (re.search(pattern, text, re.IGNORECASE) is not None)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(a+)+$", "a" * LONGEST_TEXT + "!"),
        (r"(a|a)*b", "a" * LONGEST_TEXT),
        (r"(.*a){8}b", "a" * LONGEST_TEXT),
        (r"x.{60}y", "xa" * (LONGEST_TEXT // 2)),
        (r"(\w+\s*)+:", "word " * (LONGEST_TEXT // 5)),
    ],
)
def test_hostile_text_takes_no_longer_than_other_text(
    pattern: str, text: str, cpu_limit: Callable[[float], AbstractContextManager[None]]
) -> None:
    patterns = LinearPatterns([pattern])
    with cpu_limit(20):
        patterns.found_in(text)
        began = time.process_time()
        patterns.found_in(text)
        assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("patterns", "why"),
    [
        (["("], "not a regular expression"),
        (["(?=a)"], "looks around"),
        (["(?<!a)b"], "looks around"),
        ([r"(a)\1"], "looks around"),
        (["a{400}b{400}"], "too large"),
        (["(){4000000000}"], "too often"),
        (["a" * 201], "1 to 200 characters"),
        ([""], "1 to 200 characters"),
        (["a"] * 51, "at most 50"),
    ],
)
def test_a_pattern_without_a_bound_is_refused(patterns: list[str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        LinearPatterns(patterns)
