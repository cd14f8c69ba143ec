"""An open home: its services, what is taken up when it is opened, and what is closed behind it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from palinurus.config.home import Home
from palinurus.domain.errors import PalinurusError, StorageReadOnly
from palinurus.runtime.services import HomeServices

if TYPE_CHECKING:
    from palinurus.providers.failover import Sleep
    from palinurus.runtime.agents import ConfiguredAgents


log = logging.getLogger(__name__)

MAINTENANCE_SECONDS = 6 * 3600.0


class Runtime:
    def __init__(
        self,
        home: Home,
        env: Mapping[str, str],
        *,
        readonly: bool = False,
        sleep: Sleep = asyncio.sleep,
        process: str = "",
    ) -> None:
        """`process` is how others are told of the one that holds the home for them."""
        self.services = HomeServices(home, env, readonly=readonly, sleep=sleep, process=process)
        self._background: list[asyncio.Task[None]] = []
        self._extensions: list[asyncio.Task[None]] = []

    @property
    def agents(self) -> ConfiguredAgents:
        return self.services.agents

    async def recover(self) -> None:
        """Take up what a process that died had left: first the questions that nobody hears the answers of."""
        services = self.services
        if services.database.has_open_jobs():
            await services.jobs.start()
        if services.database.has_unfinished_runs():
            await services.approvals.recover()
            await services.dispatcher.recover()
        if services.process:
            for start in await services.extensions_in_use("starts"):
                await start(services)

    def keep_up(self) -> None:
        """In a process that stays: index memories in the background, maintain sessions, run services of extensions."""
        from palinurus.runtime.background import run_services

        self.agents.memories.keep_up(self.agents.ids)
        self._background = [asyncio.create_task(_maintain(self.services), name="pal-maintenance")]
        self._extensions = [asyncio.create_task(run_services(self.services), name="pal-services")]

    async def idle(self) -> None:
        """Until what follows a reply is done."""
        dispatcher = self.services.built("dispatcher")
        if dispatcher is not None:
            await dispatcher.idle()

    async def drain(self) -> None:
        """Accept nothing more, and finish what was accepted."""
        services = self.services
        dispatcher, approvals, histories = map(services.built, ("dispatcher", "approvals", "histories"))
        if (jobs := services.built("jobs")) is not None:
            from palinurus.dispatch.delivery import KIND

            await jobs.close(but=KIND)  # while what they need is there; replies are sent to the end
        if dispatcher is not None:
            dispatcher.shut()
        await _cancel(self._background)
        if approvals is not None:
            await approvals.release()  # nobody can answer here any more
        if dispatcher is not None:
            await dispatcher.leave()
        if self._extensions and jobs is not None:
            await jobs.settle()  # channels send the last replies, also those that wait behind others, then they go
            await jobs.close()
        await _cancel(self._extensions)
        await services.close_kept()
        if histories is not None:
            await histories.close()
        if (hooks := services.built("hooks")) is not None:
            await hooks.close()

    async def close(self) -> None:
        """Finish what was accepted, then let go of everything."""
        await self.drain()
        if (holder := self.services.built("holder")) is not None:
            holder.close()
        for part in map(self.services.built, ("jobs", "agents", "index", "database")):
            if part is not None:
                await part.close()


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def _maintain(services: HomeServices) -> None:
    """Every few hours: unused sessions are archived, waiting notes are written to their files."""
    from palinurus.operations.session_maintenance import clean_up_sessions

    while True:
        await services.turns.maintenance.place_notes()
        try:
            await clean_up_sessions(services, enforce=None)
        except PalinurusError as error:  # the next time
            log.warning("maintenance failed, next try in some hours: %s", error)
        await asyncio.sleep(MAINTENANCE_SECONDS)


def make_home(root: Path) -> None:
    """The folder of a home, for its owner alone."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageReadOnly(f"the home {root} cannot be made: {error.strerror}", hint="set PALINURUS_HOME") from None
