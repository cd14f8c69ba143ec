"""`pal memory eval`: the owner's own questions, and whether search finds the lines that answer them."""

from __future__ import annotations

from pathlib import Path

import click

from palinurus.cli.bar import Bar
from palinurus.cli.memory_asking import asking
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.memory.answer import Answer
from palinurus.memory.asking import SearchMemory
from palinurus.operations.memory_eval import Case, Scored, read_cases, scored

MOST_MISSES = 20


@click.command("eval")
@click.argument("cases", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--agent", default="", metavar="ID", help="Whose memory. Default: the default agent's.")
@click.option("--budget-tokens", type=click.IntRange(1, 1_000_000), help="Room for each answer, instead of characters.")
@click.option("--keyword", is_flag=True, help="By words alone, without meaning.")
@click.option("--fail-under", type=click.FloatRange(0, 100), help="Exit code 1 when `any` is below this percentage.")
@with_json
@click.pass_obj
def evaluate(
    shell: Shell, cases: Path, agent: str, budget_tokens: int | None, keyword: bool, fail_under: float | None
) -> int:
    """Ask your own questions and show which ones search cannot answer.

    CASES has one JSON object a line: a query, and the places that answer it, each a path and a line:
    {"query": "where is the boat?", "expect": [["memory/2026-11-15.md", 3]]}. A question counts as `any` when one place
    is in the answer that a session would get, as `all` when each is.

    \b
    Examples:
      pal memory eval my-questions.jsonl
      pal memory eval my-questions.jsonl --budget-tokens 1000 --fail-under 90
    """
    questions = read_cases(cases.read_text(encoding="utf-8", errors="replace"))
    asked = [SearchMemory(case.query, agent, budget_tokens=budget_tokens, keyword=keyword) for case in questions]
    result = scored(questions, run_async(_answers(shell, questions, asked)))
    shell.show(result, lambda: _text(result))
    return 1 if fail_under is not None and result.any * 100 < fail_under else 0


async def _answers(shell: Shell, cases: list[Case], asked: list[SearchMemory]) -> list[Answer]:
    bar, answers = Bar(), list[Answer]()
    try:
        async with asking(shell) as desk:
            for each in asked:
                answers.append(await desk.search(each))
                bar.show("asking", len(answers), len(cases))
    finally:
        bar.close()
    return answers


def _text(result: Scored) -> str:
    lines = []
    for miss in result.misses[:MOST_MISSES]:
        lines.append(f"{miss.query}\n  not found: {', '.join(miss.missing)}")
        lines.append(f"  instead: {', '.join(miss.found) or 'nothing'}")
    if len(result.misses) > MOST_MISSES:
        lines.append(f"… and {len(result.misses) - MOST_MISSES} more")
    rank = f"mean reciprocal rank {result.reciprocal_rank:.2f}"
    lines.append(f"{result.questions} questions: any {result.any:.1%}, all {result.all:.1%}, {rank}.")
    return "\n".join(lines)
