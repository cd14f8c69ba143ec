"""A second search for questions that ask for several things: "what has Anna painted?", "how many pets …?".

The first lines that are found say in which words the rest may be told, which the question does not use: a class
("pets") is named in the question, its instances in the notes. So the first lines are searched for in their turn, and
what is near to them in meaning gains a little. Only by vectors, and only within a budget of tokens.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from palinurus.memory.answer import SearchAnswer, SearchResult
from palinurus.memory.question import Question
from palinurus.memory.settings import SearchLimits

WIDER = 2  # times the budget; the better part of what is found remains
FIRST = 3  # lines that are searched for
LONGEST = 900  # characters of them together
WEIGHT = 0.1  # of a cosine beside a score
ALL = SearchLimits(tokens=30_000, results=1_000)
_SEVERAL = re.compile(
    r"^(?:what|which)(?: \w+){0,3} (?!is\b|was\b|does\b|did\b|has\b)\w+s\b|\bhow (?:many|often)\b"
    r"|\bboth\b|\bin common\b|\bwhat (?:kind|type|sort)s?\b|\bin what ways\b"
    r"|^what (?:has|have|do|does|did) (?!.*\b(?:say|think|feel|plan|mean|call|get|buy|give)\b)",
    re.IGNORECASE,
)
_MARKER, _ASIDE = re.compile(r"^\s*[-*+]\s+"), re.compile(r"\[[^\]\n]*\]")


async def search_twice(search: Callable[[Question], Awaitable[SearchAnswer]], question: Question) -> SearchAnswer:
    """As `search`; the second one is left out where it does not help."""
    tokens = question.budget.tokens
    if tokens is None or not _SEVERAL.search(question.query):
        return await search(question)
    first = await search(replace(question, budget=replace(question.budget, tokens=WIDER * tokens)))
    if first.mode != "hybrid" or len(first.results) <= FIRST:
        return first
    told = " ".join(_ASIDE.sub("", _MARKER.sub("", each.snippet)) for each in first.results[:FIRST])[:LONGEST]
    second = await search(Question(told, ALL, min_score=0.0, explain=True, cite=False))
    near = {
        (each.path, each.start_line): max(0.0, factor.value)
        for each in second.results
        for factor in each.factors
        if factor.name == "vector"
    }
    least = min(near.values(), default=0.0)

    def score(each: SearchResult) -> float:
        return each.score + WEIGHT * near.get((each.path, each.start_line), least)

    return replace(first, results=tuple(sorted(first.results, key=score, reverse=True)))
