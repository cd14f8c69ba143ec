"""`pal memory eval`: the owner's own questions, and whether search finds the lines that answer them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from msgspec import Struct

from palinurus.cli.command import Bar, make_on_first_run, with_home
from palinurus.cli.shell import Shell, with_shell
from palinurus.domain.errors import BadRequest
from palinurus.memory.answer import SearchAnswer, SearchResult
from palinurus.memory.question import SearchMemory
from palinurus.operations.memory import search_memory
from palinurus.runtime.home_access import HomeAccess

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


class EvalReport(Struct, frozen=True):
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
            raise BadRequest(f"line {number} is not a question: {error}", hint=f"for example {FORM}") from None
        if not case.query.strip() or not case.expect:
            raise BadRequest(f"line {number} has no query or expects nothing", hint=f"for example {FORM}")
        cases.append(case)
    if not cases:
        raise BadRequest("there are no questions", hint=f"one a line, for example {FORM}")
    return cases


def score_answers(cases: Sequence[Case], answers: Sequence[SearchAnswer]) -> EvalReport:
    hits = [_ranks(case, answer) for case, answer in zip(cases, answers, strict=True)]
    misses = tuple(
        Miss(
            case.query,
            tuple(f"{path}#L{line}" for (path, line), rank in zip(case.expect, ranks, strict=True) if rank is None),
            tuple(f"{each.path}#L{each.start_line}-L{each.end_line}" for each in answer.results[:MOST_FOUND]),
        )
        for case, answer, ranks in zip(cases, answers, hits, strict=True)
        if None in ranks
    )
    count = len(cases)
    best = [min((rank for rank in ranks if rank is not None), default=None) for ranks in hits]
    return EvalReport(
        count,
        sum(rank is not None for rank in best) / count,
        sum(None not in ranks for ranks in hits) / count,
        sum(1 / rank for rank in best if rank is not None) / count,
        misses,
    )


def _ranks(case: Case, answer: SearchAnswer) -> list[int | None]:
    """For each expected place the number of the first result that covers it."""

    def covers(result: SearchResult, path: str, line: int) -> bool:
        return result.path == path and result.start_line <= line <= result.end_line

    ranked = list(enumerate(answer.results, start=1))
    return [next((rank for rank, result in ranked if covers(result, *place)), None) for place in case.expect]


MOST_MISSES = 20


@click.command("eval")
@click.argument("cases", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--agent", default="", metavar="ID", help="Whose memory. Default: the default agent's.")
@click.option("--budget-tokens", type=click.IntRange(1, 1_000_000), help="Limit each answer to this many tokens.")
@click.option("--keyword", is_flag=True, help="Keywords only, no embeddings.")
@click.option("--fail-under", type=click.FloatRange(0, 100), help="Exit code 1 when `any` is below this percentage.")
@with_shell
def evaluate(
    shell: Shell, cases: Path, agent: str, budget_tokens: int | None, keyword: bool, fail_under: float | None
) -> int:
    """Run your own questions and show which ones search cannot answer.

    CASES has one JSON object per line: a query, and the places that answer it, each a path and a line:
    {"query": "where is the boat?", "expect": [["memory/2026-11-15.md", 3]]}. A question counts as `any` when search
    returns one of its places, as `all` when it returns every one.

    \b
    Examples:
      pal memory eval my-questions.jsonl
      pal memory eval my-questions.jsonl --budget-tokens 1000 --fail-under 90
    """
    questions = read_cases(cases.read_text(encoding="utf-8", errors="replace"))
    asked = [SearchMemory(case.query, agent, budget_tokens=budget_tokens, keyword=keyword) for case in questions]
    make_on_first_run(shell)
    result = score_answers(questions, with_home(shell, lambda home: _answers(home, asked)))
    shell.show(result, lambda: _text(result))
    return 1 if fail_under is not None and result.any * 100 < fail_under else 0


async def _answers(home: HomeAccess, asked: list[SearchMemory]) -> list[SearchAnswer]:
    bar, answers = Bar(), list[SearchAnswer]()
    try:
        for each in asked:
            answers.append(await home.call(search_memory, each))
            bar.show("asking", len(answers), len(asked))
    finally:
        bar.close()
    return answers


def _text(result: EvalReport) -> str:
    lines = []
    for miss in result.misses[:MOST_MISSES]:
        lines.append(f"{miss.query}\n  not found: {', '.join(miss.missing)}")
        lines.append(f"  instead: {', '.join(miss.found) or 'nothing'}")
    if len(result.misses) > MOST_MISSES:
        lines.append(f"… and {len(result.misses) - MOST_MISSES} more")
    rank = f"mean reciprocal rank {result.reciprocal_rank:.2f}"
    lines.append(f"{result.questions} questions: any {result.any:.1%}, all {result.all:.1%}, {rank}.")
    return "\n".join(lines)
