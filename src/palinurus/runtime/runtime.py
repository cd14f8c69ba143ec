"""An open home: its services, what is taken up when it is opened, and what is closed behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from palinurus.config.home import Home
from palinurus.domain.errors import StorageReadOnly
from palinurus.runtime.services import HomeServices
from palinurus.storage.database import OnCommit

if TYPE_CHECKING:
    from palinurus.providers.failover import Sleep
    from palinurus.runtime.agents import ConfiguredAgents
    from palinurus.runtime.maintenance import HomeMaintenance


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
        self._tidying: HomeMaintenance | None = None

    @property
    def agents(self) -> ConfiguredAgents:
        return self.services.agents

    @property
    def busy(self) -> int:
        """Runs that closing will wait for."""
        dispatcher = self.services.built("dispatcher")
        return dispatcher.busy if dispatcher else 0

    def when_committed(self, told: OnCommit) -> None:
        self.services.database.on_commit = told

    def disk_trouble(self) -> str:
        """What keeps the home from taking anything new, in one line; empty when nothing does. Blocks a little."""
        return self.services.reserve.trouble()

    async def recover(self) -> None:
        """Take up what a process that died had left: first the questions that nobody hears the answers of."""
        services = self.services
        if services.database.has_open_jobs():
            await services.jobs.start()
        if services.database.has_unfinished_runs():
            await services.approvals.recover()
            await services.dispatcher.recover()

    def keep_up(self) -> None:
        """Index memories in the background, in a process that stays. Not needed for right answers."""
        from palinurus.runtime.maintenance import HomeMaintenance

        self.agents.memories.keep_up(self.agents.ids)
        self._tidying = HomeMaintenance(self.services)
        self._tidying.start()

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
        if self._tidying is not None:
            await self._tidying.close()
        if approvals is not None:
            await approvals.release()  # nobody can answer here any more
        if dispatcher is not None:
            await dispatcher.leave()
        if histories is not None:
            await histories.close()

    async def close(self) -> None:
        """Finish what was accepted, then let go of everything."""
        await self.drain()
        for part in map(self.services.built, ("jobs", "agents", "index", "database")):
            if part is not None:
                await part.close()


def make_home(root: Path) -> None:
    """The folder of a home, for its owner alone."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageReadOnly(f"the home {root} cannot be made: {error.strerror}", hint="set PALINURUS_HOME") from None
