"""When a schedule is due: pure functions of the schedule and a moment. Times are milliseconds since the epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from palinurus.domain.errors import BadRequest
from palinurus.extensions.schedule.cron_job import AtSchedule, CronSchedule, EverySchedule, Schedule

SHORTEST_MS = 1_000
LONGEST_STAGGER_MS = 300_000


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


def expression_times(expression: str, after: int, zone: tzinfo) -> Iterator[int]:
    """When a cron expression is due. In the hour that a change of the clocks repeats it is due once, and what falls
    into the hour that is left out is due right after it."""
    start = datetime.fromtimestamp(after / 1000, UTC).astimezone(zone)
    try:
        found = CronSim(expression, start)
        for moment in found:
            at = round(moment.timestamp() * 1000)
            if at > after:
                yield at
    except CronSimError as error:
        raise BadRequest(
            f"{expression!r} is no cron expression: {error}", hint='five fields, for example "0 8 * * 1-5"'
        ) from None


def stagger_of(schedule: CronSchedule, spread_by: str) -> int:
    """By how much its due times are shifted, so that not everything starts at the full hour. The same for one job."""
    most = schedule.stagger_ms
    if most is None:
        fields = schedule.expr.split()
        seconds, minutes = (fields[0], fields[1]) if len(fields) == 6 else ("0", fields[0] if fields else "")
        most = LONGEST_STAGGER_MS if (seconds, minutes) == ("0", "0") else 0
    if not most or not spread_by:
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
        raise BadRequest(f"{name!r} is no time zone", hint="for example Europe/Berlin") from None


def moment_of(text: str, zone: tzinfo) -> int:
    """A moment in ISO form; without an offset it is in `zone`. Raises BadRequest."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadRequest(f"{text[:60]!r} is no time", hint="for example 2026-12-01T09:00 or in 20 minutes") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp() * 1000)


def iso_time(at: int, zone: tzinfo = UTC) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).astimezone(zone).isoformat(timespec="seconds")


def check_schedule(schedule: Schedule, zone: tzinfo) -> None:
    """Raises BadRequest for one that is never due, or is no schedule."""
    if isinstance(schedule, AtSchedule):
        moment_of(schedule.at, UTC)
    elif next_time(schedule, 0, zone) is None:
        raise BadRequest("it would never be due", hint="`pal cron next --cron EXPR` shows when one is due")
