"""A home on virtual time, whose process is killed and started again: real parts on a database in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import tzinfo
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from palinurus.config.home import Home
from palinurus.config.load import Config
from palinurus.domain.errors import Failure, ProviderError
from palinurus.domain.messages import AssistantMessage, Text, Usage
from palinurus.extensions.schedule.due import DUE_KIND
from palinurus.operations.services import Services
from palinurus.providers.provider import ModelRequest, ReplyDone, ReplyEvent, ReplyFailed
from palinurus.sessions.store import SessionStore
from palinurus.storage.database import MemoryDatabase
from palinurus.storage.jobs import JobQueue
from palinurus.storage.transaction import Work
from palinurus.testing.fakes import SeededIds
from palinurus.testing.harness import Harness
from support.faults import Border, Power, Trace, Weather, dice_for
from support.virtual import VirtualClock

T = TypeVar("T")


class ModelCall(Struct):
    """What the model was asked to do, in seconds since the world began."""

    name: str  # of the cron job
    began: float
    ended: float | None = None  # None: the process was killed meanwhile
    ok: bool = False


class SlowModel:
    """Implements providers.Provider: takes its time, and fails, as the plan of the job says that it is asked by."""

    name = "slow"
    wire = "scripted"

    def __init__(self, plan: Callable[[str, int], tuple[float, bool]]) -> None:
        self.calls: list[ModelCall] = []
        self._plan = plan

    def context_window(self, model: str) -> int:
        return 32_000

    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        name = request.messages[-1].text.rpartition("do ")[2].split()[0]
        loop = asyncio.get_running_loop()
        number = sum(each.name == name for each in self.calls)
        seconds, ok = self._plan(name, number)
        call = ModelCall(name, loop.time())
        self.calls.append(call)
        await asyncio.sleep(seconds)
        call.ended, call.ok = loop.time(), ok
        if ok:
            yield ReplyDone(AssistantMessage((Text(f"did {name}"),), "slow", "m", "scripted", Usage(10, 1), "stop"))
        else:
            yield ReplyFailed(ProviderError("no", kind=Failure.BAD_REQUEST), "")

    async def close(self) -> None:
        pass


class LifeDatabase:
    """The home's database as one process has opened it: when that is killed nothing of it is written any more."""

    def __init__(self, inner: MemoryDatabase, border: Border) -> None:
        self._inner = inner
        self._border = border

    async def write(self, work: Work[T]) -> T:
        return await self._border.cross("write", lambda: self._inner.write(work))

    async def read(self, work: Work[T]) -> T:
        await self._border.power.check()
        return await self._inner.read(work)

    def enqueue(self, work: Work[T]) -> asyncio.Future[T]:
        if not self._border.power.on:
            return asyncio.get_running_loop().create_future()
        return self._inner.enqueue(work)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class NotedQueue(JobQueue):
    """Shows what has ended before it is forgotten."""

    before: Callable[[], None] = staticmethod(lambda: None)

    async def forget(self, before: int) -> int:
        self.before()
        return await super().forget(before)


class ClockServices(Services):
    config = Config({"cron": {"maxConcurrentRuns": 64}})


class VirtualHome:
    def __init__(self, folder: Path, clock: VirtualClock, seed: int, model: SlowModel) -> None:
        self.clock = clock
        self.model = model
        self.database = MemoryDatabase()
        self.new_id = SeededIds(seed)
        self.trace = Trace()
        self._dice = dice_for(seed, "border")
        self._home = Home(folder, folder / "palinurus.json", "")
        self._folder = folder
        self._pal: Harness | None = None
        self.power = Power()
        self.before_forgetting: Callable[[], None] = lambda: None

    @property
    def services(self) -> Services:
        return self._services

    async def begin(self, weather: Weather | None = None) -> None:
        """As a process does that is started and stays."""
        self.power = Power()
        border = Border(self.power, weather or Weather(), self._dice, self.trace)
        database: Any = LifeDatabase(self.database, border)
        sessions = SessionStore(database, self.clock, self.new_id, remembers=64)
        pal = self._pal = Harness(self._folder, model=self.model, sessions=sessions, queue=NotedQueue)
        pal.queue.before = self.before_forgetting
        pal.clock, pal.new_id = self.clock, self.new_id  # type: ignore[assignment]
        pal.start()
        parts = vars(pal.services(self._home)) | {"database": database}
        pal.jobs.services = self._services = ClockServices(**parts)
        pal.lanes.set_limit("scheduled", 64)  # none waits for another
        pal.jobs.grace_seconds = 0
        pal.jobs.offer(DUE_KIND)
        await pal.jobs.start()
        await pal.dispatcher.recover()

    async def kill(self) -> None:
        self.power.cut()
        await self.sweep()

    async def sweep(self) -> None:
        """What is left of a process that was killed."""
        assert self._pal is not None
        await self._pal.jobs.close()
        await self._pal.dispatcher.abandon()
        self._pal = None

    async def leave(self) -> None:
        """As a process does that is asked to end: runs that were accepted are finished."""
        assert self._pal is not None
        self._pal.jobs.grace_seconds = 10
        await self._pal.jobs.close()
        await self._pal.dispatcher.leave()
        self.power.cut()
        self._pal = None

    def zone(self) -> tzinfo:
        return self.clock.zone
