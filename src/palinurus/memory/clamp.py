"""The best results that fit into a budget.

Characters by default: so many in all, so many a snippet. A budget of tokens replaces both: whole lines, characters/4,
each line once. What does not fit is left out and counted, and something shorter that comes later may still fit.
"""

from __future__ import annotations

from collections.abc import Sequence

from palinurus.config.remembering import Budget
from palinurus.domain.messages import OUTSIDE_MARK
from palinurus.memory.answer import Result
from palinurus.memory.dates import date_in_path
from palinurus.memory.excerpt import window
from palinurus.memory.fusion import Ranked
from palinurus.memory.stem import folded

CHARACTERS_PER_TOKEN = 4
UNDER = 120  # characters of what it stands under
LEAST = 10  # characters that something may still fit into
SHORTEST = 40  # characters of a snippet that is still worth its citation


def clamped(
    ranked: Sequence[Ranked], budget: Budget, words: Sequence[str], *, cite: bool
) -> tuple[list[tuple[Ranked, Result]], int]:
    """Results best first, and how many finds had no room."""
    results: list[tuple[Ranked, Result]] = []
    left, most = _room(budget), len(ranked) if budget.results is None else budget.results
    for one in ranked:
        if left < LEAST or len(results) >= most:
            break
        snippet = _snippet(one.candidate.text, budget, left, words)
        if not snippet:
            continue
        found = _result(one, snippet, cite=cite)
        needed = len(snippet) + 1 + (len(found.under) if budget.tokens is None else 0)
        if needed > left + 1:
            continue
        left -= needed
        results.append((one, found))
    return results, len(ranked) - len(results)


def _room(budget: Budget) -> int:
    return budget.characters if budget.tokens is None else budget.tokens * CHARACTERS_PER_TOKEN


def _snippet(text: str, budget: Budget, left: int, words: Sequence[str]) -> str:
    """Empty: it does not fit."""
    if budget.tokens is not None:
        return text if len(text) < left else ""
    room = min(budget.snippet, left)
    if len(text) <= room:
        return text
    if room < budget.snippet or room < SHORTEST:
        return ""
    # A line whose words came from outside says so at its end, and goes on saying so when it is cut (promise 18).
    mark = f" (… {OUTSIDE_MARK}" if OUTSIDE_MARK in text else ""
    return window(text, room - len(mark), words) + mark


def _result(one: Ranked, snippet: str, *, cite: bool) -> Result:
    found = one.candidate
    return Result(
        found.place.path,
        found.start_line,
        found.end_line,
        round(min(1.0, one.score), 4),
        snippet,
        found.place.source,
        citation(found.place.path, found.start_line, found.end_line) if cite else "",
        under(found.place.path, found.context),
    )


def under(path: str, context: str) -> str:
    """What a snippet stands under, if it is news: "lives in Oslo" says little without the heading "Anna"."""
    known, day = folded(path), date_in_path(path)
    parts = [part.strip() for part in context.split(">")]
    news = [part for part in parts if folded(part) not in known and not (day and day.isoformat() in part)]
    return " > ".join(part for part in dict.fromkeys(news) if part)[-UNDER:]


def citation(path: str, start_line: int, end_line: int) -> str:
    """`memory/2026-11-15.md#L3-L9`."""
    return f"{path}#L{start_line}" if start_line == end_line else f"{path}#L{start_line}-L{end_line}"
