"""`pal approvals`: decide about what waits, and look after what is allowed for longer."""

from __future__ import annotations

import sys
from typing import get_args

import click
import msgspec

from palinurus.cli.approvals_text import (
    allowlist_lines,
    answered_text,
    grants_text,
    list_text,
    outside_text,
    preview_text,
    show_text,
)
from palinurus.cli.derived import ask, command_of
from palinurus.cli.output import echo
from palinurus.cli.shell import Shell, with_json
from palinurus.domain.errors import BadRequest, NotConfirmed
from palinurus.operations.approvals import (
    GrantList,
    answer_approval,
    list_approvals,
    list_grants,
    make_grant,
    preview_rule,
    revoke_grant,
    show_approval,
)
from palinurus.operations.table import Operation, P, R
from palinurus.operations.trust import list_outside_texts, trust_sources
from palinurus.tools.approvals.approval import Answer
from palinurus.tools.approvals.rendering import visible
from palinurus.tools.grants.grants import Grant, Scope, words

_scope = click.option(
    "--scope", type=click.Choice(get_args(Scope)), default="agent", show_default=True, help="Where the rule holds."
)
_days = click.option("--days", type=float, help="How long it holds. Default: tools.exec.grantDays, else 90.")
_yes = click.option("--yes", is_flag=True, help="Give it without asking, whatever it would have let through.")


@click.group()
def approvals() -> None:
    """Decide about what waits, and look after what is allowed for longer.

    A rule is a program and a pattern for each of its arguments; a last * stands for any that follow. A pattern never
    stands for a flag: rules name those.
    """


@approvals.command()
@click.argument("approval_id", metavar="ID")
@click.option("--always", is_flag=True, help="From now on as well: these very words, or those of --rule.")
@click.option("--rule", default="", help='A wider rule that fits, such as "git diff *".')
@_scope
@_days
@_yes
@with_json
@click.pass_obj
def allow(shell: Shell, approval_id: str, always: bool, rule: str, scope: Scope, days: float | None, yes: bool) -> None:
    """Allow one plan, once or always.

    \b
    Examples:
      pal approvals allow k3m9xz
      pal approvals allow k3m9xz --always --days 7
      pal approvals allow k3m9xz --always --rule "git diff *"
    """
    if rule and not always:
        raise BadRequest("a rule goes with --always", hint=f"pal approvals allow {approval_id} --always --rule …")
    shown = ask(shell, show_approval, show_approval.params(approval_id)).approval
    answer: Answer = "allow-always" if always else "allow-once"
    asked = answer_approval.params(
        id=shown.id, answer=answer, digest=shown.digest, rule=rule, scope=scope, days=days, confirmed=yes
    )
    answered = _ask_twice(shell, answer_approval, asked)
    shell.show(answered, lambda: answered_text(answered))


@approvals.command()
@click.argument("approval_id", metavar="ID")
@with_json
@click.pass_obj
def deny(shell: Shell, approval_id: str) -> None:
    """Say no. The agent is told.

    \b
    Example:
      pal approvals deny k3m9xz
    """
    answered = ask(shell, answer_approval, answer_approval.params(id=approval_id, answer="deny"))
    shell.show(answered, lambda: answered_text(answered))


@approvals.command()
@click.argument("sources", metavar="[SOURCE]...", nargs=-1)
@click.option("--session", default="", help="The conversation that is meant. Default: the main one.")
@_scope
@_days
@with_json
@click.pass_obj
def trust(shell: Shell, sources: tuple[str, ...], session: str, scope: Scope, days: float | None) -> None:
    """Declare text from outside trusted, or list what a conversation holds of it.

    While a conversation holds text from outside, the agent asks before it writes instructions, sends something or runs
    a command outside the sandbox. What you trust does not count. `pal approvals revoke` takes it back.

    \b
    Examples:
      pal approvals trust                           # what the main conversation holds from outside
      pal approvals trust docs.python.org '*.example.org' docs/ skill:pdf
      pal approvals trust all --scope session       # the texts that it holds now
    """
    if not sources:
        held = ask(shell, list_outside_texts, list_outside_texts.params(session))
        shell.show(held, lambda: outside_text(held))
        return
    asked = trust_sources.params(sources=sources, session=session, scope=scope, days=days)
    given = ask(shell, trust_sources, asked)
    shell.show(given, lambda: grants_text(given.grants))


@approvals.command()
@click.argument("rule", default="")
@click.option("--like", multiple=True, help="A command to allow; of several the narrowest rule is made.")
@click.option("--agent", default="", help="Whose rule it is. Default: the default agent.")
@click.option("--session", default="", help="The session's key, for --scope session.")
@click.option("--dry-run", is_flag=True, help="Only show what it would have let through.")
@_scope
@_days
@_yes
@with_json
@click.pass_obj
def grant(
    shell: Shell,
    rule: str,
    like: tuple[str, ...],
    agent: str,
    session: str,
    dry_run: bool,
    scope: Scope,
    days: float | None,
    yes: bool,
) -> None:
    """Allow commands for longer, after a look at what the rule would have let through so far.

    \b
    Examples:
      pal approvals grant "git diff *" --dry-run
      pal approvals grant "git diff --stat *" --days 30
      pal approvals grant --like "cat src/a.py" --like "cat src/b.py"
    """
    if dry_run:
        preview = ask(shell, preview_rule, preview_rule.params(rule=rule, examples=like, agent=agent))
        shell.show(preview, lambda: preview_text(preview))
        return
    asked = make_grant.params(
        rule=rule, examples=like, agent=agent, session=session, scope=scope, days=days, confirmed=yes
    )
    made = _ask_twice(shell, make_grant, asked)
    shell.show(made, lambda: grants_text(made.grants))


def _ask_twice(shell: Shell, operation: Operation[P, R], params: P) -> R:
    """A second time with a yes, where the house wants one and somebody sits there to give it."""
    try:
        return ask(shell, operation, params)
    except NotConfirmed as error:
        if shell.as_json or not sys.stdin.isatty():
            raise NotConfirmed(error.message, hint="--yes gives it all the same") from None
        echo(error.message, err=True)
    click.confirm("Give it all the same?", abort=True, err=True)
    return ask(shell, operation, msgspec.structs.replace(params, confirmed=True))


def _held_text(_: Shell, listed: GrantList) -> str:
    return "\n".join((grants_text(listed.grants), *allowlist_lines(listed.allowlist)))


def _revoked_text(_: Shell, gone: Grant) -> str:
    return f"{gone.id} no longer holds: {visible(words(gone))}"


approvals.add_command(command_of(list_approvals, list_text))
approvals.add_command(command_of(show_approval, show_text))
approvals.add_command(command_of(list_grants, _held_text))
approvals.add_command(command_of(revoke_grant, _revoked_text))
