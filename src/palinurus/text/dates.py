"""Finds dates in sentences: "yesterday", "last Tuesday", 上周三, 一昨日, 10 November. Pure.

Relative dates count from the date of the note, or from today in a question. Ambiguous ones ("a few days ago", "on
Tuesday" in a note) are ignored.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from datetime import date, timedelta
from functools import cache
from typing import Literal

from msgspec import Struct


class Period(Struct, frozen=True, order=True):
    """From a day to a day, both included."""

    first: date
    last: date
    about: bool = False  # "two months ago" is not an exact day

    def __str__(self) -> str:
        first, last = self.first, self.last
        if first == last:
            text = first.isoformat()
        elif Period(first, last) == year_of(first.year):
            text = f"{first.year}"
        elif Period(first, last) == month_of(first.year, first.month):
            text = f"{first:%Y-%m}"
        else:
            text = f"{first.isoformat()} to {last.isoformat()}"
        return f"about {text}" if self.about else text

    @property
    def length(self) -> int:
        return (self.last - self.first).days + 1

    @property
    def days(self) -> tuple[date, ...]:
        return tuple(self.first + timedelta(n) for n in range(self.length))

    def meets(self, other: Period) -> bool:
        return self.first <= other.last and other.first <= self.last


def day_from(base: date, offset: int = 0, *, about: bool = False) -> Period:
    day = base + timedelta(offset)
    return Period(day, day, about)


def week_from(base: date, offset: int) -> Period:
    """Monday to Sunday."""
    monday = base - timedelta(base.weekday()) + timedelta(weeks=offset)
    return Period(monday, monday + timedelta(6))


def month_of(year: int, month: int, *, about: bool = False) -> Period:
    return Period(date(year, month, 1), date(year, month, monthrange(year, month)[1]), about)


def month_from(base: date, offset: int, *, about: bool = False) -> Period:
    months = base.year * 12 + base.month - 1 + offset
    return month_of(months // 12, months % 12 + 1, about=about)


def year_of(year: int, *, about: bool = False) -> Period:
    return Period(date(year, 1, 1), date(year, 12, 31), about)


def weekday_from(base: date, weekday: int, step: int) -> tuple[Period, ...]:
    """The last (-1), this week's (0) or the next (1) weekday. Two results where usage of "next" differs."""
    if step == 0:
        return (day_from(week_from(base, 0).first, weekday),)
    if step < 0:
        return (day_from(base, -((base.weekday() - weekday - 1) % 7 + 1)),)
    ahead = (weekday - base.weekday() - 1) % 7 + 1
    # "Next Friday", said on a Monday, is this week's for some people and next week's for others.
    both = base.weekday() + ahead < 7
    return (day_from(base, ahead), day_from(base, ahead + 7)) if both else (day_from(base, ahead),)


_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
           "november", "december")  # fmt: skip
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_STEPS = {"last": -1, "past": -1, "this past": -1, "previous": -1, "this": 0, "next": 1, "coming": 1, "following": 1}
_CHINESE = "一二三四五六七八九十"
_CHINESE_WEEKDAYS = "一二三四五六日天"
_JAPANESE_WEEKDAYS = "月火水木金土日"

# In English every expression has one of these words, or a digit.
_TELLING = frozenset(
    {"yesterday", "today", "tonight", "tomorrow", "ago", "morning", "afternoon", "evening", "night", "weekend", "week"}
    | {"month", "year", *_WEEKDAYS, *_MONTHS, *(f"{name[:3]}{t}" for name in _MONTHS for t in ("", "t"))}
)
_LETTERS = re.compile("[a-z]+")
_DATED = re.compile(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)")
Tense = Literal["", "past", "future"]
Meaning = Callable[["re.Match[str]", date], Period | tuple[Period, ...]]
"""What an expression means, counted from a day. Raises ValueError or OverflowError for a day that does not exist."""


class DateMention(Struct, frozen=True):
    """An expression in a text, and what it means."""

    start: int
    end: int
    periods: tuple[Period, ...]  # more than one if usage differs
    relative: bool = True

    def __str__(self) -> str:
        return " or ".join(map(str, self.periods))

    @property
    def period(self) -> Period:
        return self.periods[0]


class DateRule(Struct, frozen=True):
    pattern: re.Pattern[str]
    meaning: Meaning
    relative: bool = True


def date_of(path: str) -> date | None:
    """The first date in the name of a file, or in a line."""
    found = _DATED.search(path.rpartition("/")[2])
    try:
        return date(*map(int, found.groups())) if found else None
    except ValueError:
        return None


