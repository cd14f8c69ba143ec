"""Why bubblewrap does not work on a machine, and what to do; and what is weaker than one would wish where it does."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from palinurus.sandbox.seccomp import call_filter
from palinurus.sandbox.view import Dialect

INSTALL = "install it: apt install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora), pacman -S bubblewrap"
OLDEST = (0, 5, 0)
_APPARMOR = (
    "AppArmor forbids it user namespaces: allow them to bwrap by an AppArmor profile (on Ubuntu 24.04: apt install"
    " apparmor-profiles, then enable bwrap-userns-restrict), or to all programs by"
    " sysctl kernel.apparmor_restrict_unprivileged_userns=0"
)
_SWITCHES = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", _APPARMOR),
    (
        "kernel/unprivileged_userns_clone",
        "0",
        "user namespaces are forbidden: sysctl kernel.unprivileged_userns_clone=1",
    ),
    ("user/max_user_namespaces", "0", "user namespaces are switched off: sysctl user.max_user_namespaces=10000"),
)
_NAMESPACE_TROUBLE = re.compile(r"namespace|uid map|gid map|RTM_NEWADDR|loopback|pivot_root|mount", re.IGNORECASE)


def missing(program: str) -> str:
    if sys.platform != "linux":
        return "bubblewrap needs Linux; the backend docker is there for other systems"
    return f"{program} is not installed; {INSTALL}"


def read_version(text: str) -> tuple[int, ...]:
    found = re.search(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?", text)
    return tuple(int(part or 0) for part in found.groups()) if found else ()


def dialect_of(version: tuple[int, ...]) -> Dialect:
    return Dialect(sizes=version >= (0, 7, 0), no_more_namespaces=version >= (0, 8, 0))


def explain(said: str, proc: Path = Path("/proc/sys")) -> str:
    """What it said, and the switch that is behind it if one is."""
    line = said.strip().splitlines()[-1].removeprefix("pal: ") if said.strip() else "it ended without a word"
    if not _NAMESPACE_TROUBLE.search(said):
        return line
    for name, value, what in _SWITCHES:
        try:
            if (proc / name).read_text().strip() == value:
                return f"{what} ({line})"
        except OSError:
            continue
    return f"{line}; in a container, start that with the right to make user namespaces"


def limits_processes() -> bool:
    """Since Linux 5.14 a limit inside a user namespace counts that namespace's processes, before it all the user's."""
    return os.geteuid() == 0 or _kernel() >= (5, 14)


def remarks_here(dialect: Dialect, *, grouped: bool) -> tuple[str, ...]:
    told = []
    if not grouped:
        told.append(
            "the memory of a command in all is counted from outside: there is no control group that pal may use"
        )
    if call_filter() is None:
        told.append("system calls are not filtered: their numbers on this kind of machine are not known here")
    if not dialect.no_more_namespaces:
        told.append("commands can make user namespaces of their own: bubblewrap 0.8 would forbid it")
    if not dialect.sizes:
        told.append("the scratch space inside may fill half of the machine's memory: bubblewrap 0.7 would limit it")
    if not limits_processes():
        told.append("the number of processes is not limited: that needs Linux 5.14")
    return tuple(told)


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
