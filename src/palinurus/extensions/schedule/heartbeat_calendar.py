"""Events of a calendar file (iCalendar) that begin within a window: what a heartbeat looks at without a model. Pure.

Repeated events follow FREQ, INTERVAL, COUNT, UNTIL, BYDAY, BYMONTHDAY, BYMONTH and EXDATE; one whose rule says more
counts at its first time only. Cancelled events do not count, and those of whole days begin at midnight.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from math import inf

from msgspec import Struct

from palinurus.config.agents import known_zone

DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
RULES = frozenset(["FREQ", "INTERVAL", "COUNT", "UNTIL", "BYDAY", "BYMONTHDAY", "BYMONTH", "WKST"])
_WEEKDAY = re.compile(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_STAMP = re.compile(r"(\d{4})(\d{2})(\d{2})(?:T(\d{2})(\d{2})(\d{2})(Z?))?")


class CalendarEvent(Struct, frozen=True):
    """When it begins; what it says stays in its file."""

    start: datetime  # with its zone
    rule: dict[str, str] = {}
    left_out: frozenset[datetime] = frozenset()

    def first_between(self, since: datetime, until: datetime) -> datetime | None:
        """The first time at which it begins, after the one moment and up to the other."""
        zone, last = self.start.tzinfo, until.astimezone(self.start.tzinfo).date()
        day = max(since.astimezone(zone).date(), self.start.date())
        while day <= last:
            at = datetime.combine(day, self.start.timetz())
            if since < at <= until and self._is_on(day) and at not in self.left_out:
                return at
            day += timedelta(1)
        return None

    def _is_on(self, day: date) -> bool:
        if day == self.start.date() or not self.rule:
            return day == self.start.date()
        if self.rule.keys() - RULES:
            return False
        if (until := _stamp(self.rule.get("UNTIL", ""), self.start.tzinfo or UTC)) is not None:
            return datetime.combine(day, self.start.timetz()) <= until or day == until.date()
        periods = self._periods_until(day)
        if periods is None or not self._is_named(day, self.rule["FREQ"]):
            return False
        count = _number(self.rule, "COUNT", 0)
        return not count or self._number_of(day, periods) <= count

    def _periods_until(self, day: date) -> int | None:
        """How often the rule's interval has passed; None: it is not over on this day."""
        first, step = self.start.date(), max(1, _number(self.rule, "INTERVAL", 1))
        months = (day.year - first.year) * 12 + day.month - first.month
        weeks = (day - timedelta(day.weekday()) - (first - timedelta(first.weekday()))).days // 7
        passed = {"DAILY": (day - first).days, "WEEKLY": weeks, "MONTHLY": months, "YEARLY": day.year - first.year}
        found = passed.get(self.rule.get("FREQ", ""))
        return None if found is None or found % step else found // step

    def _number_of(self, day: date, periods: int) -> float:
        """Which of its times is on this day, counted from 1; more than any where several times in a period would have
        to be counted, as nobody may have to count through years."""
        if self.rule["FREQ"] == "WEEKLY":
            first = self.start.weekday()
            named = {DAYS.index(each) for each in self.rule.get("BYDAY", DAYS[first]).split(",") if each in DAYS}
            in_this_week = sum(each <= day.weekday() for each in named)
            in_the_first = sum(each >= first for each in named)
            return in_the_first + (periods - 1) * len(named) + in_this_week
        several = any("," in self.rule.get(name, "") for name in ("BYDAY", "BYMONTHDAY", "BYMONTH"))
        is_uneven = self.rule["FREQ"] == "DAILY" and self.rule.keys() & {"BYDAY", "BYMONTHDAY", "BYMONTH"}
        return inf if several or is_uneven else periods + 1

    def _is_named(self, day: date, frequency: str) -> bool:
        """Whether the rule names this day; where it names none: the weekday, day or date of the first time."""
        first, months = self.start.date(), self.rule.get("BYMONTH")
        by_day, by_number = self.rule.get("BYDAY"), self.rule.get("BYMONTHDAY")
        if months is not None and str(day.month) not in months.split(","):
            return False
        if frequency == "YEARLY" and months is None and day.month != first.month:
            return False
        if by_number is not None and not {str(day.day), str(day.day - monthrange(day.year, day.month)[1] - 1)} & {
            *by_number.split(",")
        }:
            return False
        if by_day is not None:
            return any(
                _is_weekday(day, *found.groups("")) for found in map(_WEEKDAY.fullmatch, by_day.split(",")) if found
            )
        if by_number is not None or frequency == "DAILY":
            return True
        return day.weekday() == first.weekday() if frequency == "WEEKLY" else day.day == first.day


