"""The words and days of texts and questions, in the form of the index.

A note is written on the day of the event or a little later; so a file is near a requested day if it is of that day,
somewhat near if it is of the ten days after it, and hardly if it is older. A date without a year matches any year.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, timedelta
from functools import lru_cache

from msgspec import Struct

from palinurus.memory.document import WordQuery
from palinurus.text.dates import find_dates
from palinurus.text.words import query_words

DAYS_AFTER = 10  # days within which an event is usually noted
DAYS_BEFORE = 3
MOST_DAYS = 10  # days that are searched one by one; a longer period is searched by months
MOST_MONTHS = 13
_IN_PATH = re.compile(r"(?<!\d)(\d{4})-?(\d{2})-?(\d{2})(?!\d)")
_YEAR = re.compile(r"\d{4}")


class DateSpan(Struct, frozen=True):
    first: date
    last: date
    any_year: bool = False

    def near(self, day: date) -> float:
        """1 on its days, less around them, 0 far away."""
        spans = [self] if not self.any_year else [self.in_year(day.year + more) for more in (-1, 0, 1)]
        return max((span.exactly_near(day) for span in spans if span), default=0.0)

    def exactly_near(self, day: date) -> float:
        if day > self.last:
            return max(0.0, 1 - (day - self.last).days / DAYS_AFTER)
        return max(0.0, 1 - (self.first - day).days / DAYS_BEFORE) if day < self.first else 1.0

    def in_year(self, year: int) -> DateSpan | None:
        try:
            moved = self.first.replace(year=year)
            return DateSpan(moved, moved + (self.last - self.first))
        except (ValueError, OverflowError):  # 29 February; the years before 1 and after 9999
            return None


@lru_cache(maxsize=10_000)
def date_in_path(path: str) -> date | None:
    """The day of a dated file: `memory/2026-11-15.md`, `2026-11-15-standup.md`, `20261115.md`."""
    match = _IN_PATH.search(path, path.rfind("/") + 1)
    if match is None:
        return None
    try:
        return date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        return None


@lru_cache(maxsize=10_000)
def spelled(day: date) -> str:
    """The spellings that a question may use: `2026-11-15 Sunday 15 November 2026`."""
    return f"{day.isoformat()} {day:%A} {day.day} {day:%B} {day.year}"


def word_query(text: str) -> WordQuery:
    """The content words of a question."""
    return WordQuery(query_words(text))


def day_words(day: date) -> str:
    """The form that `words_for` uses."""
    return f"{day:%Y%m%d} {day:%Y%m}"


def asked_about(text: str, today: date) -> tuple[DateSpan, ...]:
    """The days that a question names, such as "last Tuesday" or "in May"."""
    return tuple(
        DateSpan(period.first, period.last, not found.relative and not _YEAR.search(text[found.start : found.end]))
        for found in find_dates(text, today)
        for period in found.periods
    )


def words_for(spans: Iterable[DateSpan]) -> tuple[str, ...]:
    """Words that only passages of files of these days have."""
    words: dict[str, None] = {}
    for span in spans:
        days = (span.last - span.first).days + 1
        if days <= MOST_DAYS:
            words |= dict.fromkeys(f"{span.first + timedelta(number):%Y%m%d}" for number in range(days))
        else:
            months = {f"{span.first + timedelta(number):%Y%m}": None for number in range(0, min(days, 400), 20)}
            words |= dict.fromkeys(list(months)[:MOST_MONTHS])
    return tuple(words)


def nearness(day: date | None, spans: Iterable[DateSpan]) -> float:
    return max((span.near(day) for span in spans), default=0.0) if day else 0.0
