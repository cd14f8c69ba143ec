"""Commands on the host, without walls: they see and may do what this user may.

What holds all the same: a clean environment, a session of their own, limits on their own process, and an end that
takes everything they started with them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from palinurus.domain.errors import NotFound, SandboxError
from palinurus.sandbox.family import COOKIE, POLITE_SECONDS, Marks, end_family
from palinurus.sandbox.limits import as_rlimits, lower
from palinurus.sandbox.process import Running
from palinurus.sandbox.sandbox import Command, Limits, Walls
from palinurus.sandbox.spawn import Spawned, spawn

_LINUX = sys.platform == "linux"
_REMARKS = (
    "commands see all files, processes and networks that this user sees",
    "a program that clears its environment, closes its streams and leaves its session outlives a stop",
    "the number of processes is not limited",
)
_ELSEWHERE = (
    "only the process group is ended by a stop: there is no /proc to find the rest",
    "memory, CPU and file size are not limited: they can be set for another process on Linux only",
)


class HostSandbox:
    """No sandbox, under the same protocol."""

    name = "host"

    async def check(self) -> Walls:
        return Walls(self.name, works=True, remarks=_REMARKS if _LINUX else (*_REMARKS, *_ELSEWHERE))

    async def start(self, command: Command) -> Running:
        cookie = os.urandom(12).hex()
        env = {**command.env, COOKIE: cookie}
        with _folder(command) as cwd:
            spawned = spawn(
                command.argv,
                env,
                cwd=cwd,
                pty=command.pty,
                pass_fds=command.fds,
                orders={"terminal": True} if command.pty else None,
            )
        _limit(spawned.child.pid, command.limits)
        return Running(spawned, _Ending(spawned, cookie), command.limits.wall_seconds)


class _Ending:
    """Ends the family of one command."""

    def __init__(self, spawned: Spawned, cookie: str) -> None:
        self.pid = spawned.child.pid
        self.cookie = cookie
        self.output = spawned.output_name

    async def __call__(self, ended: bool) -> list[int]:
        if _LINUX:
            # Its number may be somebody else's once it was waited for; those who stayed behind still have the marks.
            pid = 0 if ended else self.pid
            return await end_family(Marks(pid, pid, self.cookie, self.output))
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGTERM)
            await asyncio.sleep(POLITE_SECONDS)
            os.killpg(self.pid, signal.SIGKILL)
        return []


@contextmanager
def _folder(command: Command) -> Iterator[str]:
    """Where to start it: on Linux the very folder that was compared, whatever has its name a moment later."""
    if command.folder is None:
        yield command.cwd
        return
    try:
        held = os.open(command.cwd, os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY))
    except OSError:
        raise NotFound(f"there is no directory {command.cwd}", hint="give an existing working directory") from None
    try:
        found = os.fstat(held)
        if (found.st_dev, found.st_ino) != command.folder:
            raise SandboxError(f"{command.cwd} is another folder than the one that was looked at", hint="ask again")
        yield f"/proc/self/fd/{held}" if _LINUX else command.cwd
    finally:
        os.close(held)


def _limit(pid: int, limits: Limits) -> None:
    """From outside and a moment late, which is soon enough against accidents; a host is no wall against more."""
    if _LINUX:
        with suppress(ProcessLookupError):
            lower(pid, as_rlimits(limits, processes=False))
