"""Before "always": what a rule would have allowed so far, and the narrowest rule for the chosen commands. Pure.

A proposal generalises as little as possible. Equal arguments stay as they are; where they differ, the common start and
end stay. Flags, sub-commands and programs that run other programs are never generalised.

A table with reasons marks commands that need a second look before a rule allows them. It is an aid for the reader, not
a security check: a command that is not in the table can still be harmful.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from os.path import commonprefix

from msgspec import Struct

from palinurus.domain.events import Invocation, Plan
from palinurus.ledger.audit import PastCommand
from palinurus.tools.commands.hazards import covers_by_name, runs_other_programs
from palinurus.tools.grants import (
    EXEC,
    REST,
    Grant,
    GrantDraft,
    Patterns,
    covers,
    escape,
    exact_draft,
    matches,
    rule_text,
)

# searched in each argument and in the folder
_PLACES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (reason, re.compile(pattern, re.IGNORECASE))
    for reason, pattern in (
        ("touches ~/.ssh", r"(?:^|[/=:@,~])\.ssh(?:/|$)"),
        ("touches ~/.gnupg", r"(?:^|[/=:@,~])\.gnupg(?:/|$)"),
        ("touches cloud credentials", r"(?:^|[/=:@,~])(?:\.aws|\.azure|\.kube|\.config/gcloud)(?:/|$)"),
        ("touches credentials", r"credential|passw|\.netrc|\.pgpass|\.npmrc|\.pypirc|\.docker/config|\.htpasswd"),
        ("touches an .env file", r"(?:^|[/=:@,])\.env(?:\.|$)"),
        ("touches keys", r"(?:^|[/=:@,])id_(?:rsa|dsa|ecdsa|ed25519)|\.(?:pem|p12|pfx|key|keystore|kdbx)$"),
        ("touches tokens or secrets", r"token(?!iz)|secret|api[-_]?key"),
        ("touches the home of pal", r"(?:^|[/=:@,~])\.(?:palinurus|openclaw)(?:-[\w-]+)?(?:/|$)"),
        ("touches /etc", r"(?:^|[=:@,])/etc(?:/|$)"),
        ("touches the system", r"(?:^|[=:@,])/(?:boot|dev(?!/(?:null|stdin|stdout|stderr)$)|sys|proc|root)(?:/|$)"),
        ("touches shell startup files", r"\.(?:bashrc|bash_profile|profile|zshrc|zshenv|xinitrc)$"),
        ("touches git hooks or cron jobs", r"\.git/(?:hooks|config)|\bcron"),
        ("touches a browser's data", r"\.mozilla|google-chrome|\.config/chromium|Cookies$"),
    )
)
# A program, groups of words of which one each must be among its arguments, and the reason.
_ACTIONS: tuple[tuple[re.Pattern[str], tuple[str, ...], str], ...] = tuple(
    (re.compile(program), tuple(needed.split()), reason)
    for program, needed, reason in (
        (r"rm|rmdir|unlink|shred|truncate", "", "removes files"),
        (r"dd|mkfs(\..*)?|mkswap|wipefs|fdisk|sfdisk|parted", "", "writes to disks"),
        (r"chmod|chown|chgrp", "-R|--recursive", "changes permissions of a whole tree"),
        (r"find", "-delete|-exec|-execdir|-ok|-okdir", "removes files or runs programs"),
        (r"git", "push --force|-f|--force-with-lease|--mirror|--delete|-d", "overwrites what others have"),
        (r"git", "push", "sends commits to another repository"),
        (r"git", "reset --hard", "discards changes"),
        (r"git", "clean", "removes files"),
        (r"sudo|su|doas|pkexec|runuser", "", "acts as another user"),
        (r"kill|pkill|killall|shutdown|reboot|poweroff|halt", "", "stops programs or the machine"),
        (r"systemctl|service|launchctl|crontab|at", "", "changes what starts automatically"),
        (r"ssh|scp|sftp|rsync|nc|ncat|socat|telnet|ftp", "", "reaches other machines"),
        (r"curl|wget|http|https|aria2c", "", "reaches the network"),
        (r"docker|podman|kubectl|nsenter|chroot|unshare", "", "acts in other systems"),
        (r"apt|apt-get|dpkg|yum|dnf|pacman|brew|snap", "", "changes installed programs"),
        (r"pip\d?|uv|npm|pnpm|yarn|gem|cargo", "install|add|publish|i", "installs or publishes packages"),
        (r"mount|umount|modprobe|insmod|iptables|nft|ip", "", "changes the system"),
    )
)
_ROOTED = re.compile(r"(?:.*[=:@,])?[/~][^/]*", re.DOTALL)  # an absolute path with no complete literal component
Rules = Sequence[GrantDraft | Grant]


def sensitive_reasons(plan: Plan) -> tuple[str, ...]:
    """Returns why a person should check the command, each reason once; empty if there is no reason."""
    found = [reason for each in plan.invocations for reason in _reasons(each)]
    return tuple(dict.fromkeys([*found, *_places(plan.cwd)]))


def warnings(rules: Sequence[GrantDraft], *, programs: bool = True) -> tuple[str, ...]:
    """Returns the warnings to show before these rules are granted: sensitive rules, and `programs` that run others."""
    found: list[str] = []
    for rule in rules:
        if rule.tool != EXEC:
            continue
        reasons = dict.fromkeys(_reasons(Invocation(rule.binary, rule.binary, rule.resolved, rule.args)))
        found += [f"`{rule_text(rule)}` {', '.join(reasons)}"] if reasons else []
        name = rule.binary.rpartition("/")[2]
        found += [f"{name}: {remark}"] if programs and (remark := runs_other_programs(name)) else []
    return tuple(dict.fromkeys(found))


def _reasons(invocation: Invocation) -> Iterator[str]:
    names = {path.rpartition("/")[2] for path in (invocation.name, invocation.binary, invocation.resolved)}
    for program, needed, reason in _ACTIONS:
        if any(map(program.fullmatch, names)) and all(_has(invocation.args, word) for word in needed):
            yield reason
    for argument in invocation.args:
        yield from _places(argument)


def _places(text: str) -> Iterator[str]:
    return (reason for reason, pattern in _PLACES if pattern.search(text))


def _has(args: tuple[str, ...], words: str) -> bool:
    """Whether one of the words is an argument or part of combined short flags: `-Rf` contains `-R`."""
    wanted, combined = words.split("|"), "".join(arg[1:] for arg in args if re.fullmatch(r"-\w+", arg))
    return any(word in args or (len(word) == 2 and word[0] == "-" and word[1] in combined) for word in wanted)


class Sensitive(Struct, frozen=True, rename="camel"):
    command: PastCommand
    reasons: tuple[str, ...]


class Replay(Struct, frozen=True, rename="camel"):
    """What rules would have allowed."""

    total: int
    covered: tuple[PastCommand, ...]
    sensitive: tuple[Sensitive, ...]


class Proposal(Struct, frozen=True, rename="camel"):
    draft: GrantDraft
    examples: int  # how many of the chosen commands it covers
    remark: str = ""


def replay_rules(
    rules: Rules, past: Iterable[PastCommand], known: Callable[[Invocation], bool] = lambda _: False
) -> Replay:
    """Tries rules on earlier requests. `known`: grants that exist already. A pipeline may need both."""
    total, covered = 0, []
    for command in past:
        total += 1
        programs = command.plan.invocations
        ours = [any(covers_by_name(rule, each) for rule in rules) for each in programs]
        if any(ours) and all(own or known(each) for own, each in zip(ours, programs, strict=True)):
            covered.append(command)
    marked = [Sensitive(each, reasons) for each in covered if (reasons := sensitive_reasons(each.plan))]
    return Replay(total, tuple(covered), tuple(marked))


def narrowest_rules(examples: Iterable[Invocation]) -> tuple[Proposal, ...]:
    """Returns the narrowest rules that cover all examples."""
    kinds: dict[object, list[Invocation]] = {}
    for each in dict.fromkeys(examples):
        kinds.setdefault(_kind(each), []).append(each)
    return tuple(proposal for group in kinds.values() for proposal in _proposed(group))


def similar_invocations(invocation: Invocation, past: Iterable[PastCommand]) -> tuple[Invocation, ...]:
    """Returns earlier allowed calls of the same program with the same sub-command and flags, newest first."""
    kind = _kind(invocation)
    done = (each for command in past if command.outcome.startswith("allowed") for each in command.plan.invocations)
    return tuple(dict.fromkeys(each for each in done if _kind(each) == kind))


def _kind(each: Invocation) -> object:
    """Returns the part that must be equal for two calls to be joined into one rule."""
    flags = tuple((index, arg) for index, arg in enumerate(each.args) if arg[:1] == "-")
    first = each.args[0] if each.args and re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", each.args[0]) else ""
    return each.binary, each.resolved, first, flags


def _proposed(group: list[Invocation]) -> list[Proposal]:
    first = group[0]
    remark = runs_other_programs(first.binary) or runs_other_programs(first.resolved)
    if len(group) > 1 and not remark:
        draft = GrantDraft(EXEC, first.binary, first.resolved, _joined([each.args for each in group]))
        if all(covers(draft, each) for each in group):
            return [Proposal(draft, len(group))]
        remark = "these have too little in common for one rule"
    return [Proposal(exact_draft(each), 1, remark) for each in group]


def _joined(rows: Sequence[tuple[str, ...]]) -> Patterns:
    """Returns one pattern per argument position; `**` for positions that only some examples have."""
    shortest = min(map(len, rows))
    behind_flag = [False, *(argument[:1] == "-" for argument in rows[0])]
    patterns = [_tightest([row[place] for row in rows], behind_flag=behind_flag[place]) for place in range(shortest)]
    if max(map(len, rows)) > shortest:
        return (*patterns, REST)
    # At the end of a rule `*` means all further arguments, so a single last argument is written differently.
    return (*patterns[:-1], "?*") if patterns[-1:] == ["*"] else tuple(patterns)


def _tightest(column: Sequence[str], *, behind_flag: bool) -> str:
    """Returns the common start and end with a `*` between; the first value alone where that would be too general."""
    first = column[0]
    prefix = commonprefix(column)  # noqa: RUF071  characters are meant, not folders
    suffix = commonprefix([each[len(prefix) :][::-1] for each in column])[::-1]  # noqa: RUF071
    if len(set(column)) == 1:
        return escape(first)
    # A flag's value may be anything, including a program to run; an absolute path needs at least one folder.
    if (behind_flag and not prefix + suffix) or _ROOTED.fullmatch(prefix):
        return escape(first)
    pattern = f"{escape(prefix)}*{escape(suffix)}"
    return pattern if all(matches(pattern, each) for each in column) else escape(first)
