"""What is asked of memory."""

from __future__ import annotations

from msgspec import Struct

from palinurus.config.remembering import Budget

MAX_QUERY = 4_000  # characters that are looked at; what comes behind says nothing new


class Question(Struct, frozen=True):
    query: str
    budget: Budget = Budget()
    min_score: float | None = None  # None: as the config says
    sources: tuple[str, ...] = ()  # empty: all
    explain: bool = False
    cite: bool = True
    keyword_only: bool = False
