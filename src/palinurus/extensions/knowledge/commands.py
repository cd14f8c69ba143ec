"""`pal memory recall` and `pal memory entities`."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from palinurus.cli.command import add_operation, call_operation, make_on_first_run, with_home
from palinurus.cli.memory import freshness_line, of_agent
from palinurus.cli.shell import Shell, columns, count_of, with_shell
from palinurus.domain.errors import PalinurusError
from palinurus.extensions.knowledge.facts import KINDS
from palinurus.extensions.knowledge.operations import (
    DeclaredNames,
    EntityDetails,
    EntityList,
    list_entities,
    merge_entities,
    show_entity,
    split_entity,
)
from palinurus.extensions.knowledge.operations import recall as recall_operation
from palinurus.extensions.knowledge.recall import RecallAnswer, RecallQuestion, RecallResult
from palinurus.memory.answer import SearchAnswer
from palinurus.runtime.home_access import HomeAccess


@click.command("recall")
@click.argument("query", nargs=-1, metavar="QUESTION...")
@of_agent
@click.option("--k", type=click.IntRange(1, 1000), default=25, show_default=True, help="At most so many results.")
@click.option("--since", default="", metavar="DUR", help="Only what happened or was said since: 30d, 6w, 3m, a day.")
@click.option("--as-of", default="", metavar="DATE", help="Only what had been said by that day.")
@click.option("--entity", default="", metavar="NAME", help="Only facts that name this person, place or thing.")
@click.option("--kind", type=click.Choice([*KINDS.values()]), help="Only facts of this kind.")
@click.option("--budget-tokens", type=click.IntRange(1, 1_000_000), help="Limit the answer to this many tokens.")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read one question per line from standard input.")
@with_shell
def recall(shell: Shell, /, query: tuple[str, ...], from_stdin: bool, **options: Any) -> int | None:
    """Facts and lines of notes that answer a question, with what they are, since when, and from where.

    Facts are the bullets of `## Retain` sections: W world, B experience, O opinion, S observation.

    \b
    Examples:
      pal memory recall "what does Peter prefer?"
      pal memory recall boat --since 30d --k 5 --json
      pal memory recall "where do they live?" --as-of 2026-03-01 --entity Anna
      pal memory recall --stdin --json --budget-tokens 1000 < questions.txt
    """
    make_on_first_run(shell)
    if from_stdin:
        if query:
            raise click.UsageError("Give a question or --stdin, not both.")
        return with_home(shell, lambda home: _each_line(shell, home, options))
    if not "".join(query).strip():
        raise click.UsageError("Give a question, or --stdin.")
    answer = call_operation(shell, recall_operation, RecallQuestion(" ".join(query), **options))
    shell.show(answer, lambda: answer_text(answer))
    return None


async def _each_line(shell: Shell, home: HomeAccess, options: dict[str, Any]) -> int:
    """One answer for each line. A question that fails is told as such."""
    from palinurus.cli.stdio import InputLines

    code, lines = 0, InputLines("")
    while (line := await lines.next()) is not None:
        try:
            answer: RecallAnswer | None = await home.call(recall_operation, RecallQuestion(line, **options))
            body: Any = answer
        except PalinurusError as error:
            code, answer = error.exit_code, None
            body = {"results": [], "error": {"type": type(error).__name__, **error.fields()}}
            shell.warn(str(error))
        text = msgspec.json.encode(body).decode() if shell.as_json else answer_text(answer) if answer else ""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    return code


def answer_text(answer: RecallAnswer) -> str:
    lines = [line for each in answer.results for line in _result_lines(each)] or ["Nothing was found."]
    if answer.left_out:
        lines.append(f"{answer.left_out:,} more did not fit; raise --k or --budget-tokens to see them.")
    fresh = freshness_line(SearchAnswer((), answer.freshness, took_ms=answer.took_ms))
    return "\n".join([*lines, fresh])


def _result_lines(result: RecallResult) -> list[str]:
    about = [result.kind, result.timestamp, f"c={result.confidence:.2f}" if result.confidence is not None else ""]
    about += [f"from {result.origin}" if result.origin else "", ", ".join(result.entities)]
    head = f"{result.source}  {result.score:.2f}  {'  '.join(filter(None, about))}"
    return [head, *(f"  {line}" for line in result.text.splitlines()), ""]


def entities_text(_: Shell, found: EntityList) -> str:
    lines = [f"{each.path}#L{each.line} is no fact: {each.why}" for each in found.troubles]
    if not found.entities:
        return "\n".join([*lines, "No fact names anybody yet. Write `## Retain` bullets: - W @Peter: Lives in Lisbon."])
    rows = [
        (
            each.name,
            f"{each.facts:,}",
            f"{each.first_day} – {each.last_day}" if each.first_day else "",
            ", ".join(each.also),
        )
        for each in found.entities
    ]
    return "\n".join(
        [*lines, *columns([("NAME", "FACTS", "NAMED", "ALSO"), *rows]), f"{count_of(found.facts, 'fact')}."]
    )


def entity_text(_: Shell, found: EntityDetails) -> str:
    about = found.entity
    lines = [f"{about.name}  {count_of(about.facts, 'fact')}  {about.first_day} – {about.last_day}"]
    lines += [f"  also {each.name}: {each.why}" for each in found.merges]
    return "\n".join([*lines, "", *(line for each in found.facts for line in _result_lines(each))])


def declared_text(_: Shell, found: DeclaredNames) -> str:
    also = f", also {', '.join(found.entity.also)}" if found.entity.also else ""
    return f"{found.entity.name}: {count_of(found.entity.facts, 'fact')}{also}. Written to {found.path}."


class EntityCommands(click.Group):
    """Without a command it lists."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_list = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, ["list", *args] if is_list else args)


entities = EntityCommands("entities", help="People, places and things that facts name.")
add_operation(entities, list_entities, entities_text, name="list")
add_operation(entities, show_entity, entity_text)
add_operation(entities, merge_entities, declared_text)
add_operation(entities, split_entity, declared_text)
