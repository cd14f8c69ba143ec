"""Facts as people write them into markdown, and what is derived from names."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.messages import NOTED_OUTSIDE, OUTSIDE_MARK, Origin
from palinurus.extensions.knowledge.entities import Declaration, NamedIn, likeness_of, resolve_names
from palinurus.extensions.knowledge.facts import Fact, read_facts
from palinurus.text.fact_lines import KINDS, LETTERS, FactKind, NotedFact, fact_line, mentionable, mentions_in

NOTE = """# 2025-11-27

- W @Nobody: stands in no section
## Retain
- W @Peter: Is in Marrakech (Nov 27–Dec 1, 2025) for Andy's birthday.
- B @warelay: I fixed the crash by wrapping handlers
  in try/catch.
- O(c=0.95) @Peter @The-Castle: Prefers concise replies, says @Andy's sister.
* S @Peter, Was away yesterday.
- a plain bullet, mail ann@example.org
### more of it
- W: still inside
```
- W: code
```
## Other
- W: outside
"""


def read(text: str, path: str = "memory/2025-11-27.md") -> tuple[Fact, ...]:
    return read_facts(path, text).facts


def test_bullets_of_retain_sections_are_facts_and_nothing_else_is() -> None:
    facts = read(NOTE)
    assert [(each.kind, each.entities, each.line, each.last_line) for each in facts] == [
        ("world", ("Peter",), 5, 5),
        ("experience", ("warelay",), 6, 7),
        ("opinion", ("Peter", "The Castle", "Andy"), 8, 8),
        ("observation", ("Peter",), 9, 9),
        ("world", (), 10, 10),
        ("world", (), 12, 12),
    ]
    assert facts[1].text == "I fixed the crash by wrapping handlers in try/catch."
    assert facts[2].confidence == 0.95
    assert {each.said_on for each in facts} == {"2025-11-27"}


def test_a_range_stays_a_range_and_yesterday_is_counted_from_the_note() -> None:
    facts = read(NOTE)
    assert (facts[0].first_day, facts[0].last_day) == ("2025-11-27", "2025-12-01")
    assert (facts[3].first_day, facts[3].last_day) == ("2025-11-26", "2025-11-26")
    assert facts[2].first_day == ""


def test_every_bullet_of_a_page_of_the_bank_is_a_fact() -> None:
    assert [each.text for each in read("# Opinions\n\n- O(c=0.5): Tea.\n", "bank/opinions.md")] == ["Tea."]


@pytest.mark.parametrize(
    ("bullet", "why"),
    [
        ("- O(c=1.7): x y", "a number from 0 to 1, not 1.7"),
        ("- O(c=much): x y", "a number from 0 to 1, not much"),
        ("- W(c=0.5): x y", "only an opinion has a confidence"),
        (f"- W: {'x ' * 3000}", "at most 4,000 characters"),
    ],
)
def test_a_bullet_that_is_no_fact_is_told_with_its_line(bullet: str, why: str) -> None:
    reading = read_facts("memory/2025-11-27.md", f"## Retain\n{bullet}\n- W: fine\n")
    assert [each.text for each in reading.facts] == ["fine"]
    [trouble] = reading.troubles
    assert trouble.line == 2
    assert why in trouble.why


def test_a_line_that_a_turn_noted_after_reading_the_web_is_of_outside_origin() -> None:
    [fact] = read(f"## Retain\n- W @Bank: Has a new number.{NOTED_OUTSIDE}\n")
    assert (fact.origin, fact.text) == (Origin.OUTSIDE, "Has a new number.")


def test_a_fact_is_the_same_when_its_line_moves() -> None:
    before = {each.id for each in read(NOTE)}
    assert {each.id for each in read(NOTE.replace("## Retain\n", "## Retain\n\nSome words.\n\n"))} == before


WORDS = (
    st.text(st.sampled_from("abcdefgh äö.,!?"), min_size=1)
    .map(lambda text: " ".join(text.split()))
    .filter(lambda text: any(map(str.isalnum, text)))
)


@given(
    st.sampled_from([*KINDS.values()]), WORDS, st.lists(st.sampled_from(["Peter", "The Castle", "Ann-B"]), unique=True)
)
def test_a_fact_that_is_written_is_read_again(kind: str, text: str, names: list[str]) -> None:
    line = fact_line(kind, text, tuple(names))  # type: ignore[arg-type]
    [fact] = read(f"## Retain\n{line}\n")
    assert (fact.kind, fact.text) == (kind, text)
    assert fact.entities == tuple(name.replace("-", " ") for name in names)


DAY = date(2026, 3, 1)


def test_a_short_name_in_the_same_company_is_the_same_person() -> None:
    together = ("Andy", "warelay")
    listed, merges = resolve_names(
        [NamedIn("Peter Steinberger", DAY, together), NamedIn("Peter", DAY, together), NamedIn("peter", DAY)]
    )
    assert set(listed.values()) == {"Peter Steinberger"}
    assert [(each.name, each.into) for each in merges] == [("Peter", "Peter Steinberger")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Anna Weber", "Hanna Weber"),
        ("Paul", "Paula"),
        ("Martin", "Martina"),
        ("Version 2", "Version 3"),
        ("Peter Smith", "Peter Jones"),
        ("Tom", "Thea"),
    ],
)
def test_names_of_others_stay_apart_whatever_company_they_keep(one: str, other: str) -> None:
    together = ("Andy", "warelay")
    listed, merges = resolve_names([NamedIn(one, DAY, together), NamedIn(other, DAY, together)])
    assert listed == {one: one, other: other}
    assert merges == ()


def test_names_that_are_seldom_near_each_other_stay_apart_until_the_owner_says_otherwise() -> None:
    mentions = [NamedIn("Peter Steinberger", DAY, ("Andy",)), NamedIn("Peter", DAY + timedelta(100), ("Eva",))]
    assert len(set(resolve_names(mentions)[0].values())) == 2
    listed, _ = resolve_names(mentions, [Declaration("Peter", same_as="Peter Steinberger")])
    assert set(listed.values()) == {"Peter Steinberger"}
    near = [NamedIn("Peter Steinberger", DAY, ("Andy",)), NamedIn("Peter", DAY, ("Andy",))]
    assert len(set(resolve_names(near)[0].values())) == 1
    assert len(set(resolve_names(near, [Declaration("Peter", apart_from="Peter Steinberger")])[0].values())) == 2


@given(
    st.text(min_size=1, max_size=80)
    .map(lambda text: " ".join(text.split()).lstrip(":@ "))
    .filter(lambda text: any(map(str.isalnum, text)) and OUTSIDE_MARK not in text),
    st.sampled_from(list(LETTERS)),
    st.lists(st.sampled_from(["Dr. Weber", "Anna-Maria", "O'Neil", "東京", "a@b", "", "x, y", "A B"]), max_size=4),
)
def test_a_noted_fact_reads_back_as_it_was(text: str, kind: FactKind, names: list[str]) -> None:
    noted = NotedFact(text, kind, mentionable(names), "2025-11-15")
    (fact,) = read_facts("memory/2025-11-15.md", f"## Retain\n\n{noted.line}\n").facts
    assert (fact.kind, fact.text, fact.said_on) == (kind, text, noted.day)
    assert fact.entities == tuple(dict.fromkeys((*noted.entities, *mentions_in(text))))


def test_names_with_other_numbers_are_not_compared() -> None:
    likeness_of.cache_clear()
    names = [f"Ticket {number}" for number in range(400)]
    listed, _ = resolve_names([NamedIn(name) for name in names])
    assert listed == {name: name for name in names}
    assert likeness_of.cache_info().misses <= len(names)
