"""Commands behind bubblewrap's walls: namespaces of their own, a made-up root, no network, limits the kernel keeps.

bubblewrap is started with an empty environment, since what it is started with stays readable in /proc/1/environ; its
arguments, the command's variables among them, go through a descriptor and show in no listing of processes. It holds
the command back until we have set its limits from outside. Root does not start it as root: see launch.py.
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
from palinurus.sandbox.covers import covered, make_room
from palinurus.sandbox.family import LAST_SECONDS, POLITE_SECONDS, Relative, alive, descendants, gone, signal_all
from palinurus.sandbox.gate import Gate
from palinurus.sandbox.groups import Group, Groups, find_groups
from palinurus.sandbox.limits import as_rlimits, lower
from palinurus.sandbox.process import Running, read_whole
from palinurus.sandbox.sandbox import AGAIN_SECONDS, Command, Limits, Mount, Walls
from palinurus.sandbox.scratch_folder import scratch_folder
from palinurus.sandbox.seccomp import call_filter
from palinurus.sandbox.spawn import held, spawn
from palinurus.sandbox.totals import (
    Totals,
    look_at_group,
    look_at_machine,
    look_at_memory,
    look_at_writing,
    looks_at_disks,
    memory_reason,
)
from palinurus.sandbox.trouble import OLDEST, dialect_of, explain, limits_processes, missing, read_version, remarks_here
from palinurus.sandbox.users import free_user
from palinurus.sandbox.view import (
    SCRATCH,
    Dialect,
    Hidden,
    Shown,
    directories,
    etc_files,
    real_mounts,
    repositories,
    root_file_system,
    scratch,
    started,
    walls,
)

STAGE = "/tmp"  # noqa: S108  as launch.py has it
INSIDE, OUTSIDE = 1, 1  # bubblewrap's own processes, which count as well: of root's sandboxes both
TRIAL_SECONDS = 20.0
_TRIAL = "the walls stand"
_FIRST_TO_GO = "500"  # of 1000: when memory runs out, sandboxes go first

FindGroups = Callable[[], Groups | None]

log = logging.getLogger(__name__)


class BubblewrapSandbox:
    """`pal_home` is never seen inside, nor is `user_home` as a whole."""

    name = "bubblewrap"

    def __init__(
        self,
        pal_home: Path | None = None,
        user_home: Path | None = None,
        program: str = "bwrap",
        *,
        find_groups: FindGroups = find_groups,
    ) -> None:
        self._hidden = Hidden(pal_home, user_home)
        self._program = program
        self._find_groups = find_groups
        self._groups: Groups | None = None
        self._dialect = Dialect()
        self._walls: Walls | None = None
        self._checked = 0.0
        self._checking = asyncio.Lock()

    async def check(self) -> Walls:
        async with self._checking:
            if self._walls is None or (not self._walls.works and monotonic() - self._checked > AGAIN_SECONDS):
                why = await self._trouble()
                remarks = () if why else remarks_here(self._dialect, grouped=self._groups is not None)
                self._walls = Walls(self.name, works=not why, why=why, remarks=remarks)
                self._checked = monotonic()
            return self._walls

    async def start(self, command: Command) -> Running:
        found = await self.check()
        if not found.works:
            raise SandboxError(f"bubblewrap does not work here: {found.why}", hint="`pal sandbox test` tries it again")
        return await self._start(command)

    async def _trouble(self) -> str:
        """Why it does not work, by trying; empty if it does."""
        program = shutil.which(self._program)
        if program is None:
            return missing(self._program)
        self._program = program
        version = read_version(await asyncio.to_thread(_ask_version, program))
        if version < OLDEST:
            return f"{program} is older than {'.'.join(map(str, OLDEST))}; install a newer one"
        self._dialect = dialect_of(version)
        self._groups = await asyncio.to_thread(self._find_groups)
        try:
            return await self._trial()
        except (PalinurusError, OSError) as error:
            return str(error)

    async def _trial(self) -> str:
        """A directory of ours is shown and written, since that is what can fail for root."""
        home = self._hidden.pal_home
        with scratch_folder(".trial-", home if home and home.is_dir() else None) as folder:
            place = str(folder)
            line = f"cd {place} && echo {_TRIAL} > trial && cat trial"
            command = Command(
                ("/bin/sh", "-c", line), place, {"PATH": "/usr/bin:/bin"}, (Mount(folder, place, True),),
                limits=Limits(wall_seconds=TRIAL_SECONDS),
            )  # fmt: skip
            process = await self._start(command)
            said = (await read_whole(process)).decode(errors="replace").strip()
            return "" if said == _TRIAL else explain(said)

    async def _start(self, command: Command) -> Running:
        mounts = real_mounts(command.mounts, self._hidden)
        for mount in (each for each in mounts if each.guarded or each.closed):
            await asyncio.to_thread(make_room, mount)
        orders = _orders(command, mounts) if os.geteuid() == 0 else None
        shown = [
            Shown(
                each.source,
                f"{STAGE}/{number}" if orders else str(each.source),
                each.target,
                each.writable,
                covered(each),
            )
            for number, each in enumerate(mounts)
        ]
        closed = repositories(shown)
        with Gate() as gate, self._arguments(command, shown, gate, closed) as (asked_at, fds):
            call = (self._program, "--args", str(asked_at), "--", *started(command))
            spawned = spawn(call, {}, cwd="/", pty=command.pty, pass_fds=(asked_at, *fds, *gate.theirs), orders=orders)
            ending = _Ending(spawned.child.pid)
            process = Running(spawned, ending, command.limits.wall_seconds)
            gate.handed_over()
            try:
                ending.inner = await _first_inside(process, gate)
                if orders is None:
                    _limit(ending.inner.pid, command.limits)
                process.watch(await asyncio.to_thread(self._totals, command, ending.inner, process.pid))
                await _check_places(ending.inner.pid, closed)
                gate.open()
            except BaseException:  # a cancelled start as well leaves nothing behind
                await process.kill("could not be started")
                raise
        return process

    def _totals(self, command: Command, inner: Relative, outer: int) -> Totals:
        limit = command.limits.memory_bytes
        looks = looks_at_disks(command)
        if command.limits.disk_bytes:
            looks.append(look_at_writing(inner, command.limits.disk_bytes))
        group = self._group(limit, outer, inner.pid) if limit else None
        if group is not None:
            looks.append(look_at_group(group, limit))
        elif limit:
            looks += [look_at_memory(inner, SCRATCH, limit), look_at_machine()]

        def last() -> str:
            if group is None or self._groups is None:
                return ""
            exceeded = group.was_exceeded()
            self._groups.end(group)
            return memory_reason(limit) if exceeded else ""

        return Totals(looks, partial(signal_all, [inner], signal.SIGKILL), last)

    def _group(self, limit: int, *pids: int) -> Group | None:
        if self._groups is None:
            return None
        try:
            group = self._groups.make(limit)
            group.take(*pids)
        except OSError as error:  # then it is looked at from outside
            log.warning("no control group for a command: %s", error)
            return None
        return group

    @contextmanager
    def _arguments(
        self, command: Command, shown: list[Shown], gate: Gate, closed: Collection[str]
    ) -> Iterator[tuple[int, list[int]]]:
        """A descriptor with bubblewrap's arguments, and those that they speak of."""
        files, calls = etc_files(command.network), call_filter()
        asked = [*walls(command, self._dialect), *root_file_system()]
        with held(*files.values(), *([calls] if calls else [])) as fds:
            for path, fd in zip(files, fds, strict=False):
                asked += ["--file", str(fd), path]
            asked += [*scratch(command, self._dialect), *directories(shown, self._hidden, closed)]
            asked += ["--seccomp", str(fds[-1])] if calls else []
            asked += ["--info-fd", str(gate.tell), "--block-fd", str(gate.hold), "--chdir", command.cwd]
            for name, value in command.env.items():
                asked += ["--setenv", name, value]
            with held(_joined(asked)) as (asked_at,):
                yield asked_at, fds


