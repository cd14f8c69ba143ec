"""Time and randomness as arguments, so that tests can set them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Protocol

NewId = Callable[[], str]
"""Returns a fresh id of 16 hex digits, never the same one twice."""


class Clock(Protocol):
    """The current time. `now_ms` is wall time; the local time zone defines what a day is."""

    @property
    def zone(self) -> tzinfo: ...

    def now_ms(self) -> int: ...


class MachineZone(tzinfo):
    """The zone that the machine is set to, also for days on which its clocks stand otherwise than today."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None if moment is None else timedelta(seconds=moment.replace(tzinfo=UTC).timestamp() - _seconds(moment))

    def dst(self, moment: datetime | None) -> timedelta | None:
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        return None if moment is None else time.localtime(_seconds(moment)).tm_zone

    def fromutc(self, moment: datetime) -> datetime:
        return datetime.fromtimestamp(moment.replace(tzinfo=UTC).timestamp()).replace(tzinfo=self)  # noqa: DTZ006


def _seconds(moment: datetime) -> float:
    return moment.replace(tzinfo=None).timestamp()  # without a zone it is the machine's


class SystemClock:
    """The machine's clock, in the machine's zone unless the config names another."""

    def __init__(self, zone: tzinfo | None = None) -> None:
        self._zone = zone

    @property
    def zone(self) -> tzinfo:
        return self._zone or MachineZone()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def random_id() -> str:
    return secrets.token_hex(8)


def local_time(clock: Clock) -> datetime:
    return datetime.fromtimestamp(clock.now_ms() / 1000, clock.zone)


def time_text(moment: datetime, *, twelve_hours: bool = False) -> str:
    """Formats day and time for people and models."""
    hours = "%I:%M %p" if twelve_hours else "%H:%M"
    return f"{moment:%a %Y-%m-%d {hours} %Z}".strip()


def day_of(timestamp: int, zone: tzinfo) -> str:
    """The day of a moment in milliseconds; "" if the moment is unknown."""
    try:
        return datetime.fromtimestamp(timestamp / 1000, zone).date().isoformat() if timestamp else ""
    except (OverflowError, ValueError, OSError):  # an imported row may hold any value
        return ""
