"""A person is asked at a terminal: what they are shown, and what their answer means."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from palinurus.cli.input_lines import InputLines
from palinurus.cli.shell import Shell, echo
from palinurus.domain.errors import NotConfirmed, PalinurusError
from palinurus.domain.events import ApprovalAsked, ApprovalSettled
from palinurus.operations.approvals import (
    AllowedLine,
    AnsweredApproval,
    ApprovalList,
    ProposedRule,
    RulePreview,
    ShownApproval,
    Trial,
    answer_approval,
    show_approval,
)
from palinurus.operations.approve import asked
from palinurus.operations.table import OperationClient
from palinurus.operations.trust import OutsideList
from palinurus.tools.approvals.approval import Answer, Approval, outcome
from palinurus.tools.approvals.rendering import render_plan, visible
from palinurus.tools.grants import Grant, rule_text


def list_text(shell: Shell, listed: ApprovalList) -> str:
    blocks = [f"{asked(each)}\n  waits     until {_moment(each.deadline)}" for each in listed.pending]
    if listed.settled:
        blocks.append("\n".join(shell.dim(_settled_line(each)) for each in listed.settled))
    if not listed.pending:
        blocks.insert(0, "No approvals are waiting.")
    return "\n\n".join(blocks)


def _settled_line(each: Approval) -> str:
    return f"{each.id}  {_moment(each.asked_at)}  {outcome(each)}: {_short(each.plan.summary)}"


def show_text(_: Shell, shown: ShownApproval) -> str:
    lines = [asked(shown.approval), f"  session   {shown.approval.session_key}", f"  digest    {shown.approval.digest}"]
    if shown.why_not_always:
        lines.append(f"\nIt cannot be allowed always: {visible(shown.why_not_always)}.")
    if shown.always is not None:
        lines += ["\nAlways would mean:", *trial_lines(shown.always)]
    if shown.proposals:
        lines += ["\nRules that also match similar commands allowed before:", *map(_rule_line, shown.proposals)]
    return "\n".join(lines)


def preview_text(preview: RulePreview) -> str:
    proposed = [_rule_line(each) for each in preview.rules if each.remark or each.examples > 1]
    return "\n".join([*proposed, *trial_lines(preview.trial)])


def _rule_line(rule: ProposedRule) -> str:
    covers = f"  covers {rule.examples} of them" if rule.examples > 1 else ""
    return f"  {visible(rule.rule)}{covers}{f'  ({rule.remark})' if rule.remark else ''}"


def trial_lines(trial: Trial) -> list[str]:
    lines = [f"  {visible(rule)}" for rule in trial.rules]
    lines += [f"  note: {remark}" for remark in trial.remarks]
    lines.append(f"It would have allowed {trial.allowed:,} of {trial.total:,} past commands.")
    if trial.sensitive_count:
        lines.append(f"Among them {trial.sensitive_count:,} that need a second look:")
        lines += [
            f"  {_moment(each.at)}  {_short(each.command)}  ({', '.join(each.reasons)})" for each in trial.sensitive
        ]
    return lines


def answered_text(answered: AnsweredApproval) -> str:
    text = f"{answered.approval.id}: {outcome(answered.approval)}: {_short(answered.approval.plan.summary)}"
    return f"{text}\n{grants_text(answered.grants)}" if answered.grants else text


def grants_text(listed: tuple[Grant, ...]) -> str:
    if not listed:
        return "There are no grants."
    rows = []
    for each in listed:
        where = {"home": "everywhere", "agent": f"agent {each.agent}", "session": each.session_key}[each.scope]
        state = f"until {_moment(each.expires_at)}" if each.expires_at else "no expiry"
        state = f"revoked {_moment(each.revoked_at)}" if each.revoked_at else state
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


def allowlist_lines(allowed: Sequence[AllowedLine]) -> list[str]:
    """What the config allows, and when it was needed."""
    lines = ["By tools.exec.allowlist of the config:"] if allowed else []
    return lines + [
        f"        {visible(each.pattern)}; agent {each.agent}; {_used(each.last_used_at, each.last_used_command)}"
        for each in allowed
    ]


def _used(at: int | None, command: str) -> str:
    return f"last used {_moment(at)} for {_short(command)}" if at else "not used yet"


def _moment(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000).astimezone():%Y-%m-%d %H:%M}"


def _short(text: str, most: int = 100) -> str:
    seen = visible(text)
    return seen if len(seen) <= most else f"{seen[: most - 1]}…"


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


class ApprovalPrompt:
    """Asks line by line, where there is no screen: on standard error, and of `lines` when somebody sits there."""

    def __init__(self, shell: Shell, caller: OperationClient, lines: InputLines | None) -> None:
        self._shell = shell
        self._caller = caller
        self._lines = lines
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._warned: set[str] = set()

    def hear(self, event: ApprovalAsked | ApprovalSettled) -> None:
        if isinstance(event, ApprovalSettled):
            self._shell.warn(settled(event))
            if task := self._tasks.pop(event.id, None):
                task.cancel()
            return
        headline, plan = question(event)
        how = CHOICES if self._lines else f"answer with: pal approvals allow {event.id}, or deny {event.id}"
        echo("\n".join([headline, *(f"  {line}" for line in plan), f"  {how}"]), err=True)
        if self._lines is not None:
            self._tasks[event.id] = asyncio.create_task(self._ask(event, self._lines))

    async def _ask(self, event: ApprovalAsked, lines: InputLines) -> None:
        while (line := await lines.next()) is not None:
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