def _is_weekday(day: date, which: str, name: str) -> bool:
    """`which`: the second of its kind in the month, or counted from its end; empty: each."""
    if DAYS[day.weekday()] != name:
        return False
    from_end = (monthrange(day.year, day.month)[1] - day.day) // 7 + 1
    return which in ("", str((day.day - 1) // 7 + 1), f"+{(day.day - 1) // 7 + 1}", f"-{from_end}")


def _number(rule: dict[str, str], name: str, default: int) -> int:
    said = rule.get(name, "")
    return int(said) if said.isdecimal() and len(said) < 6 else default


def read_events(text: str, zone: tzinfo) -> Iterator[CalendarEvent]:
    """`zone`: of times that name none, or one that is unknown."""
    event: list[tuple[str, str, str]] | None = None
    for line in _unfolded(text):
        head, _, value = line.partition(":")
        name = head.upper().partition(";")[0]
        if (name, value.strip().upper()) == ("BEGIN", "VEVENT"):
            event = []
        elif (name, value.strip().upper()) == ("END", "VEVENT"):
            if event is not None and (made := _event(event, zone)) is not None:
                yield made
            event = None
        elif event is not None and name in ("DTSTART", "RRULE", "EXDATE", "STATUS"):
            event.append((name, head[len(name) + 1 :], value.strip()))


def _unfolded(text: str) -> Iterator[str]:
    parts: list[str] = []
    for line in text.splitlines():
        if line[:1] in (" ", "\t"):
            parts.append(line[1:])
            continue
        yield "".join(parts)
        parts = [line]
    yield "".join(parts)


def _event(fields: list[tuple[str, str, str]], zone: tzinfo) -> CalendarEvent | None:
    said = {name: (parameters, value) for name, parameters, value in fields}
    parameters, value = said.get("DTSTART", ("", ""))
    start = _stamp(value, _zone_of(parameters, zone))
    if start is None or said.get("STATUS", ("", ""))[1].upper() == "CANCELLED":
        return None
    pairs = (part.partition("=") for part in said.get("RRULE", ("", ""))[1].upper().split(";") if part)
    left_out = (_stamp(each, _zone_of(own, zone)) for name, own, each in _listed(fields) if name == "EXDATE")
    return CalendarEvent(start, {name: given for name, _, given in pairs}, frozenset(each for each in left_out if each))


def _listed(fields: list[tuple[str, str, str]]) -> Iterator[tuple[str, str, str]]:
    return ((name, parameters, each) for name, parameters, value in fields for each in value.split(","))


def _zone_of(parameters: str, zone: tzinfo) -> tzinfo:
    found = re.search(r"TZID=\"?([^;:\"]+)", parameters, re.IGNORECASE)
    return (known_zone(found[1]) if found else None) or zone


def _stamp(value: str, zone: tzinfo) -> datetime | None:
    found = _STAMP.fullmatch(value)
    if found is None:
        return None
    year, month, day, *rest = found.groups()
    hour, minute, second, utc = (each or "0" for each in rest)
    try:
        at = time(int(hour), int(minute), min(int(second), 59), tzinfo=UTC if utc == "Z" else zone)
        return datetime.combine(date(int(year), int(month), int(day)), at)
    except ValueError:
        return None


def events_between(text: str, since: datetime, until: datetime, zone: tzinfo) -> list[datetime]:
    """When events begin after the one moment and up to the other."""
    found = (event.first_between(since, until) for event in read_events(text, zone))
    return sorted({at for at in found if at is not None})