async def _check_places(pid: int, expected: Mapping[str, tuple[int, int]]) -> None:
    """Before the command begins: bubblewrap went by path, and a path may have come to mean something else meanwhile."""
    for place, identity in expected.items():
        if await _seen_inside(pid, place) != identity:
            raise SandboxError(f"{place} was replaced while the sandbox was made", hint="look at who does that")


async def _seen_inside(pid: int, place: str) -> tuple[int, int]:
    """What stands there once the sandbox has its own root."""
    until = monotonic() + TRIAL_SECONDS
    while monotonic() < until:
        if seen := _look_inside(pid, place):
            return seen
        await asyncio.sleep(0.0005)
    raise SandboxError(f"{place} is not there inside the sandbox")


def _look_inside(pid: int, place: str) -> tuple[int, int] | None:
    """None while the root is being changed: before that, the path would be the machine's."""
    root, ours = Path(f"/proc/{pid}/root"), Path("/").stat()
    try:
        own, seen = root.stat(), Path(f"{root}{place}").lstat()
    except FileNotFoundError:
        return None
    return None if (own.st_dev, own.st_ino) == (ours.st_dev, ours.st_ino) else (seen.st_dev, seen.st_ino)


class _Ending:
    """Whoever is inside goes with the first process inside. Bubblewrap's own process outside then ends by itself."""

    def __init__(self, outer: int) -> None:
        self.outer = alive(outer)
        self.inner: Relative | None = None

    async def __call__(self, ended: bool) -> list[int]:
        outer = [self.outer] if self.outer else []
        members = await self._caught(outer) if self.inner is None else await self._asked_to_go(self.inner, ended)
        if await gone(outer, POLITE_SECONDS if self.inner else 0):
            signal_all(outer, signal.SIGKILL)
        return [each.pid for each in await gone([*members, *outer], LAST_SECONDS)]

    async def _asked_to_go(self, inner: Relative, ended: bool) -> list[Relative]:
        members = await asyncio.to_thread(descendants, inner.pid) if alive(inner.pid) else []
        signal_all(members, signal.SIGTERM, signal.SIGCONT)
        await gone(members, 0 if ended else POLITE_SECONDS)
        signal_all([inner], signal.SIGKILL)
        return [*members, inner]

    async def _caught(self, outer: list[Relative]) -> list[Relative]:
        """Still starting: held still, so that it makes nobody whom we do not know of."""
        signal_all(outer, signal.SIGSTOP)
        members = [found for each in outer for found in await asyncio.to_thread(descendants, each.pid)]
        signal_all(members, signal.SIGKILL)
        return members


