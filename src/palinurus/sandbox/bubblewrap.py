"""Runs commands in bubblewrap: their own namespaces, a root file system made for the command, no network, kernel
limits.

bubblewrap is started with an empty environment, because that stays readable in /proc/1/environ. Its arguments,
including the command's variables, go through a descriptor and appear in no process list. It delays the command until we
have set its limits from outside. If pal runs as root, launch.py first becomes another user.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from palinurus.domain.errors import PalinurusError, SandboxError
from palinurus.sandbox import kernel, totals, view
from palinurus.sandbox.family import LAST_SECONDS, POLITE_SECONDS, Relative, alive, descendants, gone, signal_all
from palinurus.sandbox.folders import scratch_folder
from palinurus.sandbox.process import RunningProcess, read_whole
from palinurus.sandbox.sandbox import CheckedSandbox, CommandLimits, SandboxCommand, SandboxMount
from palinurus.sandbox.spawn import StartGate, as_rlimits, free_user, held, lower, spawn

STAGE = "/tmp"  # noqa: S108  as launch.py has it
INSIDE, OUTSIDE = 1, 1  # bubblewrap's own processes count too: for root's sandboxes both
TRIAL_SECONDS = 20.0
_TRIAL = "it works"

FindGroups = Callable[[], totals.Groups | None]

log = logging.getLogger(__name__)


class BubblewrapSandbox(CheckedSandbox):
    """Runs commands in bubblewrap. `pal_home` is never visible inside, nor is `user_home` as a whole."""

    name = "bubblewrap"

    def __init__(
        self,
        pal_home: Path | None = None,
        user_home: Path | None = None,
        program: str = "bwrap",
        *,
        find_groups: FindGroups = totals.find_groups,
    ) -> None:
        super().__init__()
        self._hidden = view.Hidden(pal_home, user_home)
        self._program = program
        self._find_groups = find_groups
        self._groups: totals.Groups | None = None
        self._dialect = view.BubblewrapDialect()

    def _remarks(self, *, works: bool) -> tuple[str, ...]:
        return kernel.remarks_here(self._dialect, grouped=self._groups is not None) if works else ()

    async def _trouble(self) -> str:
        """Returns why it does not work, by trying; empty if it does."""
        program = shutil.which(self._program)
        if program is None:
            return kernel.missing(self._program)
        self._program = program
        version = kernel.read_version(await asyncio.to_thread(_ask_version, program))
        if version < kernel.OLDEST:
            return f"{program} is older than {'.'.join(map(str, kernel.OLDEST))}; install a newer one"
        self._dialect = kernel.dialect_of(version)
        self._groups = await asyncio.to_thread(self._find_groups)
        try:
            return await self._trial()
        except (PalinurusError, OSError) as error:
            return str(error)

    async def _trial(self) -> str:
        """Tries to show and write a directory of ours, since that is what can fail for root."""
        home = self._hidden.pal_home
        with scratch_folder(".trial-", home if home and home.is_dir() else None) as folder:
            place = str(folder)
            line = f"cd {place} && echo {_TRIAL} > trial && cat trial"
            command = SandboxCommand(
                ("/bin/sh", "-c", line), place, {"PATH": "/usr/bin:/bin"}, (SandboxMount(folder, place, True),),
                limits=CommandLimits(wall_seconds=TRIAL_SECONDS),
            )  # fmt: skip
            process = await self._start(command)
            output = (await read_whole(process)).decode(errors="replace").strip()
            return "" if output == _TRIAL else kernel.explain(output)

    async def _start(self, command: SandboxCommand) -> RunningProcess:
        mounts = await asyncio.to_thread(view.prepare_mounts, command.mounts, self._hidden)
        orders = _orders(command, mounts) if os.geteuid() == 0 else None
        shown = []
        for number, each in enumerate(mounts):
            found_at = f"{STAGE}/{number}" if orders else str(each.source)
            shown.append(view.MountedDirectory(each.source, found_at, each.target, each.writable, view.covered(each)))
        closed = view.repositories(shown)
        with StartGate() as gate, self._arguments(command, shown, gate, closed) as (args_fd, fds):
            call = (self._program, "--args", str(args_fd), "--", *view.started(command))
            spawned = spawn(call, {}, cwd="/", pty=command.pty, pass_fds=(args_fd, *fds, *gate.theirs), orders=orders)
            ending = _Termination(spawned.child.pid)
            process = RunningProcess(spawned, ending, command.limits.wall_seconds)
            gate.handed_over()
            try:
                ending.inner = await _first_inside(process, gate)
                if orders is None:
                    _limit(ending.inner.pid, command.limits)
                process.watch(await asyncio.to_thread(self._totals, command, ending.inner, process.pid))
                await _check_places(ending.inner.pid, closed)
                gate.open()
            except BaseException:  # a cancelled start must leave nothing behind either
                await process.kill("could not be started")
                raise
        return process

    def _totals(self, command: SandboxCommand, inner: Relative, outer: int) -> totals.UsageTotals:
        limit = command.limits.memory_bytes
        looks = totals.looks_at_disks(command)
        if command.limits.disk_bytes:
            looks.append(totals.look_at_writing(inner, command.limits.disk_bytes))
        group = self._group(limit, outer, inner.pid) if limit else None
        if group is not None:
            looks.append(totals.look_at_group(group, limit))
        elif limit:
            looks += [totals.look_at_memory(inner, view.SCRATCH, limit), totals.look_at_machine()]

        def last() -> str:
            if group is None or self._groups is None:
                return ""
            exceeded = group.was_exceeded()
            self._groups.end(group)
            return totals.memory_reason(limit) if exceeded else ""

        return totals.UsageTotals(looks, partial(signal_all, [inner], signal.SIGKILL), last)

    def _group(self, limit: int, *pids: int) -> totals.Group | None:
        if self._groups is None:
            return None
        try:
            group = self._groups.make(limit)
            group.take(*pids)
        except OSError as error:  # then its memory is checked from outside
            log.warning("no control group for a command: %s", error)
            return None
        return group

    @contextmanager
    def _arguments(
        self, command: SandboxCommand, shown: list[view.MountedDirectory], gate: StartGate, closed: Collection[str]
    ) -> Iterator[tuple[int, list[int]]]:
        """Returns a descriptor with bubblewrap's arguments, and the descriptors that these name."""
        files, calls = view.etc_files(command.network), kernel.call_filter()
        args = [*view.isolation(command, self._dialect), *view.root_file_system()]
        with held(*files.values(), *([calls] if calls else [])) as fds:
            for path, fd in zip(files, fds, strict=False):
                args += ["--file", str(fd), path]
            args += [*view.scratch(command, self._dialect), *view.directories(shown, self._hidden, closed)]
            args += ["--seccomp", str(fds[-1])] if calls else []
            args += ["--info-fd", str(gate.tell), "--block-fd", str(gate.hold), "--chdir", command.cwd]
            for name, value in command.env.items():
                args += ["--setenv", name, value]
            with held(_joined(args)) as (args_fd,):
                yield args_fd, fds


