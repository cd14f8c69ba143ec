"""How well search finds what its owner knows to be there: questions with the lines that answer them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.memory.answer import Answer

FORM = '{"query": "where is the boat?", "expect": [["memory/2026-11-15.md", 3]]}'
MOST_FOUND = 5


class Case(Struct, frozen=True):
    """A question, and the places (path and line) that answer it."""

    query: str
    expect: tuple[tuple[str, int], ...]


class Miss(Struct, frozen=True):
    query: str
    missing: tuple[str, ...]  # path#Lline
    found: tuple[str, ...]  # instead, the best first


class Scored(Struct, frozen=True):
    """Shares are between 0 and 1. `any`: one expected place was found; `all`: each of them."""

    questions: int
    any: float
    all: float
    reciprocal_rank: float  # mean, of the first result with an expected place
    misses: tuple[Miss, ...]


def read_cases(text: str) -> list[Case]:
    """One JSON object a line. Raises BadRequest with the line that is none."""
    cases = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            case = msgspec.json.decode(line, type=Case)
        except msgspec.DecodeError as error:
            raise BadRequest(f"line {number} is no question: {error}", hint=f"for example {FORM}") from None
        if not case.query.strip() or not case.expect:
            raise BadRequest(f"line {number} has no query or expects nothing", hint=f"for example {FORM}")
        cases.append(case)
    if not cases:
        raise BadRequest("there are no questions", hint=f"one a line, for example {FORM}")
    return cases


def scored(cases: Sequence[Case], answers: Sequence[Answer]) -> Scored:
    hits = [_ranks(case, answer) for case, answer in zip(cases, answers, strict=True)]
    misses = tuple(
        Miss(case.query, _missing(case, ranks), _found(answer))
        for case, answer, ranks in zip(cases, answers, hits, strict=True)
        if None in ranks
    )
    count = len(cases)
    best = [min((rank for rank in ranks if rank is not None), default=None) for ranks in hits]
    return Scored(
        count,
        sum(rank is not None for rank in best) / count,
        sum(None not in ranks for ranks in hits) / count,
        sum(1 / rank for rank in best if rank is not None) / count,
        misses,
    )


def _ranks(case: Case, answer: Answer) -> list[int | None]:
    """For each expected place the number of the first result that covers it."""
    return [
        next(
            (
                number
                for number, result in enumerate(answer.results, start=1)
                if result.path == path and result.start_line <= line <= result.end_line
            ),
            None,
        )
        for path, line in case.expect
    ]


def _missing(case: Case, ranks: Sequence[int | None]) -> tuple[str, ...]:
    return tuple(f"{path}#L{line}" for (path, line), rank in zip(case.expect, ranks, strict=True) if rank is None)


def _found(answer: Answer) -> tuple[str, ...]:
    return tuple(f"{each.path}#L{each.start_line}-L{each.end_line}" for each in answer.results[:MOST_FOUND])
