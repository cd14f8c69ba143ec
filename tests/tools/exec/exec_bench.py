"""A desk for exec with a real host and, where there is one, a real bubblewrap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from palinurus.domain.clock import SystemClock, random_id
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import PreparedCall, Tool, ToolOutput, ToolRun
from palinurus.sandbox.bubblewrap import BubblewrapSandbox
from palinurus.sandbox.environment import ExecEnvironment
from palinurus.sandbox.host import HostSandbox
from palinurus.sandbox.sandbox import Process, Sandbox, SandboxCommand, SandboxStatus
from palinurus.storage.database import MemoryDatabase
from palinurus.tools.built_in import exec_tools
from palinurus.tools.exec.context import ExecContext
from palinurus.tools.exec.processes import Processes
from palinurus.tools.grants import Grant, GrantStore, add_grant
from palinurus.tools.registry import ToolRegistry
from palinurus.tools.settings import ElevatedSettings, ExecSettings
from palinurus.workspace.file_origins import FileOrigins

PATH = "/usr/local/bin:/usr/bin:/bin"
FULL = ExecSettings(security="full", ask="off")
SECONDS = 60.0


class NoSandbox:
    """A machine without a sandbox."""

    name = "bubblewrap"

    async def check(self) -> SandboxStatus:
        return SandboxStatus(self.name, works=False, why="bwrap is not installed: apt install bubblewrap")

    async def start(self, command: SandboxCommand) -> Process:
        raise AssertionError("nothing may be started in a sandbox that does not work")


class Spy:
    """Passes on what it is told to start, and remembers it."""

    def __init__(self, inner: Sandbox) -> None:
        self.inner = inner
        self.started: list[SandboxCommand] = []

    @property
    def name(self) -> str:
        return self.inner.name

    async def check(self) -> SandboxStatus:
        return await self.inner.check()

    async def start(self, command: SandboxCommand) -> Process:
        self.started.append(command)
        return await self.inner.start(command)


async def working_bubblewrap() -> Sandbox:
    sandbox = BubblewrapSandbox()
    walls = await sandbox.check()
    if not walls.works:
        pytest.skip(f"bubblewrap does not work here: {walls.why}")
    return sandbox


class Bench:
    """exec and process over one workspace."""

    made: ClassVar[list[Bench]] = []  # whose commands end with the test

    def __init__(
        self,
        workspace: Path,
        settings: ExecSettings = FULL,
        *,
        sandboxed: Any = "no",
        sandbox: Sandbox | None = None,
        elevated: ElevatedSettings | None = None,
        grants: Sequence[Grant] = (),
        network: bool = False,
        heeds_outside: bool = True,
        origins: FileOrigins | None = None,
    ) -> None:
        self.made.append(self)
        self.workspace = workspace
        self.sandboxed = sandboxed
        self.network = network
        self.host = Spy(HostSandbox())
        self.sandbox = Spy(sandbox or NoSandbox())
        self.clock = SystemClock()
        self.processes = Processes(self.clock, random_id)
        database = MemoryDatabase()
        self.grants = GrantStore(database)
        for each in grants:
            database.look(partial(add_grant, grant=each))
        self.desk = ExecContext(
            environment=self._quarters,
            sandbox=self.sandbox,
            host=self.host,
            grants=self.grants,
            settings=settings,
            elevated=elevated or ElevatedSettings(),
            clock=self.clock,
            processes=lambda: self.processes,
            path=PATH,
            home=str(workspace),
            heeds_outside=heeds_outside,
            origins=origins or FileOrigins(),
        )
        self.exec, self.process = exec_tools(self.desk)
        self.registry = ToolRegistry((self.exec, self.process))

    def _quarters(self, key: SessionKey) -> ExecEnvironment:
        return ExecEnvironment(self.sandboxed, self.workspace, writable=True, network=self.network)

    @property
    def started(self) -> list[SandboxCommand]:
        return self.host.started + self.sandbox.started

    async def prepare(self, run: ToolRun | None = None, **arguments: Any) -> PreparedCall:
        assert self.exec.prepare is not None
        prepared = await self.exec.prepare(run or a_run(), arguments)
        assert isinstance(prepared, PreparedCall), prepared.content
        return prepared

    async def use(self, tool: Tool, run: ToolRun | None = None, **arguments: Any) -> ToolOutput:
        return await asyncio.wait_for(tool.run(run or a_run(), arguments), SECONDS)

    async def runs(self, command: str = "", **arguments: Any) -> str:
        """The text of a command that must not fail."""
        told = await self.use(self.exec, command=command, **arguments)
        assert not told.is_error, told.content
        return str(told.content)

    async def approved(self, run: ToolRun | None = None, **arguments: Any) -> ToolOutput:
        """The result after a person said yes."""
        prepared = await self.prepare(run, **arguments)
        assert prepared.ask, "nobody was asked"
        return await asyncio.wait_for(prepared.run(), SECONDS)


@pytest.fixture(autouse=True)
async def nothing_is_left() -> AsyncIterator[None]:
    yield
    while Bench.made:
        await Bench.made.pop().processes.close()


def a_run(key: str = "agent:main:main", run_id: str = "r1", **more: Any) -> ToolRun:
    return ToolRun(SessionKey.parse(key), run_id, private=True, **more)


async def until(condition: Callable[[], Any], seconds: float = SECONDS) -> Any:
    async with asyncio.timeout(seconds):
        while not (found := condition()):
            await asyncio.sleep(0.005)
    return found


def sleepers(mark: str) -> list[int]:
    """Those that sleep for so long, zombies excepted, wherever on this machine."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes()
            state = (place / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if line == f"sleep\0{mark}\0".encode() and state != "Z":
            found.append(int(place.name))
    return found
