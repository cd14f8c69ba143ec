"""Finds the programs that a command finally starts: looks through wrappers, and resolves program names to files.

A wrapper is a program that only starts another one. It is looked through if all of its options are known. Wrappers that
change the user or the machine, take arguments from elsewhere, or start the program later are never looked through: no
grant covers them. Files are found as execvp would find them with the clean PATH of a command.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from palinurus.domain.events import Invocation
from palinurus.tools.commands.shell import Argv, Opaque, base_name, name_set, parse_shell

LONGEST_PATH = 4096
MOST_PARTS = 32  # how many start positions within one argument are checked for a path
_SPLIT = re.compile("[=:@,]")
ANYBODY_WRITES = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  programs there are never granted
SYSTEM = frozenset({Path("/bin"), Path("/usr/bin")})
MAX_DEPTH = 8
SHELLS = name_set("sh bash dash ash ksh mksh zsh fish csh tcsh rbash")

_ASKS = {
    "it runs a program as another user or on another system": name_set(
        """sudo sudoedit doas su runuser setpriv pkexec gosu su-exec capsh chroot unshare nsenter proot fakeroot
        fakechroot bwrap firejail systemd-run machinectl ssh mosh slogin rsh dbus-run-session run0 sg newgrp schroot
        aa-exec runcon chpst flatpak-spawn distrobox-host-exec toolbox"""
    ),
    "the program that it starts is not in its arguments, or starts later": name_set(
        """xargs parallel watch entr at batch expect unbuffer script screen tmux setsid daemonize start-stop-daemon
        flock run-parts busybox toybox sem chronic ifne hyperfine watchexec nodemon direnv ssh-agent gpg-agent
        dbus-launch systemd-inhibit systemd-cat caffeinate tini dumb-init logsave"""
    ),
    "it runs a program under its control": name_set(
        """strace ltrace gdb gdbserver lldb valgrind perf rlwrap prlimit taskset numactl cgexec setarch linux32 linux64
        i386 x86_64 faketime xvfb-run torsocks proxychains proxychains4 socat choom
        uclampset eatmydata catchsegv rr uftrace heaptrack"""
    ),
}
_NEVER = {name: reason for reason, group in _ASKS.items() for name in group}
_LOADER = re.compile(r"ld[-\w.]*\.so[.\d]*")  # /lib64/ld-linux-x86-64.so.2 PROGRAM also starts the program

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
"""What may precede the program: an option and its value, in one word or two."""

_OPERAND = {"timeout": _DURATION}  # operands between the options and the program


class InnerPrograms(Struct, frozen=True):
    """The programs that a command finally starts, and the wrappers around them as they were written."""

    programs: tuple[Argv, ...]
    wrappers: tuple[str, ...] = ()
    shell_list: bool = False  # a shell among the wrappers starts several programs one after the other


def unwrap_programs(argv: Argv, depth: int = 0) -> InnerPrograms | Opaque:
    if depth > MAX_DEPTH:
        return Opaque("it has too many wrappers")
    name = base_name(argv[0])
    if reason := why_never_covered(name):
        return Opaque(f"{name}: {reason}")
    look = _LOOKS.get(name)
    inner = look(argv) if look else (argv,)
    if isinstance(inner, Opaque):
        return inner
    if inner == (argv,):
        return InnerPrograms(inner)
    return _together(argv, [unwrap_programs(each, depth + 1) for each in inner])


def why_never_covered(name: str) -> str:
    """Returns why no grant ever covers this program; empty for most programs."""
    return "it runs a program under its control" if _LOADER.fullmatch(name) else _NEVER.get(name, "")


def _together(wrapper: Argv, parts: list[InnerPrograms | Opaque]) -> InnerPrograms | Opaque:
    programs: list[Argv] = []
    wrappers = [wrapper[0]]
    shell_list = base_name(wrapper[0]) in SHELLS and _is_list(wrapper[-1])
    for part in parts:
        if isinstance(part, Opaque):
            return part
        programs += part.programs
        wrappers += part.wrappers
        shell_list |= part.shell_list
    return InnerPrograms(tuple(programs), tuple(dict.fromkeys(wrappers)), shell_list)


def _is_list(text: str) -> bool:
    script = parse_shell(text)
    return isinstance(script, Opaque) or len(script.pipelines) > 1


def _through_env(argv: Argv) -> tuple[Argv, ...] | Opaque:
    if len(argv) == 1:
        return (argv,)  # without a program it only prints the environment
    if argv[1].startswith("-"):
        return Opaque("env: it has options, and some of them start a program")
    if not argv[1] or "=" in argv[1]:
        return Opaque("env: it sets a variable for a program")
    return (argv[1:],)


def _through_options(argv: Argv) -> tuple[Argv, ...] | Opaque:
    name, at = base_name(argv[0]), 1
    while at < len(argv) and argv[at].startswith("-"):
        option, value, width = argv[at][:2], argv[at][2:], 1
        if not value:
            value, width = (*argv[at + 1 : at + 2], "")[0], 2
        allowed = _OPTIONS[name].get(option)
        if allowed is None or not re.fullmatch(allowed, value):
            return Opaque(f"{name}: it has an unknown option ({argv[at]})")
        at += width
    if name in _OPERAND:
        if not re.fullmatch(_OPERAND[name], (*argv[at : at + 1], "")[0]):
            return Opaque(f"{name}: the words before the program are not understood")
        at += 1
    return (argv[at:],) if any(argv[at : at + 1]) else Opaque(f"{name}: it names no program")


def _through_shell(argv: Argv) -> tuple[Argv, ...] | Opaque:
    """Reads `sh -c TEXT` and nothing else. `sh FILE` is an ordinary program with arguments."""
    name = base_name(argv[0])
    if argv[1:] and argv[1] and argv[1][0] not in "-+":
        return (argv,)
    # Other shells read startup files first, or have another grammar.
    if name not in ("sh", "bash", "dash") or len(argv) != 3 or argv[1] != "-c":
        return Opaque(f"{name}: it starts a shell, with options or on its standard input")
    script = parse_shell(argv[2])
    if isinstance(script, Opaque):
        return Opaque(f"{name} -c: {script.reason}")
    return tuple(segment.argv for segment in script.segments)


_LOOKS: Mapping[str, Callable[[Argv], tuple[Argv, ...] | Opaque]] = {
    "env": _through_env,
    **dict.fromkeys(_OPTIONS, _through_options),
    **dict.fromkeys(SHELLS, _through_shell),
}


def resolve_program(argv: Argv, *, cwd: str, path: str) -> Invocation:
    """Finds the file of a program. Links in its directory are resolved in `binary`; its own link is not, because
    programs may act by the name they are called with."""
    for place in _places(argv[0], cwd, path):
        if os.path.isfile(place) and os.access(place, os.X_OK):  # noqa: PTH113  the Path form raises in closed places
            binary = Path(os.path.realpath(place.parent)) / place.name
            return Invocation(argv[0], str(binary), os.path.realpath(place), argv[1:])
    return Invocation(argv[0], "", "", argv[1:])


def is_systems_own(found: Invocation, names: Iterable[str]) -> bool:
    """Returns whether it, and the target of its link, is a program of one of these names in a system directory."""
    binary, resolved = Path(found.binary), Path(found.resolved)
    return binary.name in names and binary.parent in SYSTEM and resolved.parent in SYSTEM


def lies_within(found: Invocation, roots: Iterable[str]) -> bool:
    """Returns whether the program, or the link to it, is in one of these directories."""
    places = (Path(found.binary), Path(found.resolved))
    return any(place.is_relative_to(os.path.realpath(root)) for root in roots for place in places)


class Astray(NamedTuple):
    """An argument, and the path that it really leads to."""

    arg: str
    real: str


def find_astray(args: Iterable[str], *, cwd: str, workspace: str) -> Iterator[Astray]:
    """Returns the arguments that may be a workspace path and lead out of the workspace by a link.

    The agent can create links in the workspace, and a program allowed to read `notes.md` would follow one.
    """
    root = os.path.realpath(workspace)
    for arg in args:
        for part in sorted(path_parts(arg)):
            if part and len(part) < LONGEST_PATH and (real := _strays(part, cwd, root)):
                yield Astray(arg, real)


def path_parts(arg: str) -> set[str]:
    """Returns the parts of an argument that may be a path: all of it, the parts between and after `=`, `:`, `@` and
    `,`, and the part after option letters."""
    marks = islice(_SPLIT.finditer(arg), MOST_PARTS)
    letters = range(2, min(len(arg), MOST_PARTS)) if arg.startswith("-") and not arg.startswith("--") else ()
    return {arg, *_SPLIT.split(arg), *(arg[mark.end() :] for mark in marks), *(arg[at:] for at in letters)}


def _strays(part: str, cwd: str, root: str) -> str:
    """Returns where a workspace path leads if that is outside the workspace and not where it says; empty otherwise."""
    meant = os.path.join(cwd, part)  # noqa: PTH118  as text: a Path would tidy it up
    real, said = os.path.realpath(meant), os.path.normpath(meant)
    if real == said or Path(real).is_relative_to(root):
        return ""
    # An absolute path may pass through links that the agent did not make.
    own = not part.startswith("/") or _enters(said, root) or real != os.path.realpath(said)
    return real if own else ""


def _enters(path: str, root: str) -> bool:
    """Returns whether a path passes through the workspace, by its name or by a link to it."""
    place = "/"
    for name in Path(path).parts[1:]:
        place = os.path.realpath(os.path.join(place, name))  # noqa: PTH118
        if Path(place).is_relative_to(root):
            return True
        if not os.path.lexists(place):
            return False
    return False


def _places(name: str, cwd: str, path: str) -> Iterator[Path]:
    if name.endswith(("/", "/.", "/..")) or name in ("", ".", ".."):
        return  # a Path would drop the trailing slash
    if "/" in name:
        yield Path(cwd, name)
        return
    for entry in path.split(":"):
        yield Path(cwd, entry, name)  # an empty PATH entry means the current directory
