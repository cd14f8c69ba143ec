"""Approvals, grants and trials of rules as text for people. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from palinurus.cli.shell import Shell
from palinurus.operations.approvals import AllowedLine, Answered, ApprovalList, Preview, Proposed, ShownApproval
from palinurus.operations.approve import asked
from palinurus.operations.trials import Trial
from palinurus.operations.trust import OutsideList
from palinurus.tools.approvals.approval import Approval, outcome
from palinurus.tools.approvals.rendering import visible
from palinurus.tools.grants.grants import Grant, words


def list_text(shell: Shell, listed: ApprovalList) -> str:
    blocks = [f"{asked(each)}\n  waits     until {_moment(each.deadline)}" for each in listed.pending]
    if listed.settled:
        blocks.append("\n".join(shell.dim(_settled_line(each)) for each in listed.settled))
    if not listed.pending:
        blocks.insert(0, "Nothing waits for an approval.")
    return "\n\n".join(blocks)


def _settled_line(each: Approval) -> str:
    return f"{each.id}  {_moment(each.asked_at)}  {outcome(each)}: {_short(each.plan.summary)}"


def show_text(_: Shell, shown: ShownApproval) -> str:
    lines = [asked(shown.approval), f"  session   {shown.approval.session_key}", f"  digest    {shown.approval.digest}"]
    if shown.why_not_always:
        lines.append(f"\nThis cannot be allowed always: {visible(shown.why_not_always)}.")
    if shown.always is not None:
        lines += ["\nAlways would mean:", *trial_lines(shown.always)]
    if shown.proposals:
        lines += ["\nTogether with commands like it that were allowed before:", *map(_rule_line, shown.proposals)]
    return "\n".join(lines)


def preview_text(preview: Preview) -> str:
    proposed = [_rule_line(each) for each in preview.rules if each.remark or each.examples > 1]
    return "\n".join([*proposed, *trial_lines(preview.trial)])


def _rule_line(rule: Proposed) -> str:
    covers = f"  covers {rule.examples} of them" if rule.examples > 1 else ""
    return f"  {visible(rule.rule)}{covers}{f'  ({rule.remark})' if rule.remark else ''}"


def trial_lines(trial: Trial) -> list[str]:
    lines = [f"  {visible(rule)}" for rule in trial.rules]
    lines += [f"  note: {remark}" for remark in trial.remarks]
    lines.append(f"It would have allowed {trial.allowed:,} of {trial.total:,} past commands.")
    if trial.sensitive_count:
        lines.append(f"Among them {trial.sensitive_count:,} that stand out:")
        lines += [
            f"  {_moment(each.at)}  {_short(each.command)}  ({', '.join(each.reasons)})" for each in trial.sensitive
        ]
    return lines


def answered_text(answered: Answered) -> str:
    text = f"{answered.approval.id}: {outcome(answered.approval)}: {_short(answered.approval.plan.summary)}"
    return f"{text}\n{grants_text(answered.grants)}" if answered.grants else text


def grants_text(listed: tuple[Grant, ...]) -> str:
    if not listed:
        return "Nothing is allowed for longer than once."
    rows = []
    for each in listed:
        where = {"home": "everywhere", "agent": f"agent {each.agent}", "session": each.session_key}[each.scope]
        state = f"until {_moment(each.expires_at)}" if each.expires_at else "without an end"
        state = f"revoked {_moment(each.revoked_at)}" if each.revoked_at else state
        used = _used(each.last_used_at, each.last_used_command)
        rows.append(f"{each.id}  {visible(words(each))}\n        {each.binary or each.tool}; {where}; {state}; {used}")
    return "\n".join(rows)


def outside_text(held: OutsideList) -> str:
    if not held.texts:
        return f"{held.session_key} holds nothing from outside."
    rows = [f"{visible(each.source) or 'source not known'}{'  trusted' if each.trusted else ''}" for each in held.texts]
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
