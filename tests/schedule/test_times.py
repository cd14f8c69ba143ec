"""When schedules are due: as their definition says, in every zone and over every change of the clocks."""

from __future__ import annotations

from datetime import UTC
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from definition import MINUTE_MS, changes_of, cron_moments, every_moments, moment
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.errors import BadRequest
from palinurus.extensions.schedule.cron_job import AtSchedule, CronSchedule, EverySchedule, Schedule
from palinurus.extensions.schedule.times import due_times, expression_times, iso_time, moment_of, next_time, stagger_of

DAY_MS = 24 * 60 * MINUTE_MS
CHANGING = (
    ("Europe/Berlin", 2026),
    ("America/New_York", 2026),
    ("Australia/Lord_Howe", 2026),  # by half an hour
    ("America/Sao_Paulo", 2018),  # at midnight
    ("Africa/Cairo", 2026),  # at midnight
)
STEADY = (("Asia/Kolkata", 2026), ("UTC", 2026))
SELDOM = (
    "0 8 * * 1-5",
    "30 2 * * *",
    "0 0 1,15 * MON",
    "15 1 */5 * 0",
    "30 0 29 2 *",
    "0,30 2 1-7 MAR,oct,nov *",
    "0 30 2 * * SUN",
)
EVEN = range(2, 24, 2)
OFTEN = (
    "*/15 * * * *",
    "0 */3 * * *",
    "15,45 1-3 * * *",
    "*/30 2 * * *",
    "*/20 0 * * 0",
    "0 2,3 * * *",
    "5 * * * *",
    "30 30 0-3 * * *",
    "*/40 59 1 * * *",
    "0 0/30 0,2 * * *",
    "10 */10 2 * * *",
)


def due_between(expression: str, zone: str, first: int, last: int) -> list[int]:
    return list(takewhile(lambda at: at <= last, expression_times(expression, first - 1, ZoneInfo(zone))))


@pytest.mark.parametrize(("zone", "year"), CHANGING + STEADY)
@pytest.mark.parametrize("expression", SELDOM)
def test_a_cron_expression_is_due_all_year_as_its_definition_says(expression: str, zone: str, year: int) -> None:
    first, last = moment(year), moment(year + 1)
    assert due_between(expression, zone, first, last) == cron_moments(expression, zone, first, last)


@pytest.mark.parametrize(("zone", "year"), CHANGING)
@pytest.mark.parametrize("expression", OFTEN)
def test_one_that_is_often_due_is_so_while_the_clocks_change(expression: str, zone: str, year: int) -> None:
    changes = changes_of(zone, year)
    assert len(changes) == 2
    for change in changes:
        first, last = change - 2 * DAY_MS, change + 2 * DAY_MS
        assert due_between(expression, zone, first, last) == cron_moments(expression, zone, first, last)


@pytest.mark.parametrize(
    ("expression", "day", "due"),
    [
        # 2026-03-29: clocks leave out the hour from 2 to 3. 2026-10-25: they show it twice.
        ("30 2 * * *", "2026-03-29", ["03:00+02:00"]),
        ("30 2 * * *", "2026-10-25", ["02:30+02:00"]),
        ("0 30 2 * * *", "2026-03-29", ["03:00+02:00"]),
        ("0 30 2 * * *", "2026-10-25", ["02:30+02:00"]),
        ("0,30 2,3 * * *", "2026-03-29", ["03:00+02:00", "03:30+02:00"]),
        ("*/30 2 * * *", "2026-03-29", []),
        ("*/30 2 * * *", "2026-10-25", ["02:00+02:00", "02:30+02:00", "02:00+01:00", "02:30+01:00"]),
        ("30 1-3/1 * * *", "2026-10-25", ["01:30+02:00", "02:30+02:00", "03:30+01:00"]),
        ("30 */2 25 * *", "2026-10-25", ["00:30+02:00", "02:30+02:00"] + [f"{hour:02}:30+01:00" for hour in EVEN]),
    ],
)
def test_what_is_due_where_clocks_change_is_what_the_docs_say(expression: str, day: str, due: list[str]) -> None:
    zone = ZoneInfo("Europe/Berlin")
    first = moment_of(day, zone)
    times = due_between(expression, "Europe/Berlin", first, first + 25 * 60 * MINUTE_MS)
    told = [iso_time(at, zone) for at in times]
    assert [f"{each[11:16]}{each[19:]}" for each in told if each.startswith(day)] == due