def find_dates(text: str, base: date, *, tense: Tense = "") -> list[DateMention]:
    """Dates in the text, in order. A bare weekday counts only if a tense shows which one is meant."""
    found: list[DateMention] = []
    # Most texts have no date, and compiling the rules takes longer than this check.
    has_digit = any(digit in text for digit in "0123456789")
    if text.isascii() and not has_digit and _TELLING.isdisjoint(_LETTERS.findall(text.lower())):
        return found
    taken = bytearray(len(text))  # characters already matched: an earlier rule takes precedence
    for rule in _rules(tense, ascii_only=text.isascii()):
        for match in rule.pattern.finditer(text):
            start, end = match.span()
            if taken.find(1, start, end) < 0 and (meant := _meant(rule.meaning, match, base)):
                found.append(DateMention(start, end, meant, rule.relative))
                taken[start:end] = b"\1" * (end - start)
    return sorted(found, key=lambda each: each.start)


def resolved(text: str, base: date | None) -> str:
    """The text with the meaning after each relative date: `yesterday (2026-11-13)`."""
    parts, at = [], 0
    for found in find_dates(text, base) if base else []:
        if found.relative and not text.startswith(f" ({found}", found.end):
            parts.append(f"{text[at : found.end]} ({found})")
            at = found.end
    return "".join([*parts, text[at:]])


def _meant(meaning: Meaning, match: re.Match[str], base: date) -> tuple[Period, ...]:
    try:
        meant = meaning(match, base)
    except (OverflowError, ValueError):  # 31 February, 999 years ago on a day of the year 900
        return ()
    return meant if isinstance(meant, tuple) else (meant,)


@cache  # compiling takes milliseconds that most starts do not need
def _rules(tense: Tense, *, ascii_only: bool) -> tuple[DateRule, ...]:
    step = {"past": -1, "future": 1, "": 0}[tense]
    rules = [*_relative(), *(() if ascii_only else _in_cjk()), *_absolute()]
    return (*rules, *(_bare(step) if step else ()))


def _rule(pattern: str, meaning: Meaning, *, relative: bool = True) -> DateRule:
    return DateRule(re.compile(pattern, re.IGNORECASE), meaning, relative)


def _days(pattern: str, offset: int) -> DateRule:
    return _rule(pattern, lambda _, base: day_from(base, offset))


def _relative() -> tuple[DateRule, ...]:
    part = "(?: (?:morning|afternoon|evening|night))?"
    count = rf"(?P<n>\d{{1,3}}|an?|(?:a )?couple of|{'|'.join(_NUMBERS)})"
    units = f"weekend|week|month|year|{'|'.join((*_WEEKDAYS, *_MONTHS))}"
    return (
        _days(r"\b(?:the )?day before yesterday\b", -2),
        _days(r"\b(?:the )?day after tomorrow\b", 2),
        _days(rf"\byesterday{part}\b|\blast (?:night|evening)\b", -1),
        _days(r"\btoday\b|\btonight\b|\bthis (?:morning|afternoon|evening)\b", 0),
        _days(rf"\btomorrow{part}\b", 1),
        _rule(rf"\b{count} (?P<unit>day|week|month|year)s? ago\b", _ago),
        _rule(rf"\b(?P<which>{'|'.join(_STEPS)}) (?P<unit>{units})\b", _around),
    )


def _in_cjk() -> tuple[DateRule, ...]:
    units = "天|日|个月|個月|か月|ヶ月|年|周|星期|週間|週"
    return (
        _days("大前天", -3),
        _days("前天|一昨日|おととい", -2),
        _days("昨天|昨晚|昨日|昨夜|きのう", -1),
        _days("今天|今晚|今早|今日|今朝|今夜|きょう", 0),
        _days("明後日|あさって|后天|後天", 2),
        _days("明天|明日|あした", 1),
        _rule(rf"(?P<n>\d{{1,3}}|[{_CHINESE}两兩])(?P<unit>{units})(?:以)?前", _ago),
        _rule(rf"(?P<which>上上?|这|這|本|下)(?:个|個)?(?:周|週|星期|礼拜)(?P<day>[{_CHINESE_WEEKDAYS}])?", _week_cjk),
        _rule(rf"(?P<which>先々?|今|来)週(?:の(?P<day>[{_JAPANESE_WEEKDAYS}])曜日?)?", _week_cjk),
        _rule("上(?:个|個)月|先月", lambda _, base: month_from(base, -1)),
        _rule("下(?:个|個)月|来月", lambda _, base: month_from(base, 1)),
        _rule("(?:这|這)(?:个|個)月|本月|今月", lambda _, base: month_from(base, 0)),
        _rule("去年|昨年", lambda _, base: year_of(base.year - 1)),
        _rule("明年|来年", lambda _, base: year_of(base.year + 1)),
        _rule("今年", lambda _, base: year_of(base.year)),
        _rule(r"(?:(?P<year>\d{4})年)?(?P<month>\d{1,2})月(?:(?P<day>\d{1,2})[日号])?", _calendar, relative=False),
        _rule(r"(?P<year>(?:19|20)\d\d)年", _calendar, relative=False),
    )


