"""Start one program with its standard streams on a pipe or on a terminal of its own, and with nothing else of ours.

What must happen in the child before the program takes over (a controlling terminal, another user, limits, mounts) is
done by launch.py, a small program of our own: code run between fork and exec of a process with threads may hang.
"""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from palinurus.domain.errors import NotFound, SandboxError

ROWS, COLUMNS = 24, 80
_LAUNCH = Path(__file__).with_name("launch.py")
_STUB = """import marshal, sys
with open(int(sys.argv[1]), "rb") as file:
    code, orders = marshal.load(file)
names = {"__name__": "launch"}
exec(code, names)
names["main"](orders)
"""
_FOR_PYTHON = ("LD_LIBRARY_PATH", "PYTHONHOME")  # without which some interpreters do not start; the program gets none


class Spawned(NamedTuple):
    child: subprocess.Popen[bytes]
    output: int  # to be read by us, non-blocking
    input: int
    terminal: bool
    output_name: str  # as /proc names the end that the command writes to


def spawn(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    cwd: str | None = None,
    pty: bool = False,
    pass_fds: Sequence[int] = (),
    orders: Mapping[str, Any] | None = None,
) -> Spawned:
    """Start it as the leader of a session of its own. With `orders` launch.py carries those out before.

    Raises NotFound when there is no such program, and SandboxError when it cannot be started.
    """
    ours, theirs = _terminal() if pty else _pipes()
    try:
        with _launched(argv, env, orders) as (call, variables, fds):
            child = subprocess.Popen(
                call, env=variables, cwd=cwd, start_new_session=True, pass_fds=(*pass_fds, *fds),
                stdin=theirs[0], stdout=theirs[1], stderr=theirs[1],
            )  # fmt: skip
    except (OSError, ValueError) as error:
        _close(*ours)
        raise _cannot(argv[0], cwd, error) from error
    else:
        name = _name(theirs[1])
    finally:
        _close(*theirs)
    for fd in ours:
        os.set_blocking(fd, False)
    return Spawned(child, ours[1], ours[0], pty, name)


def _pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Ours and theirs: each the input first. Both outputs of the command are one pipe, so their order is kept."""
    their_input, our_input = os.pipe()
    our_output, their_output = os.pipe()
    return (our_input, our_output), (their_input, their_output)


def _terminal() -> tuple[tuple[int, int], tuple[int, int]]:
    ours, theirs = os.openpty()
    termios.tcsetwinsize(ours, (ROWS, COLUMNS))
    return (os.dup(ours), ours), (theirs, os.dup(theirs))


@contextmanager
def _launched(
    argv: Sequence[str], env: Mapping[str, str], orders: Mapping[str, Any] | None
) -> Iterator[tuple[list[str], dict[str, str], tuple[int, ...]]]:
    """What to start, its environment and the descriptors it needs. The orders do not show in a listing of processes."""
    if orders is None:
        yield list(argv), dict(env), ()
        return
    with held(marshal.dumps((_launcher(), {**orders, "argv": list(argv), "env": dict(env)}))) as (fd,):
        variables = {name: os.environ[name] for name in _FOR_PYTHON if name in os.environ}
        yield [sys.executable, "-sSP", "-c", _STUB, str(fd)], variables, (fd,)


@cache
def _launcher() -> CodeType:
    return compile(_LAUNCH.read_bytes(), str(_LAUNCH), "exec", dont_inherit=True)


@contextmanager
def held(*pieces: bytes) -> Iterator[list[int]]:
    """Each piece behind a descriptor of its own, at its beginning; all are closed at the end of the block."""
    fds: list[int] = []
    try:
        for data in pieces:
            fds.append(_anonymous())
            with open(fds[-1], "wb", closefd=False) as file:  # a descriptor
                file.write(data)
            os.lseek(fds[-1], 0, os.SEEK_SET)
        yield fds
    finally:
        _close(*fds)


def _anonymous() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("palinurus", os.MFD_CLOEXEC)
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _name(fd: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    except OSError:  # no Linux
        return ""


def _close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)


def _cannot(program: str, cwd: str | None, error: OSError | ValueError) -> NotFound | SandboxError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        if cwd is not None and not Path(cwd).is_dir():
            return NotFound(f"there is no directory {cwd}", hint="give an existing working directory")
        return NotFound(f"there is no program {program!r}", hint="is it installed, and on the PATH?")
    told = error.strerror if isinstance(error, OSError) else str(error)
    return SandboxError(f"{program!r} cannot be started: {str(told).lower()}")