# -- what holds for every schedule --

ZONES = (*(zone for zone, _ in CHANGING + STEADY), "Asia/Kathmandu", "America/St_Johns")


def field(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    span = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    steps = st.integers(2, 7).map(lambda step: f"*/{step}")
    some = st.lists(number, min_size=2, max_size=4).map(lambda many: ",".join(map(str, many)))
    return st.one_of(st.just("*"), number.map(str), span, steps, some)


def expressions() -> st.SearchStrategy[str]:
    five = (field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 7))
    seconds = st.sampled_from(("0", "30", "*/20", "5,55"))
    return st.one_of(st.tuples(*five), st.tuples(seconds, *five)).map(" ".join)


moments = st.integers(moment(2018), moment(2027))
schedules: st.SearchStrategy[Schedule] = st.one_of(
    moments.map(lambda at: AtSchedule(iso_time(at))),
    st.builds(EverySchedule, st.integers(1000, 10**10), moments),
    st.builds(CronSchedule, expressions(), st.sampled_from(ZONES), st.sampled_from((None, 0, 999, 60_000, 10**7))),
)


@given(schedules, moments, st.text(max_size=8))
def test_due_times_are_in_order_after_the_moment_and_none_is_left_out(schedule: Schedule, after: int, job: str) -> None:
    times = list(islice(due_times(schedule, after, UTC, job), 12))
    assert times == sorted(set(times))
    assert not times or times[0] > after
    for one, other in zip([after, *times], times, strict=False):
        for between in {one, (one + other) // 2, other - 1}:
            assert next_time(schedule, between, UTC, job) == other


@given(expressions(), st.sampled_from(CHANGING), st.integers(0, 1), st.integers(-3, 0))
def test_any_expression_is_due_while_clocks_change_as_its_definition_says(
    expression: str, where: tuple[str, int], change: int, days: int
) -> None:
    zone, year = where
    first = changes_of(zone, year)[change] + days * DAY_MS
    expected = cron_moments(expression, zone, first, first + 3 * DAY_MS)
    assert due_between(expression, zone, first, first + 3 * DAY_MS) == expected


@given(st.integers(1000, 10**9), moments, moments)
def test_what_is_due_at_intervals_is_counted_from_its_anchor(every: int, anchor: int, after: int) -> None:
    times = list(islice(due_times(EverySchedule(every, anchor), after, UTC), 5))
    assert times == every_moments(every, anchor, after + 1, max(after, anchor) + 6 * every)[:5]


@given(expressions(), st.sampled_from(ZONES), st.integers(1, 10**7), moments, st.text(min_size=1, max_size=20))
def test_a_job_is_late_by_the_same_each_time_and_by_less_than_its_limit(
    expression: str, zone: str, limit: int, after: int, job: str
) -> None:
    schedule = CronSchedule(expression, zone, limit)
    stagger = stagger_of(schedule, job)
    assert 0 <= stagger < limit
    exact = islice(due_times(CronSchedule(expression, zone, 0), after - stagger, UTC, job), 5)
    assert list(islice(due_times(schedule, after, UTC, job), 5)) == [at + stagger for at in exact]


def test_only_full_hours_are_spread_and_not_to_the_same_moment() -> None:
    def staggers(expression: str, limit: int | None = None) -> set[int]:
        return {stagger_of(CronSchedule(expression, "", limit), f"job-{number}") for number in range(100)}

    assert len(staggers("0 * * * *")) > 50
    assert len(staggers("0 0 9 * * *")) > 50
    assert staggers("30 9 * * *") == staggers("5 0 9 * * *") == staggers("0 9 * * *", 0) == {0}
    assert staggers("0 9 * * *", -5000) == {0}


@pytest.mark.parametrize("expression", ["", "* * * *", "61 * * * *", "0 0 31 2 *", "a b c d e", "* * * * * * *"])
def test_what_is_no_expression_is_told(expression: str) -> None:
    with pytest.raises(BadRequest, match="is not a cron expression"):
        next_time(CronSchedule(expression), moment(2026), UTC)


def test_an_interval_under_a_second_is_told() -> None:
    with pytest.raises(BadRequest, match="shorter than a second"):
        next_time(EverySchedule(999), 0, UTC)
