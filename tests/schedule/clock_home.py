"""A home whose clock a test moves: what is due then is run, and the model says what the test wants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from palinurus.config.home import find_home
from palinurus.domain.keys import SessionKey
from palinurus.extensions.schedule.cron_job import CronJob, DueOutcome, Payload, ReminderPayload, Schedule
from palinurus.extensions.schedule.due import save
from palinurus.extensions.schedule.store import DUE
from palinurus.operations.services import Services
from palinurus.runtime.runtime import Runtime
from palinurus.sessions.transcript import decode_row, messages_of
from palinurus.testing.fakes import FakeClock
from support.delivery import MemorySender
from support.wire import Behaviour, Json, Says, WireServer

WAIT = 60.0
MAIN = "agent:main:main"


class ClockHome:
    """One process that holds the home and stays."""

    def __init__(self, runtime: Runtime, server: WireServer, clock: FakeClock) -> None:
        self.runtime = runtime
        self.server = server
        self.clock = clock

    @property
    def services(self) -> Services:
        return self.runtime.services

    def channel(self, name: str = "telegram") -> MemorySender:
        sender = MemorySender(name)
        self.services.deliveries.register(sender)
        return sender

    async def adds(self, schedule: Schedule, payload: Payload | None = None, **more: Any) -> CronJob:
        fields = {"agent_id": "main", "name": "test", "payload": payload or ReminderPayload("stretch"), **more}
        job = CronJob(self.services.new_id(), schedule=schedule, **fields)
        return await save(self.services, job)

    async def passes(self, **time: float) -> None:
        """Time passes; what is due then is run to its end."""
        self.clock.advance(**time)
        await self.rests()

    async def rests(self) -> None:
        async with asyncio.timeout(WAIT):
            while True:
                await self.services.jobs.look()
                await self.services.dispatcher.idle()
                await self.services.jobs.idle()
                if not self.services.dispatcher.busy and await self.services.jobs.is_idle():
                    return

    async def rows(self, job_id: str) -> list[tuple[int, str, str]]:
        """The due times of a cron job, oldest first: when, how it ended, and why."""
        found = []
        for job in reversed(await self.services.jobs.of_lane(DUE, job_id, 10_000)):
            outcome = msgspec.json.decode(job.outcome, type=DueOutcome | None) if job.outcome is not None else None
            found.append(
                (job.due_at, outcome.status if outcome else job.state, outcome.reason if outcome else job.trouble)
            )
        return found

    async def said(self, key: str = MAIN) -> list[str]:
        session = await self.services.sessions.find(SessionKey.parse(key))
        rows = await self.services.sessions.rows(session.id) if session else []
        return [each.text for each in messages_of([decode_row(row) for row in rows])]


@asynccontextmanager
async def open_clock_home(
    folder: Path,
    answer: Callable[[Json], Behaviour] = lambda _: Says("Done."),
    clock: FakeClock | None = None,
    **config: Any,
) -> AsyncIterator[ClockHome]:
    """Opening it again on the same folder is a restart."""
    async with WireServer(otherwise=answer) as server:
        root = folder / "home"
        (root / "workspace").mkdir(parents=True, exist_ok=True)
        provider = {"baseUrl": server.base_url, "models": [{"id": "test", "contextWindow": 64000}]}
        settings = {
            "models": {"providers": {"mine": provider}},
            "agents": {"defaults": {"model": "mine/test"}},
            "memory": {"search": {"enabled": False}},
        }
        (root / "palinurus.json").write_text(json.dumps(settings | config))
        env = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "PALINURUS_HOME": str(root)}
        runtime = Runtime(find_home(env), env, process="test")
        runtime.services.clock = clock or FakeClock()
        try:
            await runtime.recover()
            yield ClockHome(runtime, server, runtime.services.clock)
        finally:
            await runtime.close()