async def _check_places(pid: int, expected: Mapping[str, tuple[int, int]]) -> None:
    """Checks the mounts before the command starts: bubblewrap used paths, and a path may have changed meanwhile."""
    for place, identity in expected.items():
        until = monotonic() + TRIAL_SECONDS
        while (seen := _look_inside(pid, place)) is None:  # the sandbox has no root of its own yet
            if monotonic() > until:
                raise SandboxError(f"{place} does not exist inside the sandbox")
            await asyncio.sleep(0.0005)
        if seen != identity:
            hint = "find out which program replaces it"
            raise SandboxError(f"{place} was replaced while the sandbox was created", hint=hint)


def _look_inside(pid: int, place: str) -> tuple[int, int] | None:
    """Returns None while the root is being changed: before that, the path would be the host's."""
    root, ours = Path(f"/proc/{pid}/root"), Path("/").stat()
    try:
        own, seen = root.stat(), Path(f"{root}{place}").lstat()
    except FileNotFoundError:
        return None
    return None if (own.st_dev, own.st_ino) == (ours.st_dev, ours.st_ino) else (seen.st_dev, seen.st_ino)


class _Termination:
    """Ends all processes inside by ending the first one inside. Then bubblewrap's process outside ends by itself."""

    def __init__(self, outer: int) -> None:
        self.outer = alive(outer)
        self.inner: Relative | None = None

    async def __call__(self, ended: bool) -> list[int]:
        outer = [self.outer] if self.outer else []
        members = await self._end_starting(outer) if self.inner is None else await self._end_politely(self.inner, ended)
        if await gone(outer, POLITE_SECONDS if self.inner else 0):
            signal_all(outer, signal.SIGKILL)
        return [each.pid for each in await gone([*members, *outer], LAST_SECONDS)]

    async def _end_politely(self, inner: Relative, ended: bool) -> list[Relative]:
        members = await asyncio.to_thread(descendants, inner.pid) if alive(inner.pid) else []
        signal_all(members, signal.SIGTERM, signal.SIGCONT)
        await gone(members, 0 if ended else POLITE_SECONDS)
        signal_all([inner], signal.SIGKILL)
        return [*members, inner]

    async def _end_starting(self, outer: list[Relative]) -> list[Relative]:
        """Ends a sandbox that is still starting: stops it first, so that it cannot start a process we do not see."""
        signal_all(outer, signal.SIGSTOP)
        members = [found for each in outer for found in await asyncio.to_thread(descendants, each.pid)]
        signal_all(members, signal.SIGKILL)
        return members


async def _first_inside(process: RunningProcess, gate: StartGate) -> Relative:
    pid = await gate.who()
    found = alive(pid) if pid is not None else None
    if found is None:
        output = (await read_whole(process)).decode(errors="replace")
        raise SandboxError(f"the sandbox could not be created: {kernel.explain(output)}")
    return found


def _limit(pid: int, limits: CommandLimits) -> None:
    """Sets limits from outside, as an ordinary user may. Inside its namespace only its own processes count."""
    counted = kernel.limits_processes() and limits.processes
    wanted = msgspec.structs.replace(limits, processes=counted and limits.processes + INSIDE)
    lower(pid, as_rlimits(wanted, processes=bool(counted)))
    with suppress(OSError):  # of 1000: when memory runs out, the kernel ends sandboxes first; a failure is harmless
        Path(f"/proc/{pid}/oom_score_adj").write_text("500")


def _orders(command: SandboxCommand, mounts: list[SandboxMount]) -> dict[str, Any]:
    """Returns what launch.py does for root."""
    found = [(mount, mount.source.stat()) for mount in mounts]
    shown = [(str(mount.source), seen.st_uid, seen.st_gid, mount.writable) for mount, seen in found]
    processes = command.limits.processes and command.limits.processes + INSIDE + OUTSIDE
    limits = as_rlimits(msgspec.structs.replace(command.limits, processes=processes), processes=True)
    return {"parent": os.getpid(), "user": free_user(), "limits": limits, "directories": shown}


def _joined(args: list[str]) -> bytes:
    if any("\0" in each for each in args):
        raise SandboxError("a variable or path of the command contains a zero byte", hint="leave it out")
    return b"".join(os.fsencode(each) + b"\0" for each in args)


def _ask_version(program: str) -> str:
    try:
        args = subprocess.run([program, "--version"], capture_output=True, text=True, env={}, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return args.stdout
