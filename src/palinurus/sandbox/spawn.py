"""Starts one program with its standard streams on a pipe or a terminal, and with no other descriptor of ours.

What must happen in the child before the program starts (a controlling terminal, another user, limits, mounts) is done
by launch.py, a small program of ours: code between fork and exec in a process with threads may hang. StartGate is the
moment in which bubblewrap reports its first process inside and waits for permission to start the command.

Limits: memory is RLIMIT_DATA, the private writable memory of a process. RLIMIT_AS would also count what Node, Java and
Go only reserve, tens of gigabytes at their start, and could only be set uselessly high. RLIMIT_DATA does not count
memory shared between processes.

Users: the kernel counts processes by user, so each sandbox that root starts gets its own user id: then its limit counts
its own processes only. The ids are above the ranges that systems assign to people, services and containers.
"""

from __future__ import annotations

import asyncio
import itertools
import marshal
import os
import resource
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import msgspec

from palinurus.domain.errors import NotFound, SandboxError
from palinurus.sandbox.sandbox import CommandLimits

ROWS, COLUMNS = 24, 80
_LAUNCH = Path(__file__).with_name("launch.py")
_STUB = """import marshal, sys
with open(int(sys.argv[1]), "rb") as file:
    code, orders = marshal.load(file)
names = {"__name__": "launch"}
exec(code, names)
names["main"](orders)
"""

_FOR_PYTHON = ("LD_LIBRARY_PATH", "PYTHONHOME")  # some interpreters do not start without these; the program gets none
SECONDS = 20.0  # for bubblewrap's first report; it takes milliseconds
CPU_GRACE = 2  # seconds between SIGXCPU, which a program may handle, and SIGKILL
_FAR, _FAR_MANY = 0x7000_0000, 0x0FFF_0000
_NEAR, _NEAR_MANY = 64_000, 1_500  # in a container with 65,536 ids: above systemd's dynamic users, below nobody
_counter = itertools.count()


class SpawnedProcess(NamedTuple):
    child: subprocess.Popen[bytes]
    output: int  # to be read by us, non-blocking
    input: int
    terminal: bool
    output_name: str  # the command's end of the output, as /proc names it


def spawn(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    cwd: str | None = None,
    pty: bool = False,
    pass_fds: Sequence[int] = (),
    orders: Mapping[str, Any] | None = None,
) -> SpawnedProcess:
    """Starts it as a session leader. With `orders`, launch.py carries those out first.

    Raises NotFound if there is no such program, and SandboxError if it cannot be started.
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
        raise start_error(argv[0], cwd, error) from error
    else:
        name = pipe_name(theirs[1])
    finally:
        _close(*theirs)
    for fd in ours:
        os.set_blocking(fd, False)
    return SpawnedProcess(child, ours[1], ours[0], pty, name)


def _pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns our ends and theirs, each with the input first. Both outputs of the command share one pipe, so their
    order is preserved."""
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
    """Returns what to start, its environment and its descriptors. The orders do not appear in process lists."""
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
    """Puts each piece behind a descriptor of its own, at its start; all are closed at the end of the block."""
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


def pipe_name(fd: int) -> str:
    """Returns its name in /proc; empty where there is no /proc."""
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    except OSError:  # not Linux
        return ""


def _close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)


def start_error(program: str, cwd: str | None, error: OSError | ValueError) -> NotFound | SandboxError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        if cwd is not None and not Path(cwd).is_dir():
            return NotFound(f"there is no directory {cwd}", hint="give an existing working directory")
        return NotFound(f"there is no program {program!r}", hint="is it installed, and on the PATH?")
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return SandboxError(f"{program!r} cannot be started: {str(reason).lower()}")


class StartGate(ExitStack):
    """Two pipes. `theirs` are the ends that bubblewrap gets."""

    def __init__(self) -> None:
        super().__init__()
        self._info, self.tell = os.pipe()
        reading, self._release = os.pipe()
        # Also opened for writing, so that it never ends by itself: if we die now, no command runs without its limits.
        self.hold = os.open(f"/proc/self/fd/{reading}", os.O_RDWR | os.O_CLOEXEC)
        os.close(reading)
        self.theirs = self.tell, self.hold
        self.callback(_close, self._info, self._release)
        self._copies = self.enter_context(ExitStack())
        self._copies.callback(_close, *self.theirs)

    def handed_over(self) -> None:
        """Closes our copies of bubblewrap's ends. While we hold them, we cannot see that it has ended."""
        self._copies.close()

    async def who(self) -> int | None:
        """Returns the pid of the first process inside, or None if bubblewrap ended without creating one."""
        os.set_blocking(self._info, False)
        output = b""
        async with asyncio.timeout(SECONDS):
            while piece := await _next(self._info):
                output += piece
        return int(msgspec.json.decode(output)["child-pid"]) if output.strip() else None

    def open(self) -> None:
        os.write(self._release, b"x")


async def _next(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    while True:
        try:
            return os.read(fd, 4096)
        except BlockingIOError:
            ready = asyncio.Event()
            loop.add_reader(fd, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(fd)


def as_rlimits(limits: CommandLimits, *, processes: bool) -> dict[int, tuple[int, int]]:
    """Returns soft and hard limits by resource. 0 is no limit; core dumps are always off."""
    pairs = {
        resource.RLIMIT_DATA: (limits.memory_bytes, limits.memory_bytes),
        resource.RLIMIT_FSIZE: (limits.file_bytes, limits.file_bytes),
        resource.RLIMIT_CPU: (limits.cpu_seconds, limits.cpu_seconds and limits.cpu_seconds + CPU_GRACE),
        resource.RLIMIT_NPROC: (limits.processes, limits.processes) if processes else (0, 0),
    }
    return {kind: pair for kind, pair in pairs.items() if pair[0]} | {resource.RLIMIT_CORE: (0, 0)}


def lower(pid: int, wanted: dict[int, tuple[int, int]]) -> None:
    """Sets them for another process, unless its own hard limits are lower. Linux only."""
    for kind, (soft, hard) in wanted.items():
        most = resource.prlimit(pid, kind)[1]
        endless = most == resource.RLIM_INFINITY
        resource.prlimit(pid, kind, (soft, hard) if endless else (min(soft, most), min(hard, most)))


def free_user(uid_map: str | None = None) -> int:
    """Returns an unused user id. Raises SandboxError where this root has no other users, as in some containers."""
    lines = (Path("/proc/self/uid_map").read_text() if uid_map is None else uid_map).splitlines()
    known = [tuple(map(int, line.split())) for line in lines if line.strip()]
    number = os.getpid() * 4096 + next(_counter) % 4096
    for first, many in ((_FAR, _FAR_MANY), (_NEAR, _NEAR_MANY)):
        if any(start <= first and first + many <= start + length for start, _, length in known):
            return first + number % many
    hint = "run pal as an ordinary user, or in a container with at least 65536 user ids"
    raise SandboxError("root has no other user ids here, so commands cannot run without root's privileges", hint=hint)
