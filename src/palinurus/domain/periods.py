"""Stretches of days, and the arithmetic of calendars."""

from __future__ import annotations

from calendar import monthrange
from datetime import date, timedelta

from msgspec import Struct


class Period(Struct, frozen=True, order=True):
    """From a day to a day, both included."""

    first: date
    last: date
    about: bool = False  # "two months ago" means no certain day

    def __str__(self) -> str:
        first, last = self.first, self.last
        if first == last:
            told = first.isoformat()
        elif (first, last) == _ends(year_of(first.year)):
            told = f"{first.year}"
        elif (first, last) == _ends(month_of(first.year, first.month)):
            told = f"{first:%Y-%m}"
        else:
            told = f"{first.isoformat()} to {last.isoformat()}"
        return f"about {told}" if self.about else told

    @property
    def length(self) -> int:
        return (self.last - self.first).days + 1

    @property
    def days(self) -> tuple[date, ...]:
        return tuple(self.first + timedelta(n) for n in range(self.length))

    def meets(self, other: Period) -> bool:
        return self.first <= other.last and other.first <= self.last


def _ends(period: Period) -> tuple[date, date]:
    return period.first, period.last


def day_from(base: date, offset: int = 0, *, about: bool = False) -> Period:
    day = base + timedelta(offset)
    return Period(day, day, about)


def week_from(base: date, offset: int) -> Period:
    """Monday to Sunday."""
    monday = base - timedelta(base.weekday()) + timedelta(weeks=offset)
    return Period(monday, monday + timedelta(6))


def weekend_from(base: date, offset: int) -> Period:
    saturday = week_from(base, offset).first + timedelta(5)
    return Period(saturday, saturday + timedelta(1))


def month_of(year: int, month: int, *, about: bool = False) -> Period:
    return Period(date(year, month, 1), date(year, month, monthrange(year, month)[1]), about)


def month_from(base: date, offset: int, *, about: bool = False) -> Period:
    months = base.year * 12 + base.month - 1 + offset
    return month_of(months // 12, months % 12 + 1, about=about)


def year_of(year: int, *, about: bool = False) -> Period:
    return Period(date(year, 1, 1), date(year, 12, 31), about)


def weekday_from(base: date, weekday: int, step: int) -> tuple[Period, ...]:
    """The last (-1), this week's (0) or the next (1). Two where people disagree about what is the next."""
    if step == 0:
        return (day_from(week_from(base, 0).first, weekday),)
    if step < 0:
        return (day_from(base, -((base.weekday() - weekday - 1) % 7 + 1)),)
    ahead = (weekday - base.weekday() - 1) % 7 + 1
    # "Next Friday", said on a Monday, is this week's for some and the one after for others.
    both = base.weekday() + ahead < 7
    return (day_from(base, ahead), day_from(base, ahead + 7)) if both else (day_from(base, ahead),)


def named_month_from(base: date, month: int, step: int) -> Period:
    year = base.year
    if step < 0 and month >= base.month:
        year -= 1
    elif step > 0 and month <= base.month:
        year += 1
    return month_of(year, month)


def likely_year(base: date, month: int) -> int:
    """Of a month without one. What is told lies rather behind us than before us, unless it is near."""
    ahead = (month - base.month) % 12
    return base.year + (month < base.month) - (ahead > 4)
