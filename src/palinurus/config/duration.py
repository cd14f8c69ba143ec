"""Durations in the config: `5m`, `1h`, `30d`."""

import re

from palinurus.config.section import OptionForm

DAY_SECONDS = 86_400.0
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*+(ms|s|m|h|d|w|)\s*", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": DAY_SECONDS, "w": 604_800.0}


def seconds(text: str | int, bare: str = "m") -> float:
    """`5m`, `300s`, `1h`, `30d`; a bare number is in `bare` units. Raises ValueError for what is no time."""
    found = _DURATION.fullmatch(str(text))
    if found is None:
        raise ValueError("is not a time: for example 5m, 1h or 30d")
    return float(found[1]) * _SECONDS[found[2].lower() or bare]


def _written(value: float) -> str:
    unit = next(each for each in ("d", "h", "m", "s", "ms") if value % _SECONDS[each] == 0)
    return f"{value / _SECONDS[unit]:g}{unit}"


DURATION = OptionForm(str, seconds, _written)
DAYS = OptionForm(str | int, lambda said: seconds(said, bare="d"), _written)
