"""Runs commands on the host, without a sandbox: they see and may do what this user may.

They still get a clean environment, their own session and limits on their own process, and ending one ends everything it
started.
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
from palinurus.sandbox.process import RunningProcess
from palinurus.sandbox.sandbox import CommandLimits, SandboxCommand, SandboxStatus
from palinurus.sandbox.spawn import SpawnedProcess, as_rlimits, lower, spawn

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
    """Implements Sandbox without isolation."""

    name = "host"

    async def check(self) -> SandboxStatus:
        return SandboxStatus(self.name, works=True, remarks=_REMARKS if _LINUX else (*_REMARKS, *_ELSEWHERE))

    async def start(self, command: SandboxCommand) -> RunningProcess:
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
        return RunningProcess(spawned, _Termination(spawned, cookie), command.limits.wall_seconds)


class _Termination:
    """Ends all processes of one command."""

    def __init__(self, spawned: SpawnedProcess, cookie: str) -> None:
        self.pid = spawned.child.pid
        self.cookie = cookie
        self.output = spawned.output_name

    async def __call__(self, ended: bool) -> list[int]:
        if _LINUX:
            # Its pid may be reused once it was waited for; processes left behind still have the marks.
            pid = 0 if ended else self.pid
            return await end_family(Marks(pid, pid, self.cookie, self.output))
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGTERM)
            await asyncio.sleep(POLITE_SECONDS)
            os.killpg(self.pid, signal.SIGKILL)
        return []


@contextmanager
def _folder(command: SandboxCommand) -> Iterator[str]:
    """Returns where to start it: on Linux exactly the folder that was compared, even if its name changes."""
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
            raise SandboxError(f"{command.cwd} is not the folder that was inspected", hint="send the call again")
        yield f"/proc/self/fd/{held}" if _LINUX else command.cwd
    finally:
        os.close(held)


def _limit(pid: int, limits: CommandLimits) -> None:
    """Sets limits from outside and a moment late, which is enough against accidents; the host gives no other
    protection."""
    if _LINUX:
        with suppress(ProcessLookupError):
            lower(pid, as_rlimits(limits, processes=False))
