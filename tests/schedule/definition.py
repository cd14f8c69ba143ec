"""When a schedule is due, from its definition: minute by minute over what the clocks of a zone show.

Written apart from the code under test, and without its library. Slow, and easy to believe.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

MINUTE_MS = 60_000
QUARTER = 15  # minutes; no zone has changed its clocks at another time for a century
DAY = 24 * 60  # minutes
RANGES = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
MONTHS, DAYS = "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC", "SUNMONTUEWEDTHUFRISAT"
FIRST_DAY = date(1970, 1, 1)


def cron_moments(expression: str, zone: str, first: int, last: int) -> list[int]:
    """All due times from one moment to another, in milliseconds. `first` is a full quarter of an hour."""
    fields = expression.upper().split()
    fields = fields if len(fields) == 6 else ["0", *fields]
    seconds, minutes, hours, days, months, weekdays = (_numbers(field, index) for index, field in enumerate(fields))
    either = not fields[3].startswith("*") and not fields[5].startswith("*")
    names_times = not any(field.startswith("*") for field in fields[:3])

    @lru_cache
    def is_day(number: int) -> bool:
        day = FIRST_DAY + timedelta(days=number)
        of_month, of_week = day.day in days, bool({day.isoweekday(), day.isoweekday() % 7} & weekdays)
        return day.month in months and (of_month or of_week if either else of_month and of_week)

    def matches(minute: int) -> bool:
        return minute % 60 in minutes and minute // 60 % 24 in hours and is_day(minute // DAY)

    found = set()
    seen = None  # the first minute that these clocks have not shown yet
    for moment, shown in _quarters(zone, first, last):
        if names_times and seen is not None and any(matches(minute) for minute in range(seen, shown)):
            found.add(moment)  # the clocks have just been put forward over it
        if shown // 60 % 24 in hours and is_day(shown // DAY):
            for ahead in range(QUARTER):
                again = seen is not None and shown + ahead < seen
                if matches(shown + ahead) and not (names_times and again):
                    found.update(moment + ahead * MINUTE_MS + second * 1000 for second in seconds)
        seen = max(seen or 0, shown + QUARTER)
    return sorted(at for at in found if first <= at <= last)


def every_moments(every: int, anchor: int, first: int, last: int) -> list[int]:
    rounds = range(max(0, (first - anchor) // every), (last - anchor) // every + 1)
    return [at for at in (anchor + number * every for number in rounds) if first <= at <= last]


def changes_of(zone: str, year: int) -> list[int]:
    """When a zone changes its clocks in a year."""
    quarters = _quarters(zone, moment(year), moment(year + 1))
    return [then for (_, before), (then, after) in pairwise(quarters) if after - before != QUARTER]


def moment(year: int, month: int = 1, day: int = 1) -> int:
    return int(datetime(year, month, day, tzinfo=UTC).timestamp() * 1000)


@lru_cache
def _quarters(zone: str, first: int, last: int) -> list[tuple[int, int]]:
    """Each quarter of an hour, and which minute since 1970 the clocks show when it begins."""
    there, found = ZoneInfo(zone), []
    for at in range(first, last + 1, QUARTER * MINUTE_MS):
        shown = datetime.fromtimestamp(at / 1000, there)
        minute = (shown.date() - FIRST_DAY).days * DAY + shown.hour * 60 + shown.minute
        found.append((at, minute))
    return found


def _numbers(field: str, index: int) -> set[int]:
    numbers: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        low, _, high = span.partition("-")
        first, last = RANGES[index]
        if span != "*":
            first = _number(low, index)
            last = _number(high, index) if high else last if step else first
        numbers.update(range(first, last + 1, int(step or 1)))
    return numbers


def _number(text: str, index: int) -> int:
    if text.isdigit():
        return int(text)
    return MONTHS.index(text) // 3 + 1 if index == 4 else DAYS.index(text) // 3
