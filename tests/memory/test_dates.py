"""Files have days, and questions ask about days."""

from __future__ import annotations

from datetime import date

import pytest

from palinurus.memory.terms import asked_about, date_in_path, day_words, nearness, words_for

TODAY = date(2026, 11, 15)


@pytest.mark.parametrize(
    ("path", "day"),
    [
        ("memory/2026-11-10.md", date(2026, 11, 10)),
        ("memory/2026-11-10-standup.md", date(2026, 11, 10)),
        ("memory/20261110.md", date(2026, 11, 10)),
        ("memory/2026-13-10.md", None),
        ("memory/2026-11-10/notes.md", None),
        ("memory/202611101.md", None),
        ("MEMORY.md", None),
    ],
)
def test_a_file_is_dated_by_its_name(path: str, day: date | None) -> None:
    assert date_in_path(path) == day


@pytest.mark.parametrize(
    ("question", "day", "near"),
    [
        ("what happened last Tuesday?", date(2026, 11, 10), 1.0),
        ("what happened last Tuesday?", date(2026, 11, 12), 0.8),  # told two days later
        ("what happened last Tuesday?", date(2026, 11, 1), 0.0),
        ("on 3 May 2023", date(2023, 5, 3), 1.0),
        ("on 3 May 2023", date(2022, 5, 3), 0.0),
        ("on May 3rd", date(2022, 5, 3), 1.0),  # of any year
        ("in June 2023", date(2023, 6, 20), 1.0),
        ("who am I", date(2026, 11, 15), 0.0),
    ],
)
def test_a_file_is_near_the_day_that_is_asked_about(question: str, day: date, near: float) -> None:
    assert nearness(day, asked_about(question, TODAY)) == pytest.approx(near)


def test_an_undated_file_is_near_no_day() -> None:
    assert nearness(None, asked_about("yesterday", TODAY)) == 0.0


@pytest.mark.parametrize("question", ["yesterday", "last week", "in October", "last month", "on 10 November 2026"])
def test_a_passage_of_that_day_has_the_word_that_is_looked_up(question: str) -> None:
    spans = asked_about(question, TODAY)
    assert set(words_for(spans)) & set(day_words(spans[0].first).split())


def test_a_question_about_a_whole_year_is_looked_up_by_few_words() -> None:
    assert len(words_for(asked_about("in 2023", TODAY))) <= 13
