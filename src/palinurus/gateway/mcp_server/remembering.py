"""What an agent of this home has noted, short enough for another agent to read."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from palinurus.gateway.mcp_server.visit import Arguments, Shown
from palinurus.memory.answer import Answer, Freshness
from palinurus.memory.getting import MAX_LINES, MemoryText
from palinurus.memory.tools import is_good


class SearchNotes(Arguments, frozen=True):
    query: Annotated[str, Meta(min_length=1, max_length=4_000, description="a question or words")]
    agent: Annotated[str, Meta(description="whose memory; the default agent's when left out")] = ""
    max_results: Annotated[int, Meta(ge=1, le=50, description="at most so many")] = 10
    min_score: Annotated[float, Meta(ge=0, le=1, description="none below this score")] = 0.0


class Note(Shown, frozen=True):
    path: str
    start_line: int
    end_line: int
    score: float
    snippet: str


class Remembered(Shown, frozen=True):
    results: tuple[Note, ...]
    freshness: Freshness | None = None  # only when something is missing


class GetLines(Arguments, frozen=True):
    path: Annotated[str, Meta(description="as memory_search tells it")]
    agent: Annotated[str, Meta(description="whose memory; the default agent's when left out")] = ""
    from_: Annotated[int, Meta(ge=0, le=2**31, description="the first line")] = 0
    lines: Annotated[int, Meta(ge=0, le=MAX_LINES, description="how many lines; 0: as many as fit")] = 0


class Lines(Shown, frozen=True):
    path: str
    text: str
    from_: int = 1
    next_from: int = 0  # where to go on


def remembered(answer: Answer) -> Remembered:
    notes = tuple(
        Note(each.path, each.start_line, each.end_line, round(each.score, 3), each.snippet) for each in answer.results
    )
    return Remembered(notes, None if is_good(answer.freshness) else answer.freshness)


def lines_shown(found: MemoryText) -> Lines:
    return Lines(found.path, found.text, found.from_, found.next_from)
