"""When a schedule is due: pure functions of the schedule and a moment. Times are milliseconds since the epoch."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, takewhile
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from palinurus.domain.errors import BadRequest
from palinurus.extensions.schedule.cron_job import AtSchedule, CronSchedule, EverySchedule, Schedule

SHORTEST_MS = 1_000
LONGEST_STAGGER_MS = 300_000
MOST_PASSED = 10_000  # due times that are looked at one by one
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # subtracted from times without a zone


def next_time(schedule: Schedule, after: int, zone: tzinfo, spread_by: str = "") -> int | None:
    """The first due time after a moment; None: there is none any more.

    `spread_by`: the id of the job, from which the stagger follows. Raises BadRequest for what is no schedule.
    """
    return next(due_times(schedule, after, zone, spread_by), None)


def due_times(schedule: Schedule, after: int, zone: tzinfo, spread_by: str = "") -> Iterator[int]:
    """All due times after a moment, in order; without end for most schedules."""
    match schedule:
        case AtSchedule():
            at = moment_of(schedule.at, UTC)
            if at > after:
                yield at
        case EverySchedule():
            if schedule.every_ms < SHORTEST_MS:
                raise BadRequest("the interval is shorter than a second", hint='for example --every "30m"')
            at = schedule.anchor_ms
            at += max(0, (after - at) // schedule.every_ms + 1) * schedule.every_ms
            while True:
                yield at
                at += schedule.every_ms
        case CronSchedule():
            stagger = stagger_of(schedule, spread_by)
            times = expression_times(schedule.expr, after - stagger, zone_of(schedule.tz) or zone)
            yield from (each + stagger for each in times)


def times_passed(schedule: Schedule, after: int, now: int, zone: tzinfo, spread_by: str) -> list[int]:
    """The due times after one moment and up to another, oldest first; no more than MOST_PASSED."""
    return list(islice(takewhile(lambda at: at <= now, due_times(schedule, after, zone, spread_by)), MOST_PASSED))


def newest_times(schedule: Schedule, after: int, now: int, zone: tzinfo, spread_by: str, most: int) -> list[int]:
    """The last of the due times after one moment and up to another, found without walking through all before them."""

    def some(since: int) -> list[int]:
        times = due_times(schedule, since, zone, spread_by)
        return list(islice(takewhile(lambda at: at <= now, times), most + 1))

    low, high, found = after, now, some(after)
    while len(found) > most:  # after `low` there are more than wanted, after `high` fewer
        middle = (low + high) // 2
        if len(later := some(middle)) < most:
            high = middle
        else:
            low, found = middle, later
    return found


def expression_times(expression: str, after: int, zone: tzinfo) -> Iterator[int]:
    """When a cron expression is due.

    Where clocks change, as in Debian's cron: one that names its times (no star at the beginning of the hour, the minute
    or the second) is due once in the hour that is repeated, the first time, and right after an hour that is left out if
    it falls into that. Any other follows the clock on the wall: it is due in both hours, and not in one that is left
    out.
    """
    wall = datetime.fromtimestamp(after / 1000, UTC).astimezone(zone)
    names_times = not any(field.startswith("*") for field in expression.split()[:-3])
    if len(offsets := _offsets(wall, zone)) == 2 and not wall.fold:
        wall -= offsets[0] - offsets[1]  # clocks will show what lies before it once more
    newest, again = after, deque[int]()
    for local in _matches(expression, wall.replace(tzinfo=None, fold=0)):
        first, *second = _moments(local, zone, once=names_times) or [newest]
        while again and again[0] < first:
            yield again.popleft()
        if first > newest:
            newest = first
            yield first
        again.extend(at for at in second if at > after)
    yield from again


def _moments(local: datetime, zone: tzinfo, *, once: bool) -> list[int]:
    """When clocks show a time. `once`: the first time, or right after it where they leave it out."""
    offsets = _offsets(local, zone)
    while once and not offsets:
        local = local.replace(second=0) + timedelta(minutes=1)
        offsets = _offsets(local, zone)
    moments = [(local - offset - EPOCH) // timedelta(milliseconds=1) for offset in offsets]
    return moments[:1] if once else moments


def _offsets(local: datetime, zone: tzinfo) -> list[timedelta]:
    """How far clocks that show this time are ahead of UTC: two ways where they show it twice, none where never."""
    first, second = (local.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta() for fold in (0, 1))
    if first == second:
        return [first]
    return [first, second] if first > second else []


def _matches(expression: str, after: datetime) -> Iterator[datetime]:
    """The times on the wall, of clocks that never change. Raises BadRequest."""
    try:
        yield from CronSim(expression, after)
    except CronSimError as error:
        raise BadRequest(
            f"{expression!r} is not a cron expression: {error}", hint='five fields, for example "0 8 * * 1-5"'
        ) from None


def stagger_of(schedule: CronSchedule, spread_by: str) -> int:
    """By how much its due times are shifted, so that not everything starts at the full hour. The same for one job."""
    most = schedule.stagger_ms
    if most is None:
        fields = schedule.expr.split()
        seconds, minutes = (fields[0], fields[1]) if len(fields) == 6 else ("0", fields[0] if fields else "")
        most = LONGEST_STAGGER_MS if (seconds, minutes) == ("0", "0") else 0
    if most <= 0 or not spread_by:
        return 0
    number = int.from_bytes(hashlib.sha256(spread_by.encode()).digest()[:8], "big")
    return number % (most // 1000 or 1) * 1000


def zone_of(name: str) -> ZoneInfo | None:
    """None for "". Raises BadRequest for an unknown one."""
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadRequest(f"{name!r} is not a time zone", hint="for example Europe/Berlin") from None


def moment_of(text: str, zone: tzinfo) -> int:
    """A moment in ISO form; without an offset it is in `zone`. Raises BadRequest."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadRequest(f"{text[:60]!r} is not a time", hint="for example 2026-12-01T09:00 or in 20 minutes") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp() * 1000)


def iso_time(at: int, zone: tzinfo = UTC) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).astimezone(zone).isoformat(timespec="seconds")


def check_schedule(schedule: Schedule, zone: tzinfo) -> None:
    """Raises BadRequest for one that is never due, or is no schedule."""
    if isinstance(schedule, AtSchedule):
        moment_of(schedule.at, UTC)
    elif next_time(schedule, 0, zone) is None:
        raise BadRequest("it would never be due", hint="`pal cron next --cron EXPR` shows when one is due")
