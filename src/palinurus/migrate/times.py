"""Times as other programs write them."""

from __future__ import annotations

from datetime import UTC, datetime

LATEST = 1e14  # milliseconds: the year 5138


def time_ms(value: str | float | None) -> int | None:
    """Milliseconds of an ISO time or a number of milliseconds; None when it tells no time that could be."""
    try:
        if isinstance(value, str) and value:
            moment = datetime.fromisoformat(value)
            return max(0, int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000))
        if isinstance(value, int | float) and 0 < value < LATEST:
            return int(value)
    except (ValueError, OverflowError):
        pass
    return None
