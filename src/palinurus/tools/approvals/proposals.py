"""Before "always": what a rule would have let through so far, and the narrowest rule for what a person chose. Pure.

A proposal generalises as little as it can. Arguments that are equal stay as they are; where they differ, what they
begin and end with stays. Flags, sub-commands and programs that run other programs are never generalised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from palinurus.domain.plan import Invocation
from palinurus.ledger.audit import PastCommand
from palinurus.tools.approvals.sensitive import sensitive
from palinurus.tools.commands.hazards import allows, runs_other_programs
from palinurus.tools.grants.grants import EXEC, Grant, GrantDraft, covers, exactly
from palinurus.tools.grants.patterns import REST, Patterns, escape, matches

_SUBCOMMAND = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_ROOTED = re.compile(r"(?:.*[=:@,])?[/~][^/]*", re.DOTALL)  # an absolute path of which no whole part is known
Rules = Sequence[GrantDraft | Grant]


class Sensitive(Struct, frozen=True, rename="camel"):
    command: PastCommand
    reasons: tuple[str, ...]


class Replay(Struct, frozen=True, rename="camel"):
    """What rules would have let through."""

    total: int
    covered: tuple[PastCommand, ...]
    sensitive: tuple[Sensitive, ...]


class Proposal(Struct, frozen=True, rename="camel"):
    draft: GrantDraft
    examples: int  # how many of the chosen it covers
    remark: str = ""


def replay(rules: Rules, past: Iterable[PastCommand], known: Callable[[Invocation], bool] = lambda _: False) -> Replay:
    """Try rules on what was asked for before. `known`: what may run without them. A pipeline may need both."""
    total, covered = 0, []
    for command in past:
        total += 1
        programs = command.plan.invocations
        ours = [any(allows(rule, each) for rule in rules) for each in programs]
        if any(ours) and all(own or known(each) for own, each in zip(ours, programs, strict=True)):
            covered.append(command)
    marked = [Sensitive(each, reasons) for each in covered if (reasons := sensitive(each.plan))]
    return Replay(total, tuple(covered), tuple(marked))


def narrowest(examples: Iterable[Invocation]) -> tuple[Proposal, ...]:
    """The narrowest rules that cover all of the examples."""
    kinds: dict[object, list[Invocation]] = {}
    for each in dict.fromkeys(examples):
        kinds.setdefault(_kind(each), []).append(each)
    return tuple(proposal for group in kinds.values() for proposal in _proposed(group))


def alike(invocation: Invocation, past: Iterable[PastCommand]) -> tuple[Invocation, ...]:
    """What was allowed before of the same program with the same sub-command and flags, newest first."""
    kind = _kind(invocation)
    done = (each for command in past if command.outcome.startswith("allowed") for each in command.plan.invocations)
    return tuple(dict.fromkeys(each for each in done if _kind(each) == kind))


def _kind(each: Invocation) -> object:
    """Only what is equal in this is ever joined into one rule."""
    flags = tuple((index, arg) for index, arg in enumerate(each.args) if arg[:1] == "-")
    first = each.args[0] if each.args and _SUBCOMMAND.fullmatch(each.args[0]) else ""
    return each.binary, each.resolved, first, flags


def _proposed(group: list[Invocation]) -> list[Proposal]:
    first = group[0]
    remark = runs_other_programs(first.binary) or runs_other_programs(first.resolved)
    if len(group) > 1 and not remark:
        draft = GrantDraft(EXEC, first.binary, first.resolved, _joined([each.args for each in group]))
        if all(covers(draft, each) for each in group):
            return [Proposal(draft, len(group))]
        remark = "these have too little in common for one rule"
    return [Proposal(exactly(each), 1, remark) for each in group]


def _joined(rows: Sequence[tuple[str, ...]]) -> Patterns:
    """One pattern for each place; `**` for what only some have."""
    shortest = min(map(len, rows))
    patterns = [
        _tightest([row[place] for row in rows], behind_flag=place > 0 and rows[0][place - 1][:1] == "-")
        for place in range(shortest)
    ]
    if max(map(len, rows)) > shortest:
        return (*patterns, REST)
    # Written by hand, a last `*` means all that follows; this one argument is said in a way that reads the same.
    return (*patterns[:-1], "?*") if patterns[-1:] == ["*"] else tuple(patterns)


def _tightest(column: Sequence[str], *, behind_flag: bool) -> str:
    """What all begin and end with, and a `*` between; the first one alone where that would say too little."""
    first = column[0]
    prefix = _common_start(column)
    suffix = _common_start([each[len(prefix) :][::-1] for each in column])[::-1]
    if len(set(column)) == 1:
        return escape(first)
    # The value of a flag may be anything, a program to run included; an absolute path needs a folder at least.
    if (behind_flag and not prefix + suffix) or _ROOTED.fullmatch(prefix):
        return escape(first)
    pattern = f"{escape(prefix)}*{escape(suffix)}"
    return pattern if all(matches(pattern, each) for each in column) else escape(first)


def _common_start(texts: Sequence[str]) -> str:
    """What stands at the beginning of all: of the least and the greatest is enough."""
    least, greatest = min(texts), max(texts)
    same = next((at for at, char in enumerate(least) if char != greatest[at]), len(least))
    return least[:same]
