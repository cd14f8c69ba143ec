"""A clock and ids that a test controls."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, tzinfo

START = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)


class FakeClock:
    """Stands still until it is advanced."""

    def __init__(self, start: datetime = START, zone: tzinfo = UTC) -> None:
        self.now = start
        self.zone = zone

    def now_ms(self) -> int:
        return int(self.now.timestamp() * 1000)

    def advance(self, **time: float) -> None:
        """Moves the time: `clock.advance(minutes=30)`."""
        self.now += timedelta(**time)


class SeededIds:
    """Returns the same ids for the same seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311  # ids of a simulation must repeat

    def __call__(self) -> str:
        return f"{self._random.getrandbits(64):016x}"
