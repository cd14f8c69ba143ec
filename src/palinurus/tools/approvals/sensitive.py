"""What makes a command one to look at twice before a rule lets it through. A table with reasons; pure.

It is a help for the eye, not a wall: what it does not know is not harmless for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from palinurus.domain.plan import Invocation, Plan
from palinurus.tools.commands.hazards import runs_other_programs
from palinurus.tools.grants.grants import EXEC, GrantDraft, words

# Looked for in each argument and in the folder.
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
        ("touches what a shell starts with", r"\.(?:bashrc|bash_profile|profile|zshrc|zshenv|xinitrc)$"),
        ("touches what git or cron starts", r"\.git/(?:hooks|config)|\bcron"),
        ("touches a browser's data", r"\.mozilla|google-chrome|\.config/chromium|Cookies$"),
    )
)
# A program, words of which each must be among its arguments, and why.
_DEEDS: tuple[tuple[re.Pattern[str], tuple[str, ...], str], ...] = tuple(
    (re.compile(program), tuple(needed.split()), reason)
    for program, needed, reason in (
        (r"rm|rmdir|unlink|shred|truncate", "", "removes files"),
        (r"dd|mkfs(\..*)?|mkswap|wipefs|fdisk|sfdisk|parted", "", "writes to disks"),
        (r"chmod|chown|chgrp", "-R|--recursive", "changes rights of a whole tree"),
        (r"find", "-delete|-exec|-execdir|-ok|-okdir", "removes files or runs programs"),
        (r"git", "push --force|-f|--force-with-lease|--mirror|--delete|-d", "overwrites what others have"),
        (r"git", "push", "sends commits away"),
        (r"git", "reset --hard", "throws changes away"),
        (r"git", "clean", "removes files"),
        (r"sudo|su|doas|pkexec|runuser", "", "acts as another user"),
        (r"kill|pkill|killall|shutdown|reboot|poweroff|halt", "", "stops programs or the machine"),
        (r"systemctl|service|launchctl|crontab|at", "", "changes what starts by itself"),
        (r"ssh|scp|sftp|rsync|nc|ncat|socat|telnet|ftp", "", "reaches other machines"),
        (r"curl|wget|http|https|aria2c", "", "reaches the network"),
        (r"docker|podman|kubectl|nsenter|chroot|unshare", "", "acts in other systems"),
        (r"apt|apt-get|dpkg|yum|dnf|pacman|brew|snap", "", "changes installed programs"),
        (r"pip\d?|uv|npm|pnpm|yarn|gem|cargo", "install|add|publish|i", "installs or publishes packages"),
        (r"mount|umount|modprobe|insmod|iptables|nft|ip", "", "changes the system"),
    )
)


def sensitive(plan: Plan) -> tuple[str, ...]:
    """Why a person should look at it, each reason once; empty when nothing stands out."""
    found = [reason for each in plan.invocations for reason in _reasons(each)]
    return tuple(dict.fromkeys([*found, *_places(plan.cwd)]))


def warnings(rules: Sequence[GrantDraft], *, programs: bool = True) -> tuple[str, ...]:
    """What to tell somebody before these rules are given: those that stand out, and `programs` that run others."""
    found: list[str] = []
    for rule in rules:
        if rule.tool != EXEC:
            continue
        reasons = dict.fromkeys(_reasons(Invocation(rule.binary, rule.binary, rule.resolved, rule.args)))
        found += [f"`{words(rule)}` {', '.join(reasons)}"] if reasons else []
        name = rule.binary.rpartition("/")[2]
        found += [f"{name}: {remark}"] if programs and (remark := runs_other_programs(name)) else []
    return tuple(dict.fromkeys(found))


def _reasons(invocation: Invocation) -> Iterator[str]:
    names = {path.rpartition("/")[2] for path in (invocation.name, invocation.binary, invocation.resolved)}
    for program, needed, reason in _DEEDS:
        if any(map(program.fullmatch, names)) and all(_has(invocation.args, word) for word in needed):
            yield reason
    for argument in invocation.args:
        yield from _places(argument)


def _places(text: str) -> Iterator[str]:
    return (reason for reason, pattern in _PLACES if pattern.search(text))


def _has(args: tuple[str, ...], words: str) -> bool:
    """Whether one of the words is an argument, or a short flag among several: `-Rf` has `-R`."""
    return any(arg == word or _holds(arg, word) for word in words.split("|") for arg in args)


def _holds(arg: str, word: str) -> bool:
    return len(word) == 2 and word[0] == "-" and bool(re.fullmatch(r"-\w+", arg)) and word[1] in arg
