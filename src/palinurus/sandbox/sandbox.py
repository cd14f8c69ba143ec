"""The interface of every sandbox backend; and a sandbox whose backend is imported at first use."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from time import monotonic, time
from typing import Protocol

from msgspec import MsgspecError, Struct, json
from msgspec.structs import replace

from palinurus.config.atomic import make_directory, write_atomic
from palinurus.domain.errors import SandboxError, StorageError
from palinurus.workspace.instructions import INSTRUCTIONS, Instructions

MIB = 1024 * 1024
AGAIN_SECONDS = 30.0  # a failed check is repeated after this time: the program may have been installed
TRIAL_SECONDS = 30.0  # that a plugin's sandbox may take to say whether it works
EXPECTED_SECONDS = 24 * 3600.0  # for this time a successful check is reported without a new trial
_MACHINE = (
    "sys/kernel/random/boot_id", "sys/kernel/apparmor_restrict_unprivileged_userns",
    "sys/kernel/unprivileged_userns_clone", "sys/user/max_user_namespaces", "sys/kernel/osrelease",
)  # fmt: skip
"""In /proc: settings that decide whether bubblewrap works. A change of one causes a new trial."""


class CommandLimits(Struct, frozen=True):
    """What one command may use. 0 is no limit."""

    memory_bytes: int = 2048 * MIB  # of all its processes together, including in-memory files
    cpu_seconds: int = 600  # of one process
    processes: int = 128  # at the same time
    file_bytes: int = 1024 * MIB  # of one written file
    wall_seconds: float = 1800.0
    disk_bytes: int = 20_480 * MIB  # written in total


class SandboxMount(Struct, frozen=True):
    """A directory of the host that a command sees."""

    source: Path
    target: str  # its path inside
    writable: bool = False
    private: bool = True  # whether the owner's private files are visible: see view.py
    guarded: bool = False  # whether the files that sessions start with are read-only
    closed: tuple[str, ...] = ()  # names in it that are hidden and cannot be created
    instructions: Instructions = INSTRUCTIONS  # files that sessions start with
    others: tuple[str, ...] = ()  # folders in it that are not the agent's: hidden, where they are


class SandboxCommand(Struct, frozen=True):
    """One command. The environment is complete: a sandbox adds only what it needs itself."""

    argv: tuple[str, ...]
    cwd: str  # as the command sees it
    env: Mapping[str, str]
    mounts: tuple[SandboxMount, ...] = ()  # the host ignores it: it sees everything
    network: bool = False  # the host always has it
    pty: bool = False
    limits: CommandLimits = CommandLimits()
    fds: tuple[int, ...] = ()  # descriptors that it inherits; host only
    folder: tuple[int, int] | None = None  # device and inode that cwd must still have; host only


class ProcessEnd(Struct, frozen=True):
    code: int  # as a shell reports it: 128 + n if a signal ended it
    reason: str = ""  # why we ended it: stopped, took longer than 1800 s, used more than 2048 MiB of memory in all


class Process(Protocol):
    """A running command."""

    @property
    def pid(self) -> int: ...

    async def read(self, size: int = 65_536) -> bytes:
        """Returns more output, standard output and error in the order of writing; empty at the end.

        The end is when no process holds the output any more, or shortly after the command itself has ended.
        """

    async def write(self, data: bytes, *, close: bool = False) -> None:
        """Writes to its standard input. Raises BadRequest if it is closed."""

    async def wait(self) -> ProcessEnd:
        """Waits for its end and returns it. Cancelling the wait leaves it running."""

    async def kill(self, reason: str = "stopped") -> None:
        """Ends it and everything it started, including processes that left its process group. Returns when all are
        gone.

        Also works after its end, for processes left behind on a host, and closes what we still hold of it. Its output
        can still be read. Raises SandboxError if a process cannot be ended.
        """


class SandboxStatus(Struct, frozen=True):
    """Whether a sandbox works, for people."""

    name: str  # host, bubblewrap, docker
    works: bool
    why: str = ""  # if it does not work: why, and what to do
    remarks: tuple[str, ...] = ()  # what is weaker than it could be on this machine


class Sandbox(Protocol):
    """Starts commands. Raises SandboxError if it cannot: a command never runs less isolated than requested."""

    @property
    def name(self) -> str: ...

    async def check(self) -> SandboxStatus:
        """Returns whether it works here, by trying. The result is cached, a failure only for AGAIN_SECONDS. Must not
        raise."""

    async def start(self, command: SandboxCommand) -> Process: ...


class CheckedSandbox:
    """Implements Sandbox for a backend that is tried before its first command.

    The backend implements `_trouble` (why it does not work, empty if it does), `_remarks` and `_start`.
    """

    name = ""

    def __init__(self) -> None:
        self._status: SandboxStatus | None = None
        self._checked = 0.0
        self._checking = asyncio.Lock()

    async def check(self) -> SandboxStatus:
        async with self._checking:
            if self._status is None or (not self._status.works and monotonic() - self._checked > AGAIN_SECONDS):
                why = await self._trouble()
                self._status = SandboxStatus(self.name, works=not why, why=why, remarks=self._remarks(works=not why))
                self._checked = monotonic()
            return self._status

    async def start(self, command: SandboxCommand) -> Process:
        found = await self.check()
        if not found.works:
            raise SandboxError(f"{self.name} does not work here: {found.why}", hint="`pal sandbox test` tries it again")
        return await self._start(command)

    async def _trouble(self) -> str:
        raise NotImplementedError

    def _remarks(self, *, works: bool) -> tuple[str, ...]:
        raise NotImplementedError

    async def _start(self, command: SandboxCommand) -> Process:
        raise NotImplementedError


class FallbackSandbox(Struct, eq=False):
    """Implements Sandbox by one that a plugin brings; while that does not work, by ours, which is no weaker."""

    chosen: Sandbox
    otherwise: Sandbox

    @property
    def name(self) -> str:
        return self.chosen.name

    async def check(self) -> SandboxStatus:
        status = await self._chosen_status()
        if status.works:
            return status
        other = await self.otherwise.check()
        why = f"{self.chosen.name} does not work ({status.why}), so {other.name} is used"
        return replace(other, remarks=(why, *other.remarks))

    async def start(self, command: SandboxCommand) -> Process:
        if not (await self._chosen_status()).works:
            return await self.otherwise.start(command)
        try:
            return await self.chosen.start(command)
        except SandboxError:
            raise
        except Exception as error:
            raise SandboxError(f"{self.chosen.name} could not start the command: {error}") from error

    async def _chosen_status(self) -> SandboxStatus:
        try:
            async with asyncio.timeout(TRIAL_SECONDS):
                return await self.chosen.check()
        except Exception as error:  # noqa: BLE001  somebody else's code; it is shown
            return SandboxStatus(self.chosen.name, works=False, why=f"{type(error).__name__}: {error}")


class _TrialRecord(Struct, frozen=True):
    """The result of a trial, and the machine it was made on."""

    machine: tuple[str, ...]
    at: float
    status: SandboxStatus


class DeferredSandbox(Struct, eq=False, dict=True):
    """Implements Sandbox by a backend that is imported and created at first use.

    `record` stores the result of the last trial, for `expect`; `program` is what that depends on.
    """

    name: str
    make: Callable[[], Sandbox]
    record: Path | None = None
    program: str = "bwrap"
    _recorded: SandboxStatus | None = None

    @cached_property
    def _made(self) -> Sandbox:
        return self.make()

    async def check(self) -> SandboxStatus:
        status = await self._made.check()
        if status != self._recorded:
            await asyncio.to_thread(self._save_record, status)
        return status

    async def start(self, command: SandboxCommand) -> Process:
        return await self._made.start(command)

    async def expect(self) -> SandboxStatus:
        """Returns the probable status from an earlier trial; for messages only, not for decisions."""
        return self._known() or await self.check()

    def _known(self) -> SandboxStatus | None:
        if self.record is None or "_made" in self.__dict__:  # it caches its result itself
            return None
        try:
            known = json.decode(self.record.read_bytes(), type=_TrialRecord)
        except (OSError, MsgspecError):
            return None
        recent = 0 <= time() - known.at < EXPECTED_SECONDS
        return known.status if recent and known.machine == self._machine() else None

    def _save_record(self, status: SandboxStatus) -> None:
        """Stores a success. A failure is not stored: it is checked again each time. A lost record is rebuilt."""
        self._recorded = status
        if self.record is None:
            return
        with suppress(OSError, StorageError):
            if status.works:
                make_directory(self.record.parent)
                write_atomic(self.record, json.encode(_TrialRecord(self._machine(), time(), status)))
            else:
                self.record.unlink(missing_ok=True)

    def _machine(self) -> tuple[str, ...]:
        """Identifies this user, program and kernel."""
        parts = [str(os.geteuid())]
        with suppress(OSError):
            found = shutil.which(self.program) or ""
            seen = Path(found).stat()
            parts += [found, str(seen.st_ino), str(seen.st_mtime_ns)]
        for name in _MACHINE:
            with suppress(OSError):
                parts.append(Path("/proc", name).read_text())
        return tuple(parts)
