"""Reads times as people say them ("in two minutes", "tomorrow at 9", "every weekday at 8") and says them back in words.

Pure. A text is read in one pass; what is not understood is refused with examples. Hours are those of a day of 24 unless
am or pm is said.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from cronsim import CronSim, CronSimError

from palinurus.domain.errors import BadRequest
from palinurus.extensions.schedule.cron_job import AtSchedule, CronSchedule, EverySchedule, Schedule
from palinurus.extensions.schedule.times import iso_time, moment_of
from palinurus.text.dates import DateMention, find_dates

LONGEST = 100  # characters of a time
MOST_WORDS = 9  # of a time in a sentence
EXAMPLES = "for example: in 20 minutes, tomorrow at 9, monday at 17:30, 2026-12-01T09:00"
DURATIONS = "for example: 30m, 1h30m, 2 days"

DAY_MS = 86_400_000
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": DAY_MS, "w": 7 * DAY_MS}
_NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
_COUNTS: dict[str | None, float] = {word: number for number, word in enumerate(_NUMBERS.split())}
_COUNTS |= {"twenty": 20, "thirty": 30, "forty": 40, "forty-five": 45, "fifty": 50, "sixty": 60, "ninety": 90}
_COUNTS |= {"a": 1, "an": 1, "half an": 0.5, "half a": 0.5, "a couple of": 2}
_UNIT = r"(?P<unit>s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?|w(?:eeks?)?)"
_COUNT = rf"(?P<count>\d{{1,9}}(?:\.\d{{1,3}})?|{'|'.join(sorted(filter(None, _COUNTS), key=len, reverse=True))})"
_PART = re.compile(rf"(?:{_COUNT}\s*)?(?<![a-z]){_UNIT}(?![a-z])")
_JOIN = re.compile(r"[\s,]*(?:and\b)?\s*")
_CLOCK = re.compile(
    r"(?P<hour>\d{1,2})(?:[:.](?P<minute>\d{2}))?\s*(?:(?P<half>[ap])\.?m\.?|o'?clock|h)?|(?P<name>noon|midnight|midday)"
)
_TIMES_OF_DAY = {"morning": 9, "afternoon": 15, "evening": 19, "tonight": 20, "night": 21}
_AT = re.compile(r"\b(?:at|by|around)\b|@")
_FILLER = re.compile(r"\b(?:at|on|by|around|in the)\b|[,@]")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_EXPRESSION = re.compile(r"[\d*/,#l-]+(?: [\da-z*/,#-]+){4,5}")
_DAY_NAME = re.compile(r"\b(mon|tue|wed|thu|fri|sat|sun)(?:day|sday|nesday|rsday|urday)?s?\b")


class PastTime(BadRequest):
    """A time that has passed."""


def parse_duration(text: str) -> int:
    """Milliseconds: "30m", "1h30m", "90 seconds", "an hour", "day". Raises BadRequest."""
    parts = _parts(_plain(text))
    if parts is None:
        raise BadRequest(f"{text[:60]!r} is not a length of time", hint=DURATIONS)
    return round(sum(count * _UNITS[unit] for count, unit in parts))


def parse_when(text: str, now: int, zone: tzinfo) -> int:
    """A moment: "in 20 minutes", "+2h", "tomorrow at 9", "at 5pm", ISO. Days and hours are those of `zone`.

    Raises BadRequest, also for a time that has passed.
    """
    plain = _plain(text)
    at = _from_now(plain, now, zone)
    if at is None and plain[:4].isdigit() and plain[4:5] == "-" and not re.search(r"\s[a-z]", plain):
        at = moment_of(text.strip(), zone)
    if at is None:
        at = _on_a_day(" ".join(text.split()), now, zone)
    if at is None:
        raise BadRequest(f"{text[:60]!r} is not a time", hint=EXAMPLES)
    if at <= now:
        raise PastTime(f"{moment_words(at, zone)} has passed", hint="name a time in the future")
    return at


def parse_schedule(text: str, now: int, zone: tzinfo) -> Schedule:
    """Once ("tomorrow at 9"), or again and again ("every 2 hours", "every weekday at 8", "0 8 * * 1-5"). Raises
    BadRequest."""
    plain = _plain(text)
    if _EXPRESSION.fullmatch(plain) and "*" in plain:
        return CronSchedule(plain)
    if plain.startswith("every") or plain in ("daily", "hourly", "weekly"):
        return parse_every(plain, now, zone)
    return AtSchedule(iso_time(parse_when(text, now, zone), zone))


def parse_every(text: str, now: int, zone: tzinfo) -> Schedule:
    """ "2 hours", "day", "weekday at 8", "monday and friday at 17:30", with or without "every". Raises BadRequest."""
    plain = _plain(text).removeprefix("every").strip()
    plain = {"daily": "day", "hourly": "hour", "weekly": "week"}.get(plain, plain)
    parts = _parts(plain)
    if parts is not None:
        every = round(sum(count * _UNITS[unit] for count, unit in parts))
        if every < _UNITS["s"]:
            raise BadRequest("the interval is shorter than a second", hint=DURATIONS)
        return EverySchedule(every, now)
    names = {_DAYS.index(next(day for day in _DAYS if day.startswith(found))) for found in _DAY_NAME.findall(plain)}
    days = ",".join(str((day + 1) % 7) for day in sorted(names))
    rest = re.sub(r"\band\b|[,&]", " ", _DAY_NAME.sub(" ", plain))
    for word, meant in (("weekday", "1-5"), ("weekend", "0,6"), ("day", "*"), ("morning", "*"), ("evening", "*")):
        if not days and re.search(rf"\b{word}s?\b", rest):
            days, rest = meant, re.sub(rf"\b{word}s?\b", word if word in _TIMES_OF_DAY else " ", rest)
    clock = _clock(rest)
    if not days or clock is None:
        raise BadRequest(
            f"{text[:60]!r} is not an interval", hint="for example: 30m, 2 hours, day at 9, weekday at 8:30"
        )
    return CronSchedule(f"{clock.minute} {clock.hour} * * {days}", stagger_ms=0)


def split_reminder(text: str, now: int, zone: tzinfo) -> tuple[Schedule, str]:
    """When, and of what: "me tomorrow at 9 to call Ann", "in 20 minutes stretch", "me to stretch in two minutes".

    The time stands at the beginning or at the end; of several readings the longest counts. Raises BadRequest.
    """
    words = text.split()
    words = words[1:] if words and words[0].lower() in ("me", "us") else words
    for count in range(min(MOST_WORDS, len(words)), 0, -1):
        for when, what in ((words[:count], words[count:]), (words[-count:], words[:-count])):
            try:
                schedule = parse_schedule(" ".join(when).strip(".,:;!"), now, zone)
            except PastTime:
                raise
            except BadRequest:
                continue
            return schedule, _what(what)
    raise BadRequest("no time was found", hint="for example: /remind me tomorrow at 9 to call Ann")


def _what(words: list[str]) -> str:
    """Without the little word before it."""
    what = " ".join(words).strip(" ,:;")
    first, _, rest = what.partition(" ")
    what = rest if first.lower() in ("to", "that", "about", "of") and rest else what
    if not what:
        raise BadRequest("nothing was said to be reminded of", hint="for example: /remind me in 20 minutes to stretch")
    return what


def moment_words(at: int, zone: tzinfo) -> str:
    """`Mon 2026-11-23 08:02`, in this time zone."""
    moment = datetime.fromtimestamp(at / 1000, UTC).astimezone(zone)
    return f"{moment:%a %Y-%m-%d %H:%M:%S}".removesuffix(":00")


def duration_words(milliseconds: int) -> str:
    """`1 hour 30 minutes`."""
    left, words = milliseconds // 1000, []
    for name, seconds in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        number, left = divmod(left, seconds)
        if number:
            words.append(f"{number} {name}{'' if number == 1 else 's'}")
    return " ".join(words) or "0 seconds"


def schedule_words(schedule: Schedule, zone: tzinfo) -> str:
    """`once`, `every 30 minutes`, `at 08:00 on Monday through Friday (Europe/Berlin)`."""
    match schedule:
        case AtSchedule():
            return "once"
        case EverySchedule():
            words = duration_words(schedule.every_ms)
            return f"every {words.removeprefix('1 ') if words.startswith('1 ') and words.count(' ') == 1 else words}"
        case CronSchedule():
            try:
                words = CronSim(schedule.expr, datetime.now(UTC)).explain()
            except CronSimError:
                return schedule.expr
            return f"{words[:1].lower()}{words[1:]}" + (f" ({schedule.tz})" if schedule.tz else "")


def _plain(text: str) -> str:
    if len(text) > LONGEST:
        raise BadRequest(f"{text[:30]!r}… is too long for a time", hint=EXAMPLES)
    return " ".join(text.lower().split())


def _parts(text: str) -> list[tuple[float, str]] | None:
    """Numbers and units, one after the other; None: it is no duration."""
    found, at = [], 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            return None
        count, unit = part["count"], part["unit"]
        if count is None and at:  # "1h m"
            return None
        found.append((float(_COUNTS.get(count, count or 1)), unit[0]))
        joined = _JOIN.match(text, part.end())
        at = joined.end() if joined else part.end()
    return found or None


def _from_now(text: str, now: int, zone: tzinfo) -> int | None:
    """Days are counted by the calendar, so that the hour stays; hours, minutes and seconds by the clock."""
    body = re.sub(r"^(?:in|after|\+)\s*|\s+from now$", "", text)
    parts = _parts(body) if any(char.isdigit() for char in body) or body != text else None
    if parts is None or (body == text and not body[0].isdigit()):
        return None
    days = sum(count * _UNITS[unit] for count, unit in parts if unit in "dw")
    rest = sum(count * _UNITS[unit] for count, unit in parts if unit not in "dw")
    if days > 36_500 * DAY_MS or rest > 36_500 * DAY_MS:
        raise BadRequest(f"{text[:60]!r} is too far away", hint=EXAMPLES)
    start = datetime.fromtimestamp(now / 1000, UTC).astimezone(zone).replace(tzinfo=None)
    later = (start + timedelta(milliseconds=days)).replace(tzinfo=zone) if days else None
    at = (later.timestamp() * 1000 if later else now) + rest
    return -int(-at // 1000) * 1000  # a full second, and not too early


def _on_a_day(text: str, now: int, zone: tzinfo) -> int | None:
    """A day and a time, or one of them. A number alone is a time only after a day or "at"."""
    start = datetime.fromtimestamp(now / 1000, UTC).astimezone(zone)
    found = find_dates(text, start.date(), tense="future")
    if len(found) > 1 or any(each.period.length != 1 for each in found):
        return None
    mention = found[0] if found else None
    said = text[mention.start : mention.end].lower() if mention else ""
    rest = f"{text[: mention.start]} {text[mention.end :]}".lower() if mention else text.lower()
    bare = _FILLER.sub("", rest).strip()
    clock = None if bare.isdigit() and mention is None and not _AT.search(rest) else _clock(rest)
    if mention and not bare:
        clock = time(next((hour for word, hour in _TIMES_OF_DAY.items() if word in said), 9))
    if clock is None:
        return None
    day = _day(mention, said, start.date()) if mention else start.date()
    at = _moment(day, clock, zone)
    if mention is None and at <= now:
        at = _moment(day + timedelta(1), clock, zone)
    if said.removeprefix("on ") in _DAYS and day == start.date() + timedelta(7):  # "monday at 9", on a Monday at 8
        today = _moment(start.date(), clock, zone)
        at = today if today > now else at
    return at


def _day(mention: DateMention, said: str, today: date) -> date:
    """A date without a year is the next one."""
    day = mention.period.first
    if day < today and not mention.relative and not re.search(r"\d{4}", said):
        return day.replace(year=day.year + 1, day=min(day.day, 28) if day.month == 2 else day.day)
    return day


def _clock(text: str) -> time | None:
    """The time of day that a text names, and nothing else. Raises BadRequest for one that there is not."""
    plain = _FILLER.sub(" ", text).strip()
    parts = {word for word in _TIMES_OF_DAY if re.search(rf"\b{word}\b", plain)}
    for word in parts:
        plain = plain.replace(word, " ").strip()
    if not plain and len(parts) == 1:
        return time(_TIMES_OF_DAY[parts.pop()])
    found = _CLOCK.fullmatch(plain)
    if found is None:
        return None
    if found["name"]:
        return time(0 if found["name"] == "midnight" else 12)
    hour, minute = int(found["hour"]), int(found["minute"] or 0)
    late = found["half"] == "p" or bool(parts - {"morning"} and hour <= 11)
    if found["half"] and not 1 <= hour <= 12:
        raise BadRequest(f"{plain[:20]!r} is not a time of day", hint=EXAMPLES)
    hour = hour % 12 + 12 * late if found["half"] or (late and hour < 12) else hour
    if hour > 23 or minute > 59:
        raise BadRequest(f"{plain[:20]!r} is not a time of day", hint=EXAMPLES)
    return time(hour, minute)


def _moment(day: date, clock: time, zone: tzinfo) -> int:
    """In the hour that a change of the clocks leaves out: as much later as it leaves out. In the one that it repeats:
    the first."""
    return round(datetime.combine(day, clock, zone).timestamp() * 1000)
