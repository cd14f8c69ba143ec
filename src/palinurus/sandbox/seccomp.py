"""System calls that no command in a sandbox needs, as a filter for bubblewrap.

Namespaces do not wall off everything: the kernel's key rings are found by whoever was started from a login, sockets of
some families (vsock reaches the machine below this one) belong to no network namespace, and a handful of calls are
known mostly for the holes that were found in them. They answer "not permitted". The filter is a few dozen instructions
of classic BPF, put together here, so no library is needed.
"""

from __future__ import annotations

import errno
import platform
import struct

from msgspec import Struct

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCH, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data; of arguments the low words
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_X32 = 0x40000000  # the other set of numbers on x86-64
FAMILIES = (1, 2, 10, 16)  # unix, IPv4, IPv6, netlink (which says what interfaces there are)
SET_DUMPABLE = 4  # an option of prctl: with 0 not even whoever started it sees what it has open
TERMINAL_TRICKS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: typing into a terminal in somebody's name


class _Machine(Struct, frozen=True):
    arch: int
    ioctl: int
    socket: int
    prctl: int
    refused: tuple[int, ...]


_EVERYWHERE = (425, 426, 427)  # io_uring_setup, _enter, _register
# add_key, request_key, keyctl, bpf, perf_event_open, userfaultfd, open_by_handle_at, kexec_load, kexec_file_load,
# init_module, finit_module, delete_module
_MACHINES = {
    "x86_64": _Machine(
        0xC000003E, 16, 41, 157, (248, 249, 250, 321, 298, 323, 304, 246, 320, 175, 313, 176, *_EVERYWHERE)
    ),
    "aarch64": _Machine(
        0xC00000B7, 29, 198, 167, (217, 218, 219, 280, 241, 282, 265, 104, 294, 105, 273, 106, *_EVERYWHERE)
    ),
}  # fmt: skip


def call_filter(machine: str = platform.machine()) -> bytes | None:
    """The filter for this machine; None for one whose numbers are not known here."""
    known = _MACHINES.get(machine)
    if known is None:
        return None
    program = [
        _step(_LOAD, _ARCH),
        *_unless(known.arch, errno.ENOSYS),  # the calls of a 32-bit program have other numbers
        _step(_LOAD, _NUMBER),
        _step(_AT_LEAST, _X32, 0, 1), _refuse(errno.ENOSYS),
    ]  # fmt: skip
    for number in known.refused:
        program += _if(number, errno.EPERM)
    tricks = [_step(_LOAD, _SECOND), *(step for each in TERMINAL_TRICKS for step in _if(each, errno.EPERM)), _allow()]
    families = [_step(_LOAD, _FIRST), *(step for each in FAMILIES for step in _pass(each)), _refuse(errno.EAFNOSUPPORT)]
    # Said to be done, and not done: memory in all is counted from outside.
    hiding = [_step(_LOAD, _FIRST), *_if(SET_DUMPABLE, 0), _allow()]
    program += [_step(_EQUAL, known.prctl, 0, len(hiding)), *hiding]
    program += [_step(_EQUAL, known.ioctl, 0, len(tricks)), *tricks]
    program += [_step(_EQUAL, known.socket, 0, len(families)), *families]
    return b"".join([*program, _allow()])


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)


def _refuse(number: int) -> bytes:
    return _step(_RETURN, _ERROR | number)


def _allow() -> bytes:
    return _step(_RETURN, _ALLOW)


def _if(value: int, number: int) -> list[bytes]:
    return [_step(_EQUAL, value, 0, 1), _refuse(number)]


def _unless(value: int, number: int) -> list[bytes]:
    return [_step(_EQUAL, value, 1, 0), _refuse(number)]


def _pass(value: int) -> list[bytes]:
    return [_step(_EQUAL, value, 0, 1), _allow()]