async def _first_inside(process: Running, gate: Gate) -> Relative:
    pid = await gate.who()
    found = alive(pid) if pid is not None else None
    if found is None:
        said = (await read_whole(process)).decode(errors="replace")
        raise SandboxError(f"the sandbox could not be made: {explain(said)}")
    return found


def _limit(pid: int, limits: Limits) -> None:
    """For an ordinary user, who may set them from outside. Inside its namespace only its own processes count."""
    counted = limits_processes() and limits.processes
    wanted = msgspec.structs.replace(limits, processes=counted and limits.processes + INSIDE)
    lower(pid, as_rlimits(wanted, processes=bool(counted)))
    with suppress(OSError):  # it is a courtesy
        Path(f"/proc/{pid}/oom_score_adj").write_text(_FIRST_TO_GO)


def _orders(command: Command, mounts: list[Mount]) -> dict[str, Any]:
    """What launch.py does for root."""
    found = [(mount, mount.source.stat()) for mount in mounts]
    processes = command.limits.processes and command.limits.processes + INSIDE + OUTSIDE
    limits = as_rlimits(msgspec.structs.replace(command.limits, processes=processes), processes=True)
    return {
        "parent": os.getpid(),
        "user": free_user(),
        "limits": limits,
        "directories": [(str(mount.source), each.st_uid, each.st_gid, mount.writable) for mount, each in found],
    }


def _joined(asked: list[str]) -> bytes:
    if any("\0" in each for each in asked):
        raise SandboxError("a variable or path of the command holds a zero byte", hint="leave it out")
    return b"".join(os.fsencode(each) + b"\0" for each in asked)


def _ask_version(program: str) -> str:
    try:
        asked = subprocess.run([program, "--version"], capture_output=True, text=True, env={}, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return asked.stdout
