"""What the kernel and bubblewrap of this machine support: why a sandbox does not work and how to fix it, what is weaker
than it could be, and the system call filter.

Namespaces do not separate everything: kernel key rings are reachable from every process of a login, sockets of some
families (vsock reaches the hypervisor) belong to no network namespace, and a few calls are known mostly for their
security holes. These calls return "not permitted". The filter is a few dozen instructions of classic BPF, assembled
here, so no library is needed.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from palinurus.sandbox.view import BubblewrapDialect

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCH, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data; the low words of arguments
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_X32 = 0x40000000  # the other set of numbers on x86-64
FAMILIES = (1, 2, 10, 16)  # unix, IPv4, IPv6, netlink (which lists the interfaces)
SET_DUMPABLE = 4  # an option of prctl: with 0 even its parent cannot see its open files
TERMINAL_TRICKS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: typing into a terminal for its user
_EVERYWHERE = (425, 426, 427)  # io_uring_setup, _enter, _register
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


# The architecture, the numbers of ioctl, socket and prctl, and those that are refused: add_key, request_key, keyctl,
# bpf, perf_event_open, userfaultfd, open_by_handle_at, kexec_load, kexec_file_load, init_module, finit_module,
# delete_module.
_MACHINES = {
    "x86_64": (0xC000003E, 16, 41, 157, (248, 249, 250, 321, 298, 323, 304, 246, 320, 175, 313, 176)),
    "aarch64": (0xC00000B7, 29, 198, 167, (217, 218, 219, 280, 241, 282, 265, 104, 294, 105, 273, 106)),
}


def call_filter(machine: str = platform.machine()) -> bytes | None:
    """Returns the filter for this machine; None if its system call numbers are not known here."""
    if machine not in _MACHINES:
        return None
    arch, ioctl, socket, prctl, refused = _MACHINES[machine]
    allow, absent = _step(_RETURN, _ALLOW), _refuse(errno.ENOSYS)
    tricks = [_step(_LOAD, _SECOND), *_each(TERMINAL_TRICKS, _refuse(errno.EPERM)), allow]
    families = [_step(_LOAD, _FIRST), *_each(FAMILIES, allow), _refuse(errno.EAFNOSUPPORT)]
    # Reports success and does nothing: total memory is checked from outside.
    hiding = [_step(_LOAD, _FIRST), *_each((SET_DUMPABLE,), _refuse(0)), allow]
    program = [
        _step(_LOAD, _ARCH), _step(_EQUAL, arch, 1, 0), absent,  # the calls of a 32-bit program have other numbers
        _step(_LOAD, _NUMBER), _step(_AT_LEAST, _X32, 0, 1), absent,
        *_each((*refused, *_EVERYWHERE), _refuse(errno.EPERM)),
        _step(_EQUAL, prctl, 0, len(hiding)), *hiding,
        _step(_EQUAL, ioctl, 0, len(tricks)), *tricks,
        _step(_EQUAL, socket, 0, len(families)), *families,
        allow,
    ]  # fmt: skip
    return b"".join(program)


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)


def _refuse(number: int) -> bytes:
    return _step(_RETURN, _ERROR | number)


def _each(values: Iterable[int], then: bytes) -> Iterator[bytes]:
    """Returns the steps that end with `then` for each of these values."""
    for value in values:
        yield from (_step(_EQUAL, value, 0, 1), then)


def missing(program: str) -> str:
    if sys.platform != "linux":
        return "bubblewrap needs Linux; the backend docker is there for other systems"
    return f"{program} is not installed; {INSTALL}"


def read_version(text: str) -> tuple[int, ...]:
    found = re.search(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?", text)
    return tuple(int(part or 0) for part in found.groups()) if found else ()


def dialect_of(version: tuple[int, ...]) -> BubblewrapDialect:
    return BubblewrapDialect(sizes=version >= (0, 7, 0), no_more_namespaces=version >= (0, 8, 0))


def explain(output: str, proc: Path = Path("/proc/sys")) -> str:
    """Returns the program's message, and the system setting behind it if there is one."""
    line = output.strip().splitlines()[-1].removeprefix("pal: ") if output.strip() else "it ended without a message"
    if not _NAMESPACE_TROUBLE.search(output):
        return line
    for name, value, what in _SWITCHES:
        try:
            if (proc / name).read_text().strip() == value:
                return f"{what} ({line})"
        except OSError:
            continue
    return f"{line}; in a container, start it with permission to create user namespaces"


def limits_processes() -> bool:
    """Since Linux 5.14 a limit inside a user namespace counts only that namespace's processes; before, all of the
    user's."""
    return os.geteuid() == 0 or tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= (5, 14)


def remarks_here(dialect: BubblewrapDialect, *, grouped: bool) -> tuple[str, ...]:
    strengths = {
        "the total memory of a command is checked from outside: pal may use no control group": grouped,
        "system calls are not filtered: the numbers for this kind of machine are not known": call_filter(),
        "commands can create user namespaces: bubblewrap 0.8 would prevent it": dialect.no_more_namespaces,
        "the scratch space inside may fill half of the machine's memory: bubblewrap 0.7 would limit it": dialect.sizes,
        "the number of processes is not limited: that needs Linux 5.14": limits_processes(),
    }
    return tuple(remark for remark, has in strengths.items() if not has)
