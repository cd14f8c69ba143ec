"""Days: those that files are about, by their names, and those that questions ask about.

A note is written on the day it tells of, or a little later; so a file is near a day that is asked about if it is of
that day, still somewhat near if it is of the ten days after it, and hardly if it came before. A date without a year is
of any year.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, timedelta
from functools import lru_cache

from msgspec import Struct

from palinurus.domain.days import find_dates

DAYS_AFTER = 10  # within which what happened is still told
DAYS_BEFORE = 3
MOST_DAYS = 10  # that are looked up one by one; a longer time is looked up by its months
MOST_MONTHS = 13

_IN_PATH = re.compile(r"(?<!\d)(\d{4})-?(\d{2})-?(\d{2})(?!\d)")
_YEAR = re.compile(r"\d{4}")


class Span(Struct, frozen=True):
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

    def in_year(self, year: int) -> Span | None:
        try:
            moved = self.first.replace(year=year)
            return Span(moved, moved + (self.last - self.first))
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
    """As a question may name it: `2026-11-15 Sunday 15 November 2026`."""
    return f"{day.isoformat()} {day:%A} {day.day} {day:%B} {day.year}"


def day_words(day: date) -> str:
    """As `words_for` asks for it."""
    return f"{day:%Y%m%d} {day:%Y%m}"


def asked_about(text: str, today: date) -> tuple[Span, ...]:
    """The days that a question names, such as "last Tuesday" or "in May"."""
    return tuple(
        Span(period.first, period.last, not found.relative and not _YEAR.search(text[found.start : found.end]))
        for found in find_dates(text, today)
        for period in found.periods
    )


def words_for(spans: Iterable[Span]) -> tuple[str, ...]:
    """Words that the passages of files of these days have, and no others."""
    words: dict[str, None] = {}
    for span in spans:
        days = (span.last - span.first).days + 1
        if days <= MOST_DAYS:
            words |= dict.fromkeys(f"{span.first + timedelta(number):%Y%m%d}" for number in range(days))
        else:
            months = {f"{span.first + timedelta(number):%Y%m}": None for number in range(0, min(days, 400), 20)}
            words |= dict.fromkeys(list(months)[:MOST_MONTHS])
    return tuple(words)


def nearness(day: date | None, spans: Iterable[Span]) -> float:
    return max((span.near(day) for span in spans), default=0.0) if day else 0.0
