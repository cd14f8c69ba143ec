"""`pal memory recall` and `pal memory entities`."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from palinurus.cli.command import add_operation, call_operation, command_of, make_on_first_run, with_home
from palinurus.cli.memory import freshness_line, of_agent
from palinurus.cli.shell import CommandGroup, Shell, columns, count_of, with_shell
from palinurus.domain.errors import PalinurusError
from palinurus.extensions.knowledge.beliefs import BeliefChange
from palinurus.extensions.knowledge.operations import (
    BankDiff,
    BeliefList,
    DeclaredNames,
    EntityDetails,
    EntityList,
    ProposalList,
    RestoredPage,
    accept_proposal,
    diff_bank,
    list_beliefs,
    list_entities,
    list_proposals,
    merge_entities,
    reject_proposal,
    restore_bank_page,
    show_entity,
    split_entity,
)
from palinurus.extensions.knowledge.operations import recall as recall_operation
from palinurus.extensions.knowledge.operations import reflect as reflect_operation
from palinurus.extensions.knowledge.recall import RecallAnswer, RecallQuestion, RecallResult
from palinurus.extensions.knowledge.reflect import BankProposal, Reflection
from palinurus.memory.answer import SearchAnswer
from palinurus.runtime.home_access import HomeAccess
from palinurus.text.fact_lines import KINDS


@click.command("recall")
@click.argument("query", nargs=-1, metavar="QUESTION...")
@of_agent
@click.option(
    "--k", type=click.IntRange(1, 1000), help="At most so many results. Default: 25, or what fits into --budget-tokens."
)
@click.option("--since", default="", metavar="DUR", help="Only what happened or was said since: 30d, 6w, 3m, a day.")
@click.option("--as-of", default="", metavar="DATE", help="Only what had been said by that day.")
@click.option("--entity", default="", metavar="NAME", help="Only facts that name this person, place or thing.")
@click.option("--kind", type=click.Choice([*KINDS.values()]), help="Only facts of this kind.")
@click.option("--budget-tokens", type=click.IntRange(1, 1_000_000), help="Limit the answer to this many tokens.")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read one question per line from standard input.")
@with_shell
def recall(shell: Shell, /, query: tuple[str, ...], from_stdin: bool, **options: Any) -> int | None:
    """Show facts and lines of notes that answer a question: what they are, since when, and from where.

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
    about += [
        f"until {result.until}" if result.until else "",
        f"from {result.origin}" if result.origin else "",
        ", ".join(result.entities),
    ]
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


class ListingGroup(CommandGroup):
    """Without a command it lists."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_list = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, ["list", *args] if is_list else args)


entities = ListingGroup("entities", help="Show people, places and things that facts name; merge and split names.")
add_operation(entities, list_entities, entities_text, name="list")
add_operation(entities, show_entity, entity_text)
add_operation(entities, merge_entities, declared_text)
add_operation(entities, split_entity, declared_text)


def beliefs_text(shell: Shell, found: BeliefList) -> str:
    if found.changes:
        return "\n".join(line for each in found.changes for line in _change_lines(each))
    if not found.beliefs:
        return "No opinions yet. Write `## Retain` bullets: - O(c=0.8) @Peter: Prefers short mails."
    rows = []
    for each in found.beliefs:
        votes = f"{len(each.supporting)} for, {len(each.contradicting)} against"
        rows.append((f"{each.confidence:.2f}", ", ".join(each.entities), each.statement, votes, each.last_day))
    return "\n".join(columns([("SURE", "ABOUT", "BELIEF", "FACTS", "LAST"), *rows]))


def _change_lines(change: BeliefChange) -> list[str]:
    about = f"{', '.join(change.entities)}: " if change.entities else ""
    if not change.before:
        head = f"new  {about}{change.statement} ({change.confidence:.2f})"
    elif change.before == change.statement:
        head = f"{about}{change.statement}: {change.confidence_before or 0:.2f} → {change.confidence:.2f}"
    else:
        head = f"changed  {about}{change.before} → {change.statement} ({change.confidence:.2f})"
    return [head, *(f"  {each.day}  {'for' if each.is_for else 'against'}  {each.source}" for each in change.because)]


def reflection_text(_: Shell, done: Reflection) -> str:
    verb = "would change" if done.dry_run else "changed"
    lines = [f"{each.path}#L{each.line} is no fact: {each.why}" for each in done.troubles]
    for each in done.pages:
        if each.left_alone:
            lines.append(f"{each.path} was left as it is: {each.left_alone}; --accept-loss writes it.")
            continue
        own = f", {len(each.edited)} edited by you" if each.edited else ""
        own += f", {len(each.deleted)} deleted by you" if each.deleted else ""
        lines.append(f"{each.path} {verb}: {each.added} lines more, {each.removed} less{own}")
    lines += [line for each in done.beliefs for line in _change_lines(each)]
    lines += [f"noted in {each}" for each in done.noted]
    if done.model_calls:
        dropped = f", {done.dropped} dropped because no note bears them out" if done.dropped else ""
        lines.append(f"{count_of(done.model_calls, 'call')} of a model{dropped}.")
    if done.model_trouble:
        lines.append(f"Plain notes were read by rule: {done.model_trouble}.")
    new = f"{done.new_facts:,} since {done.since}"
    lines.append(f"{count_of(done.facts, 'fact')}, {new}; {count_of(len(done.pages), 'page')} {verb}.")
    if done.proposals:
        waiting = count_of(len(done.proposals), "proposal")
        lines.append(f"{waiting} for MEMORY.md: `pal memory proposals`")
    if done.commit:
        lines.append(f"Commit {done.commit[:12]}; `pal memory bank diff` shows it.")
    return "\n".join(lines)


def proposals_text(_: Shell, found: ProposalList) -> str:
    if not found.proposals:
        return "Nothing is proposed for MEMORY.md. `pal memory reflect` looks for what is worth it."
    rows = [(each.id, each.text, each.why, each.sources[0] if each.sources else "") for each in found.proposals]
    return "\n".join(
        [*columns([("ID", "LINE", "WHY", "SOURCE"), *rows]), "", "`pal memory proposals accept ID`, or `reject ID`."]
    )


def accepted_text(_: Shell, done: BankProposal) -> str:
    return f"MEMORY.md says now: {done.text}"


def rejected_text(_: Shell, done: BankProposal) -> str:
    return f"Not proposed again: {done.text}"


def diff_text(_: Shell, found: BankDiff) -> str:
    return found.text.rstrip() + ("\n[cut]" if found.is_cut else "")


def restored_text(_: Shell, done: RestoredPage) -> str:
    return f"{done.path} is as it was at {done.commit[:12]}."


beliefs = command_of(list_beliefs, beliefs_text, name="beliefs")
reflect = command_of(reflect_operation, reflection_text, name="reflect")
proposals = ListingGroup("proposals", help="Accept or reject lines that a reflection proposes for MEMORY.md.")
add_operation(proposals, list_proposals, proposals_text, name="list")
add_operation(proposals, accept_proposal, accepted_text)
add_operation(proposals, reject_proposal, rejected_text)
bank = CommandGroup("bank", help="Show or undo changes to the pages in `bank/`.")
add_operation(bank, diff_bank, diff_text)
add_operation(bank, restore_bank_page, restored_text)
