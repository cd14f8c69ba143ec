"""Regular expressions that are compiled when they are first used: together they take longer than a whole start."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache


def later(pattern: str, flags: int = 0) -> Callable[[], re.Pattern[str]]:
    return cache(lambda: re.compile(pattern, flags))
