"""`pal approvals`, and how a person is asked at a terminal: what they are shown, and what their answer means."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, get_args

import click
import msgspec

from palinurus.cli.command import add_operation, call_operation
from palinurus.cli.shell import CommandGroup, Shell, echo, moment, shorten, with_shell
from palinurus.domain.errors import BadRequest, NotConfirmed, PalinurusError
from palinurus.domain.events import ApprovalAsked, ApprovalSettled, render_plan, visible
from palinurus.operations import approvals as operations
from palinurus.operations.approvals import answer_approval, show_approval
from palinurus.operations.approve import asked
from palinurus.operations.table import Operation, OperationClient, P, R
from palinurus.operations.trust import OutsideList, list_outside_texts, trust_sources
from palinurus.tools.approval import Answer, Approval, outcome
from palinurus.tools.grants import Grant, Scope, rule_text


def list_text(shell: Shell, listed: operations.ApprovalList) -> str:
    blocks = [f"{asked(each)}\n  waits     until {moment(each.deadline)}" for each in listed.pending]
    if listed.settled:
        settled = (f"{each.id}  {moment(each.asked_at)}  {_outcome(each)}" for each in listed.settled)
        blocks.append("\n".join(map(shell.dim, settled)))
    if not listed.pending:
        blocks.insert(0, "No approvals are waiting.")
    return "\n\n".join(blocks)


def show_text(_: Shell, shown: operations.ShownApproval) -> str:
    lines = [asked(shown.approval), f"  session   {shown.approval.session_key}", f"  digest    {shown.approval.digest}"]
    if shown.why_not_always:
        lines.append(f"\nIt cannot be allowed always: {visible(shown.why_not_always)}.")
    if shown.always is not None:
        lines += ["\nAlways would mean:", *trial_lines(shown.always)]
    if shown.proposals:
        lines += ["\nRules that also match similar commands allowed before:", *map(_rule_line, shown.proposals)]
    return "\n".join(lines)


def preview_text(preview: operations.RulePreview) -> str:
    proposed = [_rule_line(each) for each in preview.rules if each.remark or each.examples > 1]
    return "\n".join([*proposed, *trial_lines(preview.trial)])


def _rule_line(rule: operations.ProposedRule) -> str:
    covers = f"  covers {rule.examples} of them" if rule.examples > 1 else ""
    return f"  {visible(rule.rule)}{covers}{f'  ({rule.remark})' if rule.remark else ''}"


def trial_lines(trial: operations.Trial) -> list[str]:
    lines = [f"  {visible(rule)}" for rule in trial.rules]
    lines += [f"  note: {remark}" for remark in trial.remarks]
    lines.append(f"It would have allowed {trial.allowed:,} of {trial.total:,} past commands.")
    if trial.sensitive_count:
        lines.append(f"Among them {trial.sensitive_count:,} that need a second look:")
        lines += [
            f"  {moment(each.at)}  {_short(each.command)}  ({', '.join(each.reasons)})" for each in trial.sensitive
        ]
    return lines


def answered_text(answered: operations.AnsweredApproval) -> str:
    text = f"{answered.approval.id}: {_outcome(answered.approval)}"
    return f"{text}\n{grants_text(answered.grants)}" if answered.grants else text


def grants_text(listed: tuple[Grant, ...]) -> str:
    if not listed:
        return "There are no grants."
    rows = []
    for each in listed:
        where = {"home": "everywhere", "agent": f"agent {each.agent}", "session": each.session_key}[each.scope]
        state = f"until {moment(each.expires_at)}" if each.expires_at else "no expiry"
        state = f"revoked {moment(each.revoked_at)}" if each.revoked_at else state
        used = _used(each.last_used_at, each.last_used_command)
        rows.append(
            f"{each.id}  {visible(rule_text(each))}\n        {each.binary or each.tool}; {where}; {state}; {used}"
        )
    return "\n".join(rows)


def outside_text(held: OutsideList) -> str:
    if not held.texts:
        return f"{held.session_key} contains no untrusted text."
    rows = [f"{visible(each.source) or 'unknown source'}{'  trusted' if each.trusted else ''}" for each in held.texts]
    return "\n".join(dict.fromkeys(rows))


def allowlist_lines(allowed: Sequence[operations.AllowedLine]) -> list[str]:
    """What the config allows, and when it was needed."""
    lines = ["By tools.exec.allowlist of the config:"] if allowed else []
    for each in allowed:
        used = _used(each.last_used_at, each.last_used_command)
        lines.append(f"        {visible(each.pattern)}; agent {each.agent}; {used}")
    return lines


def _used(at: int | None, command: str) -> str:
    return f"last used {moment(at)} for {_short(command)}" if at else "not used yet"


def _outcome(approval: Approval) -> str:
    return f"{outcome(approval)}: {_short(approval.plan.summary)}"


def _short(text: str) -> str:
    return shorten(visible(text), 100)


WORDS: dict[str, Answer] = {
    "y": "allow-once",
    "yes": "allow-once",
    "once": "allow-once",
    "a": "allow-always",
    "always": "allow-always",
    "n": "deny",
    "no": "deny",
    "deny": "deny",
}

CHOICES = "y allow once · a allow always · n deny"


def meaning(text: str) -> Answer | None:
    """The answer that these words are, or None when they are something else."""
    return WORDS.get(text.strip().lower())


def question(event: ApprovalAsked) -> tuple[str, list[str]]:
    """The headline, and the exact plan below it."""
    return f"May I? {visible(event.reason)} (approval {event.id})", render_plan(event.plan)


def settled(event: ApprovalSettled) -> str:
    said = {
        "allowed-once": "allowed once",
        "allowed-always": "allowed always",
        "expired": "no answer in time",
        "unattended": "no person could be asked",
        "abandoned": "the run ended first",
    }
    return f"approval {event.id}: {said.get(event.status, event.status)}{f' by {event.by}' if event.by else ''}"


NextLine = Callable[[], Awaitable[str | None]]


class ApprovalPrompt:
    """Asks line by line, where there is no screen: on standard error; answered by `next_line` when somebody is there.

    It gives what they type, None at the end.
    """

    def __init__(self, shell: Shell, caller: OperationClient, next_line: NextLine | None) -> None:
        self._shell = shell
        self._caller = caller
        self._next_line = next_line
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._warned: set[str] = set()

    def hear(self, event: ApprovalAsked | ApprovalSettled) -> None:
        if isinstance(event, ApprovalSettled):
            self._shell.warn(settled(event))
            if task := self._tasks.pop(event.id, None):
                task.cancel()
            return
        headline, plan = question(event)
        how = CHOICES if self._next_line else f"answer with: pal approvals allow {event.id}, or deny {event.id}"
        echo("\n".join([headline, *(f"  {line}" for line in plan), f"  {how}"]), err=True)
        if self._next_line is not None:
            self._tasks[event.id] = asyncio.create_task(self._ask(event, self._next_line))

    async def _ask(self, event: ApprovalAsked, next_line: NextLine) -> None:
        while (line := await next_line()) is not None:
            said = meaning(line)
            if said is None:
                echo(f"  {CHOICES}", err=True)
                continue
            try:
                return await answer(self._caller, event, said, self._warned)
            except PalinurusError as error:
                self._shell.warn(str(error))
        return None


async def answer(caller: OperationClient, event: ApprovalAsked, said: Answer, warned: set[str]) -> None:
    """Hand the answer in, for the very plan that was shown. Raises what the operation raises.

    What needs a second yes raises NotConfirmed with what it means, and puts the approval among the `warned`; said
    again, it is meant.
    """
    again = event.id in warned
    try:
        asked = answer_approval.params(id=event.id, answer=said, where="terminal", digest=event.digest, confirmed=again)
        await caller.call(answer_approval, asked)
    except NotConfirmed as error:
        warned.add(event.id)
        trial = (await caller.call(show_approval, show_approval.params(event.id))).always
        told = [error.message, *(trial_lines(trial) if trial else ())]
        raise NotConfirmed("\n".join(told), hint="say it again to allow it") from None


_scope = click.option(
    "--scope", type=click.Choice(get_args(Scope)), default="agent", show_default=True, help="Where the rule applies."
)
_days = click.option("--days", type=float, help="Days until it expires. Default: tools.exec.grantDays, else 90.")
_yes = click.option("--yes", is_flag=True, help="Do not ask for confirmation, whatever the rule would have allowed.")


@click.group(cls=CommandGroup)
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
@with_shell
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
    shown = call_operation(shell, show_approval, id=approval_id).approval
    answer: Answer = "allow-always" if always else "allow-once"
    asked = answer_approval.params(
        id=shown.id, answer=answer, digest=shown.digest, rule=rule, scope=scope, days=days, confirmed=yes
    )
    answered = _confirm_and_call(shell, answer_approval, asked)
    shell.show(answered, lambda: answered_text(answered))


@approvals.command()
@click.argument("approval_id", metavar="ID")
@with_shell
def deny(shell: Shell, approval_id: str) -> None:
    """Deny a waiting call. The agent is told.

    \b
    Example:
      pal approvals deny k3m9xz
    """
    answered = call_operation(shell, answer_approval, id=approval_id, answer="deny")
    shell.show(answered, lambda: answered_text(answered))


@approvals.command()
@click.argument("sources", metavar="[SOURCE]...", nargs=-1)
@click.option("--session", default="", help="Which session. Default: the main session.")
@_scope
@_days
@with_shell
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
        held = call_operation(shell, list_outside_texts, session=session)
        shell.show(held, lambda: outside_text(held))
        return
    given = call_operation(shell, trust_sources, sources=sources, session=session, scope=scope, days=days)
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
@with_shell
def grant(shell: Shell, /, rule: str, like: tuple[str, ...], dry_run: bool, yes: bool, **options: Any) -> None:
    """Grant a rule, after showing which past commands it would have allowed.

    \b
    Examples:
      pal approvals grant "git diff *" --dry-run
      pal approvals grant "git diff --stat *" --days 30
      pal approvals grant --like "cat src/a.py" --like "cat src/b.py"
    """
    if dry_run:
        preview = call_operation(shell, operations.preview_rule, rule=rule, examples=like, agent=options["agent"])
        shell.show(preview, lambda: preview_text(preview))
        return
    made = _confirm_and_call(shell, operations.make_grant, operations.MakeGrant(rule, like, confirmed=yes, **options))
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


def _held_text(_: Shell, listed: operations.GrantList) -> str:
    return "\n".join((grants_text(listed.grants), *allowlist_lines(listed.allowlist)))


add_operation(approvals, operations.list_approvals, list_text)
add_operation(approvals, show_approval, show_text)
add_operation(approvals, operations.list_grants, _held_text)
add_operation(
    approvals, operations.revoke_grant, lambda _, gone: f"{gone.id} no longer holds: {visible(rule_text(gone))}"
)