def _absolute() -> tuple[DateRule, ...]:
    # "May" is a verb as well; "Sept".
    names = "|".join("(?-i:May)" if name == "may" else rf"{name[:3]}(?:t?\b|{name[3:]}\b)" for name in _MONTHS)
    th, year = "(?:st|nd|rd|th)?", r"(?:,? (?P<year>\d{4}))?"
    patterns = (
        r"(?<!\d)(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})(?!\d)",
        rf"\b(?P<day>\d{{1,2}}){th}(?: of)? (?P<name>{names})\.?{year}",
        rf"\b(?P<name>{names})\.? (?P<day>\d{{1,2}}){th}(?!\d){year}",
        rf"\b(?P<name>{names})\.?,? (?P<year>\d{{4}})\b",
        rf"(?<=\bin )(?P<name>{names})",
        r"(?:(?<=\bin )|(?<=\bsince ))(?P<year>(?:19|20)\d\d)\b",
    )
    return tuple(_rule(pattern, _calendar, relative=False) for pattern in patterns)


def _bare(step: int) -> tuple[DateRule, ...]:
    """Weekdays without a word before them."""

    def nearest(weekday: int, base: date) -> Period:
        return weekday_from(base, weekday, step)[0]

    return (
        _rule(rf"\b(?:on )?({'|'.join(_WEEKDAYS)})\b", lambda m, base: nearest(_WEEKDAYS.index(m[1].lower()), base)),
        _rule(rf"(?:周|週|星期|礼拜)([{_CHINESE_WEEKDAYS}])", lambda m, base: nearest(_weekday_cjk(m[1]), base)),
        _rule(rf"([{_JAPANESE_WEEKDAYS}])曜日?", lambda m, base: nearest(_JAPANESE_WEEKDAYS.index(m[1]), base)),
    )


def _number(text: str) -> int:
    word = text.lower().removeprefix("a ")
    if word in ("a", "an"):
        return 1
    if word in ("couple of", "两", "兩"):
        return 2
    if word in _NUMBERS:
        return _NUMBERS.index(word) + 1
    return _CHINESE.index(word) + 1 if word in _CHINESE else int(word)


def _ago(match: re.Match[str], base: date) -> Period:
    back, unit = -_number(match["n"]), match["unit"].lower()
    if unit in ("day", "天", "日"):
        return day_from(base, back)
    if unit in ("year", "年"):
        return year_of(base.year + back, about=True)
    if unit == "month" or unit.endswith("月"):
        return month_from(base, back, about=True)
    return day_from(base, 7 * back, about=True)


def _around(match: re.Match[str], base: date) -> Period | tuple[Period, ...]:
    """The last, this or next week, month, year, weekday or month by name."""
    step, unit = _STEPS[match["which"].lower()], match["unit"].lower()
    if unit in _WEEKDAYS:
        return weekday_from(base, _WEEKDAYS.index(unit), step)
    if unit in _MONTHS:
        month = _MONTHS.index(unit) + 1
        later = (step > 0 and month <= base.month) - (step < 0 and month >= base.month)
        return month_of(base.year + later, month)
    match unit:
        case "week":
            return week_from(base, step)
        case "weekend":
            sunday = week_from(base, step).last
            return Period(sunday - timedelta(1), sunday)
        case "month":
            return month_from(base, step)
        case _:
            return year_of(base.year + step)


def _week_cjk(match: re.Match[str], base: date) -> Period:
    """A week, or a day in it: here the week is always the calendar week."""
    which = match["which"]
    step = -len(which) if which[0] in "上先" else 1 if which in "下来" else 0
    week, day = week_from(base, step), match["day"]
    if not day:
        return week
    return day_from(week.first, _JAPANESE_WEEKDAYS.index(day) if "週の" in match[0] else _weekday_cjk(day))


def _weekday_cjk(day: str) -> int:
    return min(_CHINESE_WEEKDAYS.index(day), 6)


def _calendar(match: re.Match[str], base: date) -> Period:
    """A day, a month or a year by name."""
    parts = match.groupdict()
    name = (parts.get("name") or "").lower()
    if not name and not parts.get("month"):
        return year_of(int(match["year"]))
    month = next(n for n, full in enumerate(_MONTHS, 1) if full[:3] == name[:3]) if name else int(match["month"])
    # Without a year the past is preferred, unless the next occurrence is near.
    likely = base.year + (month < base.month) - ((month - base.month) % 12 > 4)
    year, day = int(parts.get("year") or likely), parts.get("day")
    return day_from(date(year, month, int(day))) if day else month_of(year, month)
