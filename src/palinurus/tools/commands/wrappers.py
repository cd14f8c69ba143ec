"""Programs that only start another program: looks through them to what they start.

A wrapper is looked through when all of its options are ones we know. Wrappers that change who or where the program
is, that take its arguments from elsewhere, or that start it later are never looked through: no grant covers them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from msgspec import Struct

from palinurus.tools.commands.script import Argv, Opaque, base_name, names
from palinurus.tools.commands.shell import parse

MAX_DEPTH = 8
SHELLS = names("sh bash dash ash ksh mksh zsh fish csh tcsh rbash")
_PLAIN_SHELLS = names("sh bash dash")  # the others read files of their own first, or speak another grammar

_ASKS = {
    "it runs a program as somebody else, or in another place": names(
        """sudo sudoedit doas su runuser setpriv pkexec gosu su-exec capsh chroot unshare nsenter proot fakeroot
        fakechroot bwrap firejail systemd-run machinectl ssh mosh slogin rsh dbus-run-session run0 sg newgrp schroot
        aa-exec runcon chpst flatpak-spawn distrobox-host-exec toolbox"""
    ),
    "what it starts comes from elsewhere, or is started later": names(
        """xargs parallel watch entr at batch expect unbuffer script screen tmux setsid daemonize start-stop-daemon
        flock run-parts busybox toybox sem chronic ifne hyperfine watchexec nodemon direnv ssh-agent gpg-agent
        dbus-launch systemd-inhibit systemd-cat caffeinate tini dumb-init logsave"""
    ),
    "it starts a program under another one": names(
        """strace ltrace gdb gdbserver lldb valgrind perf rlwrap prlimit taskset numactl cgexec setarch linux32 linux64
        i386 x86_64 faketime xvfb-run torsocks proxychains proxychains4 socat choom
        uclampset eatmydata catchsegv rr uftrace heaptrack"""
    ),
}
_NEVER = {name: reason for reason, group in _ASKS.items() for name in group}
_LOADER = re.compile(r"ld[-\w.]*\.so[.\d]*")  # /lib64/ld-linux-x86-64.so.2 PROGRAM starts it, too

_DURATION = r"\d+(\.\d+)?[smhd]?"
_BUFFER = r"L|0|\d+[KMG]?"
_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "nohup": {},
    "time": {},
    "nice": {"-n": r"-?\d+"},
    "timeout": {"-k": _DURATION, "-s": r"[A-Z0-9]+"},
    "stdbuf": {"-i": _BUFFER, "-o": _BUFFER, "-e": _BUFFER},
    "ionice": {"-c": "[0-3]", "-n": "[0-7]"},
    "chrt": {"-b": "0", "-i": "0", "-o": "0"},
}
"""What may stand before the program: an option and its value, in one word or in two."""

_OPERAND = {"timeout": _DURATION}  # what stands between the options and the program


class Unwrapped(Struct, frozen=True):
    """What a command starts in the end, and the wrappers that it goes through, as they were written."""

    programs: tuple[Argv, ...]
    wrappers: tuple[str, ...] = ()
    shell_list: bool = False  # a shell among them would start several one after the other


def unwrap(argv: Argv, depth: int = 0) -> Unwrapped | Opaque:
    if depth > MAX_DEPTH:
        return Opaque("it has too many wrappers around a program")
    name = base_name(argv[0])
    if reason := never(name):
        return Opaque(f"{name}: {reason}")
    look = _LOOKS.get(name)
    inner = look(argv) if look else (argv,)
    if isinstance(inner, Opaque):
        return inner
    if inner == (argv,):
        return Unwrapped(inner)
    return _together(argv, [unwrap(each, depth + 1) for each in inner])


def never(name: str) -> str:
    """Why no grant ever covers this program; empty for most."""
    return "it starts a program under another one" if _LOADER.fullmatch(name) else _NEVER.get(name, "")


def _together(wrapper: Argv, parts: list[Unwrapped | Opaque]) -> Unwrapped | Opaque:
    programs: list[Argv] = []
    wrappers = [wrapper[0]]
    shell_list = base_name(wrapper[0]) in SHELLS and _is_list(wrapper[-1])
    for part in parts:
        if isinstance(part, Opaque):
            return part
        programs += part.programs
        wrappers += part.wrappers
        shell_list |= part.shell_list
    return Unwrapped(tuple(programs), tuple(dict.fromkeys(wrappers)), shell_list)


def _is_list(text: str) -> bool:
    script = parse(text)
    return isinstance(script, Opaque) or len(script.pipelines) > 1


def _through_env(argv: Argv) -> tuple[Argv, ...] | Opaque:
    if len(argv) == 1:
        return (argv,)  # it prints the environment and starts nothing
    if argv[1].startswith("-"):
        return Opaque("env: it is given options, and some of them hide a program")
    if not argv[1] or "=" in argv[1]:
        return Opaque("env: it sets a variable for a program")
    return (argv[1:],)


def _through_options(argv: Argv) -> tuple[Argv, ...] | Opaque:
    name, at = base_name(argv[0]), 1
    while at < len(argv) and argv[at].startswith("-"):
        option, value, width = argv[at][:2], argv[at][2:], 1
        if not value:
            value, width = (*argv[at + 1 : at + 2], "")[0], 2
        if not _is_known(name, option, value):
            return Opaque(f"{name}: it is given an option that we do not know ({argv[at]})")
        at += width
    if name in _OPERAND:
        if not re.fullmatch(_OPERAND[name], (*argv[at : at + 1], "")[0]):
            return Opaque(f"{name}: what stands before the program is not what we expect")
        at += 1
    return (argv[at:],) if any(argv[at : at + 1]) else Opaque(f"{name}: it is given no program")


def _is_known(name: str, option: str, value: str) -> bool:
    allowed = _OPTIONS[name].get(option)
    return allowed is not None and bool(re.fullmatch(allowed, value))


def _through_shell(argv: Argv) -> tuple[Argv, ...] | Opaque:
    """`sh -c TEXT` and nothing else. `sh FILE` is a program with arguments as any other."""
    name = base_name(argv[0])
    if argv[1:] and argv[1] and argv[1][0] not in "-+":
        return (argv,)
    if name not in _PLAIN_SHELLS or len(argv) != 3 or argv[1] != "-c":
        return Opaque(f"{name}: it starts a shell, with options or on its standard input")
    script = parse(argv[2])
    if isinstance(script, Opaque):
        return Opaque(f"{name} -c: {script.reason}")
    return tuple(segment.argv for segment in script.segments)


_Look = Callable[[Argv], "tuple[Argv, ...] | Opaque"]
_LOOKS: Mapping[str, _Look] = {
    "env": _through_env,
    **dict.fromkeys(_OPTIONS, _through_options),
    **dict.fromkeys(SHELLS, _through_shell),
}
