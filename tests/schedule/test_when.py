"""Times as people say them are read right, also around changes of the clocks, and what is none is refused."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from palinurus.domain.errors import BadRequest
from palinurus.extensions.schedule.cron_job import AtSchedule, CronSchedule, EverySchedule
from palinurus.extensions.schedule.when import (
    LONGEST,
    PastTime,
    moment_words,
    parse_duration,
    parse_every,
    parse_schedule,
    parse_when,
    schedule_words,
    split_reminder,
)

BERLIN = ZoneInfo("Europe/Berlin")


def ms(*parts: int, zone: ZoneInfo = BERLIN) -> int:
    return round(datetime(*parts, tzinfo=zone).timestamp() * 1000)  # type: ignore[arg-type,misc]


NOW = ms(2026, 11, 18, 14, 30)  # a Wednesday


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("in 20 minutes", "Wed 2026-11-18 14:50"),
        ("20m", "Wed 2026-11-18 14:50"),
        ("+2h", "Wed 2026-11-18 16:30"),
        ("in two minutes", "Wed 2026-11-18 14:32"),
        ("In Two Minutes", "Wed 2026-11-18 14:32"),
        ("in an hour", "Wed 2026-11-18 15:30"),
        ("in half an hour", "Wed 2026-11-18 15:00"),
        ("in 1 hour and 5 minutes", "Wed 2026-11-18 15:35"),
        ("1h30m", "Wed 2026-11-18 16:00"),
        ("two hours from now", "Wed 2026-11-18 16:30"),
        ("in 90 seconds", "Wed 2026-11-18 14:31:30"),
        ("in 2 days", "Fri 2026-11-20 14:30"),
        ("in a couple of weeks", "Wed 2026-12-02 14:30"),
        ("tomorrow at 9", "Thu 2026-11-19 09:00"),
        ("tomorrow 9:30", "Thu 2026-11-19 09:30"),
        ("9.30 tomorrow", "Thu 2026-11-19 09:30"),
        ("tomorrow", "Thu 2026-11-19 09:00"),
        ("tomorrow evening", "Thu 2026-11-19 19:00"),
        ("tomorrow at 7 in the evening", "Thu 2026-11-19 19:00"),
        ("noon tomorrow", "Thu 2026-11-19 12:00"),
        ("day after tomorrow at 8", "Fri 2026-11-20 08:00"),
        ("tonight", "Wed 2026-11-18 20:00"),
        ("today at 17:00", "Wed 2026-11-18 17:00"),
        ("at 5pm", "Wed 2026-11-18 17:00"),
        ("5 p.m.", "Wed 2026-11-18 17:00"),
        ("at 12am", "Thu 2026-11-19 00:00"),
        ("at noon", "Thu 2026-11-19 12:00"),
        ("at 9", "Thu 2026-11-19 09:00"),
        ("monday at 9", "Mon 2026-11-23 09:00"),
        ("on Monday", "Mon 2026-11-23 09:00"),
        ("wednesday at 15", "Wed 2026-11-18 15:00"),
        ("wednesday at 9", "Wed 2026-11-25 09:00"),
        ("next friday at 10", "Fri 2026-11-20 10:00"),
        ("on 2026-12-01 at 9", "Tue 2026-12-01 09:00"),
        ("1 May at 8", "Sat 2027-05-01 08:00"),
        ("December 24th at 18:00", "Thu 2026-12-24 18:00"),
        ("2026-12-01T09:00", "Tue 2026-12-01 09:00"),
        ("2026-12-01 09:00", "Tue 2026-12-01 09:00"),
        ("2026-12-01T09:00Z", "Tue 2026-12-01 10:00"),
        ("2026-12-01T09:00:00+05:30", "Tue 2026-12-01 04:30"),
        ("明天 9:00", "Thu 2026-11-19 09:00"),
    ],
)
def test_a_moment_is_read_as_it_is_said(said: str, meant: str) -> None:
    assert moment_words(parse_when(said, NOW, BERLIN), BERLIN) == meant


@pytest.mark.parametrize(
    "said",
    ["", "soon", "5", "in 5", "on 9", "at 25", "at 9:75", "tomorrow at 13pm", "in march", "in 9999999999 days",
     "every day", "9 and 10", "2026-13-40", "tomorrow or monday at 9", "1h m", "in", "x" * 5000],
)  # fmt: skip
def test_what_is_no_moment_is_refused_with_examples(said: str) -> None:
    with pytest.raises(BadRequest, match="for example"):
        parse_when(said, NOW, BERLIN)


@pytest.mark.parametrize("said", ["yesterday at 9", "today at 9", "2020-01-01T00:00", "0m", "in 0 seconds"])
def test_a_moment_that_has_passed_is_refused_as_such(said: str) -> None:
    with pytest.raises(PastTime, match="has passed"):
        parse_when(said, NOW, BERLIN)


@pytest.mark.parametrize(
    ("now", "said", "utc"),
    [
        # The clocks go forward at 02:00 on 29 March 2026, and back at 03:00 on 25 October.
        (ms(2026, 3, 28, 12), "tomorrow at 2:30", "2026-03-29T01:30:00"),  # there is no 2:30: it is 3:30
        (ms(2026, 3, 28, 12), "tomorrow at 9", "2026-03-29T07:00:00"),
        (ms(2026, 3, 28, 12), "in 1 day", "2026-03-29T10:00:00"),  # the same hour, 23 hours later
        (ms(2026, 3, 28, 12), "in 24 hours", "2026-03-29T11:00:00"),
        (ms(2026, 10, 24, 12), "tomorrow at 2:30", "2026-10-25T00:30:00"),  # the first of two
        (ms(2026, 10, 24, 12), "in 1 day", "2026-10-25T11:00:00"),
        (ms(2026, 10, 24, 12), "2026-10-25T02:30+01:00", "2026-10-25T01:30:00"),
    ],
)
def test_around_a_change_of_the_clocks_days_keep_their_hour_and_hours_their_length(
    now: int, said: str, utc: str
) -> None:
    moment = datetime.fromtimestamp(parse_when(said, now, BERLIN) / 1000, UTC)
    assert moment.replace(tzinfo=None).isoformat() == utc


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("30m", 1800), ("1h30m", 5400), ("90 seconds", 90), ("day", 86400), ("2 weeks", 1209600), ("0m", 0),
     ("an hour", 3600), ("1.5h", 5400), ("1h, 2m and 3s", 3723)],
)  # fmt: skip
def test_a_length_of_time_is_read(said: str, seconds: int) -> None:
    assert parse_duration(said) == seconds * 1000


@pytest.mark.parametrize("said", ["", "5", "m30", "soon", "-5m", "5 parsecs", "1h m", "3 months"])
def test_what_is_no_length_of_time_is_refused(said: str) -> None:
    with pytest.raises(BadRequest, match="not a length of time"):
        parse_duration(said)


@pytest.mark.parametrize(
    ("said", "schedule", "words"),
    [
        ("every 2 hours", EverySchedule(7_200_000, NOW), "every 2 hours"),
        ("every day", EverySchedule(86_400_000, NOW), "every day"),
        ("90m", EverySchedule(5_400_000, NOW), "every 1 hour 30 minutes"),
        ("hourly", EverySchedule(3_600_000, NOW), "every hour"),
        ("weekday at 8", CronSchedule("0 8 * * 1-5", stagger_ms=0), "at 08:00 on Monday through Friday"),
        ("every day at 9am", CronSchedule("0 9 * * *", stagger_ms=0), "at 09:00 every day"),
        ("every morning", CronSchedule("0 9 * * *", stagger_ms=0), "at 09:00 every day"),
        ("every mon and fri at 17:30", CronSchedule("30 17 * * 1,5", stagger_ms=0), "at 17:30 on Monday and Friday"),
        ("sat, sun at noon", CronSchedule("0 12 * * 6,0", stagger_ms=0), "at 12:00 on Saturday and Sunday"),
    ],
)  # fmt: skip
def test_an_interval_is_read_and_said_back(said: str, schedule: EverySchedule | CronSchedule, words: str) -> None:
    assert parse_every(said, NOW, BERLIN) == schedule
    assert schedule_words(schedule, BERLIN) == words


@pytest.mark.parametrize("said", ["fortnight", "0m", "every", "every weekday", "day at 25", "", "every blue moon"])
def test_what_is_no_interval_is_refused(said: str) -> None:
    with pytest.raises(BadRequest):
        parse_every(said, NOW, BERLIN)


@pytest.mark.parametrize(
    ("said", "schedule"),
    [
        ("tomorrow at 9", AtSchedule("2026-11-19T09:00:00+01:00")),
        ("every 30 minutes", EverySchedule(1_800_000, NOW)),
        ("0 8 * * 1-5", CronSchedule("0 8 * * 1-5")),
        ("*/10 * * * * *", CronSchedule("*/10 * * * * *")),
    ],
)
def test_a_schedule_is_once_again_and_again_or_an_expression(
    said: str, schedule: AtSchedule | EverySchedule | CronSchedule
) -> None:
    assert parse_schedule(said, NOW, BERLIN) == schedule


@pytest.mark.parametrize(
    ("said", "when", "what"),
    [
        ("me tomorrow at 9 to call Ann", "2026-11-19T09:00:00+01:00", "call Ann"),
        ("in 20 minutes stretch", "2026-11-18T14:50:00+01:00", "stretch"),
        ("me to stretch in two minutes", "2026-11-18T14:32:00+01:00", "stretch"),
        ("me at 5pm to call 3 people in 2 rooms", "2026-11-18T17:00:00+01:00", "call 3 people in 2 rooms"),
        ("me to buy milk tomorrow", "2026-11-19T09:00:00+01:00", "buy milk"),
        ("me on monday to read 2 books", "2026-11-23T09:00:00+01:00", "read 2 books"),
        ("me to call Mum at 17:00", "2026-11-18T17:00:00+01:00", "call Mum"),
        ("me in 2 hours: the  oven", "2026-11-18T16:30:00+01:00", "the oven"),
    ],
)
def test_a_reminder_is_split_into_when_and_what(said: str, when: str, what: str) -> None:
    assert split_reminder(said, NOW, BERLIN) == (AtSchedule(when), what)


def test_a_reminder_may_come_again_and_again() -> None:
    schedule, what = split_reminder("me every weekday at 8 to drink water", NOW, BERLIN)
    assert (schedule, what) == (CronSchedule("0 8 * * 1-5", stagger_ms=0), "drink water")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("me to read chapter 5", "no time was found"),
        ("stretch", "no time was found"),
        ("", "no time was found"),
        ("me in 5 minutes", "nothing was said"),
        ("me today at 9 to call Ann", "has passed"),
    ],
)
def test_a_reminder_without_a_time_or_a_text_says_what_is_missing(said: str, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        split_reminder(said, NOW, BERLIN)


def test_a_long_text_of_near_times_takes_no_longer_than_its_length() -> None:
    words = "at in 5 on by and a half " * 20_000
    began = time.process_time()
    with pytest.raises(BadRequest):
        split_reminder(words, NOW, BERLIN)
    for said in ("1h" * 45, "a couple of " * 8, "1" * 99, ":" * 99):
        with pytest.raises(BadRequest):
            parse_when(said + "!" * (LONGEST - len(said)), NOW, BERLIN)
    assert time.process_time() - began < 20  # minutes, if it were not linear


def test_a_moment_is_a_full_second_and_never_too_early() -> None:
    at = parse_when("in 2 seconds", NOW + 1, BERLIN)
    assert at % 1000 == 0
    assert timedelta(seconds=2) <= timedelta(milliseconds=at - NOW - 1) < timedelta(seconds=3)
