"""What opinions add up to."""

from __future__ import annotations

from datetime import date
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from life import COMMON, LAST, OTHER, TASTE, TASTES, Life, Phrases
from test_life import stored

from palinurus.domain.messages import NOTED_OUTSIDE
from palinurus.extensions.knowledge.beliefs import Belief, agreement, beliefs_of, changes_between, read_opinion
from palinurus.extensions.knowledge.facts import read_facts
from palinurus.extensions.knowledge.store import StoredFact

END = date(2026, 12, 31)


def opinions(notes: dict[str, list[str]]) -> list[StoredFact]:
    """Of notes by path. Names are taken as they are."""
    facts = [
        fact
        for path, lines in notes.items()
        for fact in read_facts(path, "\n".join(["## Retain", *lines])).facts
        if fact.kind == "opinion"
    ]
    return [StoredFact(number, fact, fact.entities) for number, fact in enumerate(facts)]


def believed(notes: dict[str, list[str]], on: date = END) -> list[Belief]:
    return beliefs_of(opinions(notes), on)


def note(day: str) -> str:
    return f"memory/2026-{day}.md"


TEA, COFFEE = "- O(c=0.8) @Peter: Prefers tea to coffee.", "- O(c=0.8) @Peter: Prefers coffee to tea now."


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ("Prefers tea to coffee.", "Likes tea more than coffee.", 1),
        ("Prefers tea to coffee.", "Prefers coffee to tea now.", -1),
        ("Prefers tea to coffee.", "Would rather have coffee than tea these days.", -1),
        ("Prefers tea to coffee.", "Has gone off tea and wants coffee instead.", -1),
        ("Enjoys trains more than planes.", "Has switched from trains to planes.", -1),
        ("Likes short mails.", "Does not like short mails any more.", -1),
        ("Hates short mails.", "Can't stand short mails.", 1),
        ("Favourite colour is green.", "Favourite colour is blue.", -1),
        ("Favourite colour is green.", "Favourite colour is no longer blue but green.", 1),
        ("Likes short mails.", "Likes long walks by the river.", 0),
        ("Prefers tea to coffee.", "Prefers trains to planes.", 0),
    ],
)
def test_statements_agree_exclude_each_other_or_are_about_something_else(one: str, other: str, wanted: int) -> None:
    assert agreement(read_opinion(one), read_opinion(other)) == wanted
    assert agreement(read_opinion(other), read_opinion(one)) == wanted


def test_what_several_notes_say_is_surer_and_one_note_has_one_vote() -> None:
    once = believed({note("01-01"): [TEA]})[0].confidence
    repeated = believed({note("01-01"): [TEA, "- O(c=0.8) @Peter: Likes tea more than coffee."]})[0].confidence
    twice = believed({note("01-01"): [TEA], note("01-02"): [TEA]})[0].confidence
    assert once == repeated < twice


def test_one_note_against_a_belief_makes_it_doubtful_and_two_turn_it_around() -> None:
    doubted = believed({note("01-01"): [TEA], note("02-01"): [COFFEE]})
    assert [(each.statement, each.confidence) for each in doubted] == [("Prefers tea to coffee.", 0.5)]
    turned = believed({note("01-01"): [TEA], note("02-01"): [COFFEE], note("03-01"): [COFFEE]})
    assert turned[0].statement == "Prefers coffee to tea now."
    assert turned[0].confidence > 0.5
    assert (len(turned[0].supporting), len(turned[0].contradicting)) == (2, 1)
    assert [each.is_flip for each in turned[0].steps] == [False, False, True]


def test_what_the_owner_writes_into_the_bank_counts_at_once() -> None:
    notes = {note("01-01"): [TEA], note("01-02"): [TEA], note("01-03"): [TEA]}
    notes["bank/opinions.md"] = ["- O(c=0.9) @Peter: Prefers coffee to tea. (yours, 2026-02-01)"]
    own = believed(notes)[0]
    assert (own.statement, own.confidence, own.is_by_hand) == ("Prefers coffee to tea.", 0.9, True)
    still = believed(notes | {note("03-01"): [TEA], note("03-02"): [TEA], note("03-03"): [TEA]})[0]
    assert still.statement == "Prefers coffee to tea."


def test_an_edited_line_takes_the_place_of_other_words() -> None:
    notes = {note("01-01"): ["- O @Peter: Likes short mails."]}
    edited = "- O @Peter: Wants long letters. (yours, 2026-02-01, instead of: Likes short mails.)"
    assert [each.statement for each in believed(notes | {"bank/opinions.md": [edited]})] == ["Wants long letters."]


def test_text_from_outside_has_no_vote() -> None:
    lie = f"- O(c=1.0) @Peter: Prefers gin to tea.{NOTED_OUTSIDE}"
    assert believed({note("01-01"): [lie], note("01-02"): [lie]}) == []


def test_what_changed_between_two_days_comes_with_its_reasons() -> None:
    facts = opinions({note("01-01"): [TEA], note("02-01"): [COFFEE], note("03-01"): [COFFEE]})
    changes = changes_between(facts, date(2026, 1, 15), END)
    assert [(each.before, each.statement) for each in changes] == [
        ("Prefers tea to coffee.", "Prefers coffee to tea now.")
    ]
    assert [each.source for each in changes[0].because] == ["memory/2026-02-01.md#L2", "memory/2026-03-01.md#L2"]
    assert changes_between(facts, date(2026, 4, 1), END) == []


@pytest.mark.parametrize(("seed", "phrases"), [(1, COMMON), (2, OTHER), (3, COMMON), (4, OTHER)])
async def test_over_two_years_confidence_moves_with_the_evidence(seed: int, phrases: Phrases) -> None:
    """With each statement of a preference the confidence in what it prefers rises, or that in the other thing falls."""
    life = Life(seed, phrases)
    facts = await (await stored(life)).facts_of("opinion")
    said = {each.place: each.value for each in life.statements if each.topic == TASTE}
    values = {each.fact.id: said[place] for each in facts if (place := (each.fact.path, each.fact.line)) in said}
    ids = {each.fact.text: each.fact.id for each in facts}
    right = 0
    for belief in beliefs_of(facts, LAST):
        for before, after in pairwise(each for each in belief.steps if each.fact in values):
            wanted = values[after.fact]
            then, now = (
                step.confidence if values.get(ids[step.statement]) == wanted else 1 - step.confidence
                for step in (before, after)
            )
            right += now > then
    assert right >= 0.95 * 4 * len(TASTES)  # each is stated five times


@given(st.lists(st.sampled_from([TEA, COFFEE, "- O @Peter: Likes tea more than coffee."]), max_size=12))
def test_confidence_is_a_number_between_a_half_and_one_whatever_is_said(lines: list[str]) -> None:
    notes = {note(f"01-{day:02}"): [line] for day, line in enumerate(lines, 1)}
    for each in believed(notes):
        assert 0.5 <= each.confidence <= 1
        assert each == believed(dict(reversed(notes.items())))[0]
