"""What doors ask of an agent's memory, where the side door may answer: plain records, cheap to import."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from palinurus.config.remembering import MemorySettings
from palinurus.memory.question import MAX_QUERY, Question

Score = Annotated[float, Meta(ge=0, le=1)]
Results = Annotated[int, Meta(ge=1, le=1_000)]
Tokens = Annotated[int, Meta(ge=1, le=1_000_000)]


class IndexMemory(Struct, frozen=True, omit_defaults=True):
    agent: str = ""  # empty: the default one
    force: bool = False  # all anew; vectors that are known stay known


class SearchMemory(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is not said here is as the config says."""

    query: str
    agent: str = ""
    max_results: Results | None = None
    min_score: Score | None = None
    budget_tokens: Tokens | None = None  # instead of the characters of the config
    sources: tuple[str, ...] = ()
    explain: bool = False
    keyword: bool = False  # by words alone


def question(settings: MemorySettings, asked: SearchMemory) -> Question:
    """The owner's own question: every result is cited."""
    budget = settings.budget
    if asked.max_results is not None:
        budget = msgspec.structs.replace(budget, results=asked.max_results)
    if asked.budget_tokens is not None:
        budget = msgspec.structs.replace(budget, tokens=asked.budget_tokens, results=asked.max_results)
    return Question(
        asked.query[:MAX_QUERY],
        budget,
        asked.min_score,
        asked.sources,
        explain=asked.explain,
        cite=settings.citations != "off",
        keyword_only=asked.keyword,
    )
