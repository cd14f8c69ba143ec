"""What a place to run commands offers, whoever makes its walls."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from palinurus.workspace.instructions import INSTRUCTIONS, Instructions

MIB = 1024 * 1024
AGAIN_SECONDS = 30.0  # what does not work is tried again after so long: somebody may have installed it


class Limits(Struct, frozen=True):
    """What one command may use. Nought is no limit."""

    memory_bytes: int = 2048 * MIB  # of one process
    cpu_seconds: int = 600  # of one process
    processes: int = 128  # at the same time
    file_bytes: int = 1024 * MIB  # of one written file
    wall_seconds: float = 1800.0


class Mount(Struct, frozen=True):
    """A directory of the host that a command sees."""

    source: Path
    target: str  # where it stands inside
    writable: bool = False
    private: bool = True  # whether what belongs to the owner alone is shown: see covers.py
    guarded: bool = False  # whether what conversations begin with can only be read
    closed: tuple[str, ...] = ()  # names in it that are neither shown nor can be made
    instructions: Instructions = INSTRUCTIONS  # what conversations begin with


class Command(Struct, frozen=True):
    """One thing to run. The environment is whole: nothing is added to it but what a sandbox itself needs."""

    argv: tuple[str, ...]
    cwd: str  # as the command sees it
    env: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()  # a host has none: it sees everything
    network: bool = False  # a host always has it
    pty: bool = False
    limits: Limits = Limits()
    fds: tuple[int, ...] = ()  # descriptors that it keeps; a host's only
    folder: tuple[int, int] | None = None  # device and inode that cwd must still have; a host's only


class Ended(Struct, frozen=True):
    code: int  # as a shell tells it: 128 + n when a signal ended it
    reason: str = ""  # when we ended it: stopped, took longer than 1800 s


class Process(Protocol):
    """A command that runs."""

    @property
    def pid(self) -> int: ...

    async def read(self, size: int = 65_536) -> bytes:
        """More of what it wrote, standard output and error in the order of writing; empty at the end.

        The end is when nobody holds the output any more, or shortly after the command itself has ended.
        """

    async def write(self, data: bytes, *, close: bool = False) -> None:
        """To its standard input. Raises BadRequest when it no longer listens."""

    async def wait(self) -> Ended:
        """How it ended. Cancelling the wait leaves it running."""

    async def kill(self, reason: str = "stopped") -> None:
        """End it and everything it started, also what has left its process group. Returns when all are gone.

        Works after its end too, for what it left behind on a host, and gives back what we still hold of it. What it
        wrote can still be read. Raises SandboxError when somebody would not go.
        """


class Walls(Struct, frozen=True):
    """What a place is, for people."""

    name: str  # host, bubblewrap, docker
    works: bool
    why: str = ""  # when it does not work: why, and what to do
    remarks: tuple[str, ...] = ()  # what is weaker than one would wish on this machine


class Sandbox(Protocol):
    """Starts commands. Raises SandboxError when it cannot: never runs one with fewer walls than asked for."""

    @property
    def name(self) -> str: ...

    async def check(self) -> Walls:
        """Whether it works here, by trying; remembered, a failure only for AGAIN_SECONDS. Must not raise."""

    async def start(self, command: Command) -> Process: ...
