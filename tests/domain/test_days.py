"""What days a sentence means, counted from the day on which it was said."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.text.dates import date_of, find_dates, resolved

SATURDAY = date(2026, 11, 14)


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("yesterday", "2026-11-13"),
        ("last night", "2026-11-13"),
        ("the day before yesterday", "2026-11-12"),
        ("Tomorrow morning", "2026-11-15"),
        ("last Tuesday", "2026-11-10"),
        ("last Saturday", "2026-11-07"),
        ("this Monday", "2026-11-09"),
        ("three days ago", "2026-11-11"),
        ("two weeks ago", "about 2026-10-31"),
        ("a couple of months ago", "about 2026-09"),
        ("a year ago", "about 2025"),
        ("last week", "2026-11-02 to 2026-11-08"),
        ("last weekend", "2026-11-07 to 2026-11-08"),
        ("next month", "2026-12"),
        ("last year", "2025"),
        ("last May", "2026-05"),
        ("昨天", "2026-11-13"),
        ("大前天", "2026-11-11"),
        ("上周三", "2026-11-04"),
        ("上个月", "2026-10"),
        ("两天前", "2026-11-12"),
        ("一昨日", "2026-11-12"),
        ("先週の火曜日", "2026-11-03"),
        ("来週", "2026-11-16 to 2026-11-22"),
        ("昨年", "2025"),
    ],
)
def test_a_relative_date_is_resolved_in_its_place(said: str, means: str) -> None:
    assert resolved(f"we met {said}, all of us", SATURDAY) == f"we met {said} ({means}), all of us"


def test_where_people_disagree_both_days_are_told() -> None:
    monday = date(2026, 11, 9)
    assert resolved("next Friday", monday) == "next Friday (2026-11-13 or 2026-11-20)"


@pytest.mark.parametrize(
    "text",
    ["on Tuesday", "a few days ago", "I may go", "10 November 2026", "an hour ago", "2026-11-10", "yesterdays", ""],
)
def test_what_needs_no_explanation_or_allows_none_stays_as_it_is(text: str) -> None:
    assert resolved(text, SATURDAY) == text


def test_a_note_without_a_date_resolves_nothing() -> None:
    assert resolved("yesterday", None) == "yesterday"


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("on 10 November", "2026-11-10"),
        ("November 10, 2025", "2025-11-10"),
        ("Sept 3rd", "2026-09-03"),
        ("in May", "2026-05"),
        ("in January", "2027-01"),
        ("in 2023", "2023"),
        ("11月10日", "2026-11-10"),
        ("2023年5月", "2023-05"),
    ],
)
def test_dates_of_the_calendar_are_understood(text: str, means: str) -> None:
    assert [str(found) for found in find_dates(text, SATURDAY)] == [means]


@pytest.mark.parametrize(
    ("text", "means"), [("on Tuesday", ("2026-11-10", "2026-11-17")), ("周二", ("2026-11-10", "2026-11-17"))]
)
def test_the_tense_of_a_question_tells_which_tuesday_is_meant(text: str, means: tuple[str, str]) -> None:
    past, future = find_dates(text, SATURDAY, tense="past"), find_dates(text, SATURDAY, tense="future")
    assert (str(past[0]), str(future[0])) == means


@pytest.mark.parametrize("text", ["31 February 2026", "9999-99-99", "999 years ago", "13月40日", "0000-00-00"])
def test_days_that_do_not_exist_are_no_days(text: str) -> None:
    assert all(found.period.first.year > 0 for found in find_dates(text, date(900, 1, 1)))
    assert date_of("memory/9999-99-99.md") is None


@given(st.text(max_size=60), st.dates())
def test_any_text_on_any_day_is_resolved_without_losing_a_character(text: str, base: date) -> None:
    told = resolved(text, base)
    assert len(told) >= len(text)
    assert resolved(told, base).count("(") >= told.count("(")
