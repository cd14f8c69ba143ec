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
from functools import partial

from palinurus.domain.errors import NotFound, SandboxError
from palinurus.sandbox.family import COOKIE, POLITE_SECONDS, Marks, end_family
from palinurus.sandbox.process import RunningProcess
from palinurus.sandbox.sandbox import SandboxCommand, SandboxStatus
from palinurus.sandbox.spawn import as_rlimits, lower, spawn

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
        env, orders = {**command.env, COOKIE: cookie}, {"terminal": True} if command.pty else None
        with _folder(command) as cwd:
            spawned = spawn(command.argv, env, cwd=cwd, pty=command.pty, pass_fds=command.fds, orders=orders)
        pid = spawned.child.pid
        if _LINUX:
            # From outside and a moment late, which is enough against accidents; the host gives no other protection.
            with suppress(ProcessLookupError):
                lower(pid, as_rlimits(command.limits, processes=False))
        end_all = partial(_end_all, pid, cookie, spawned.output_name)
        return RunningProcess(spawned, end_all, command.limits.wall_seconds)


async def _end_all(pid: int, cookie: str, output: str, ended: bool) -> list[int]:
    """Ends all processes of one command."""
    if _LINUX:
        # Its pid may be reused once it was waited for; processes left behind still have the marks.
        own = 0 if ended else pid
        return await end_family(Marks(own, own, cookie, output))
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGTERM)
        await asyncio.sleep(POLITE_SECONDS)
        os.killpg(pid, signal.SIGKILL)
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
