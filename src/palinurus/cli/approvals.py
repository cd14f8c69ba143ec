"""`pal approvals`: decide about what waits, and look after what is allowed for longer."""

from __future__ import annotations

import sys
from typing import Any, get_args

import click
import msgspec

from palinurus.cli.approval_prompt import (
    allowlist_lines,
    answered_text,
    grants_text,
    list_text,
    outside_text,
    preview_text,
    show_text,
)
from palinurus.cli.command import call_operation, command_of
from palinurus.cli.shell import Shell, echo, with_json
from palinurus.domain.errors import BadRequest, NotConfirmed
from palinurus.operations.approvals import (
    GrantList,
    MakeGrant,
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
from palinurus.tools.grants import Grant, Scope, rule_text

_scope = click.option(
    "--scope", type=click.Choice(get_args(Scope)), default="agent", show_default=True, help="Where the rule applies."
)
_days = click.option("--days", type=float, help="Days until it expires. Default: tools.exec.grantDays, else 90.")
_yes = click.option("--yes", is_flag=True, help="Do not ask for confirmation, whatever the rule would have allowed.")


@click.group()
def approvals() -> None:
    """Answer waiting approvals, and manage grants.

    A rule is a program and a pattern for each of its arguments; a final * matches all further arguments. A pattern
    never matches an option: a rule must name options.
    """


@approvals.command()
@click.argument("approval_id", metavar="ID")
@click.option("--always", is_flag=True, help="Also create a grant: for exactly this command, or for --rule.")
@click.option("--rule", default="", help='A wider rule that matches the command, such as "git diff *".')
@_scope
@_days
@_yes
@with_json
@click.pass_obj
def allow(shell: Shell, approval_id: str, always: bool, rule: str, scope: Scope, days: float | None, yes: bool) -> None:
    """Approve a waiting call, once or always.

    \b
    Examples:
      pal approvals allow k3m9xz
      pal approvals allow k3m9xz --always --days 7
      pal approvals allow k3m9xz --always --rule "git diff *"
    """
    if rule and not always:
        raise BadRequest("--rule needs --always", hint=f"pal approvals allow {approval_id} --always --rule …")
    shown = call_operation(shell, show_approval, show_approval.params(approval_id)).approval
    answer: Answer = "allow-always" if always else "allow-once"
    asked = answer_approval.params(
        id=shown.id, answer=answer, digest=shown.digest, rule=rule, scope=scope, days=days, confirmed=yes
    )
    answered = _confirm_and_call(shell, answer_approval, asked)
    shell.show(answered, lambda: answered_text(answered))


@approvals.command()
@click.argument("approval_id", metavar="ID")
@with_json
@click.pass_obj
def deny(shell: Shell, approval_id: str) -> None:
    """Deny a waiting call. The agent is told.

    \b
    Example:
      pal approvals deny k3m9xz
    """
    answered = call_operation(shell, answer_approval, answer_approval.params(id=approval_id, answer="deny"))
    shell.show(answered, lambda: answered_text(answered))


@approvals.command()
@click.argument("sources", metavar="[SOURCE]...", nargs=-1)
@click.option("--session", default="", help="Which session. Default: the main session.")
@_scope
@_days
@with_json
@click.pass_obj
def trust(shell: Shell, sources: tuple[str, ...], session: str, scope: Scope, days: float | None) -> None:
    """Trust a source of untrusted text, or list the untrusted sources of a session.

    While a session contains untrusted text, the agent needs approval to write instructions, send something or run a
    command outside the sandbox. Trusted sources do not count. `pal approvals revoke` removes the trust.

    \b
    Examples:
      pal approvals trust                           # list the untrusted sources of the main session
      pal approvals trust docs.python.org '*.example.org' docs/ skill:pdf
      pal approvals trust all --scope session       # all untrusted text in it now
    """
    if not sources:
        held = call_operation(shell, list_outside_texts, list_outside_texts.params(session))
        shell.show(held, lambda: outside_text(held))
        return
    asked = trust_sources.params(sources=sources, session=session, scope=scope, days=days)
    given = call_operation(shell, trust_sources, asked)
    shell.show(given, lambda: grants_text(given.grants))


@approvals.command()
@click.argument("rule", default="")
@click.option("--like", multiple=True, help="An example command; repeat it to get the narrowest rule that matches all.")
@click.option("--agent", default="", help="Whose rule it is. Default: the default agent.")
@click.option("--session", default="", help="The session's key, for --scope session.")
@click.option("--dry-run", is_flag=True, help="Only show what the rule would have allowed.")
@_scope
@_days
@_yes
@with_json
@click.pass_obj
def grant(shell: Shell, /, rule: str, like: tuple[str, ...], dry_run: bool, yes: bool, **options: Any) -> None:
    """Grant a rule, after showing which past commands it would have allowed.

    \b
    Examples:
      pal approvals grant "git diff *" --dry-run
      pal approvals grant "git diff --stat *" --days 30
      pal approvals grant --like "cat src/a.py" --like "cat src/b.py"
    """
    if dry_run:
        wanted = preview_rule.params(rule=rule, examples=like, agent=options["agent"])
        preview = call_operation(shell, preview_rule, wanted)
        shell.show(preview, lambda: preview_text(preview))
        return
    made = _confirm_and_call(shell, make_grant, MakeGrant(rule, like, confirmed=yes, **options))
    shell.show(made, lambda: grants_text(made.grants))


def _confirm_and_call(shell: Shell, operation: Operation[P, R], params: P) -> R:
    """Call it again with a second yes, where one is needed and there is a terminal to ask at."""
    try:
        return call_operation(shell, operation, params)
    except NotConfirmed as error:
        if shell.as_json or not sys.stdin.isatty():
            raise NotConfirmed(error.message, hint="needs a terminal; use --yes") from None
        echo(error.message, err=True)
    click.confirm("Allow it anyway?", abort=True, err=True)
    return call_operation(shell, operation, msgspec.structs.replace(params, confirmed=True))


def _held_text(_: Shell, listed: GrantList) -> str:
    return "\n".join((grants_text(listed.grants), *allowlist_lines(listed.allowlist)))


def _revoked_text(_: Shell, gone: Grant) -> str:
    return f"{gone.id} no longer holds: {visible(rule_text(gone))}"


approvals.add_command(command_of(list_approvals, list_text))
approvals.add_command(command_of(show_approval, show_text))
approvals.add_command(command_of(list_grants, _held_text))
approvals.add_command(command_of(revoke_grant, _revoked_text))
