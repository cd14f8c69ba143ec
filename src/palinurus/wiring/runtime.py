"""A house that runs: config, stores, agents and dispatcher, joined. One builder; whoever holds the lock calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from palinurus.agent.turn import TurnRunner
from palinurus.config.home import Home
from palinurus.config.load import load_config
from palinurus.config.settings import agent_settings
from palinurus.context.report import render
from palinurus.dispatch.dispatcher import Dispatcher
from palinurus.dispatch.lanes import Lanes
from palinurus.domain.clock import SystemClock, random_id
from palinurus.domain.errors import StorageReadOnly
from palinurus.domain.keys import SessionKey
from palinurus.operations import agents, models, sessions, status, usage
from palinurus.operations.house import House
from palinurus.operations.table import Table
from palinurus.providers.relay import Sleep
from palinurus.storage.database import Database
from palinurus.storage.recent import RecentSessions
from palinurus.storage.sqlite import SqliteInbox, SqliteSessions
from palinurus.storage.transcripts import SqliteTranscriptIndex
from palinurus.storage.usage import SqliteUsage
from palinurus.wiring.agents import ConfiguredAgents

TABLE = Table((*agents.OPERATIONS, *sessions.OPERATIONS, *status.OPERATIONS, *models.OPERATIONS, *usage.OPERATIONS))


class Runtime:
    """A house and what must be closed behind it."""

    def __init__(
        self, home: Home, env: Mapping[str, str], *, readonly: bool = False, sleep: Sleep = asyncio.sleep
    ) -> None:
        loaded = load_config(home, env)
        settings = agent_settings(loaded.config, home)
        clock = SystemClock(settings.zone)
        self.agents = ConfiguredAgents(home, env, loaded, clock, sleep)
        self._database = Database(home.root / "home.sqlite", "home", readonly=readonly)
        self._index = SqliteTranscriptIndex(self._database, home.root / "derived" / "transcripts.sqlite")
        on_disk = SqliteSessions(self._database, clock, random_id)
        store = on_disk if readonly else RecentSessions(on_disk)  # only the holder may trust its memory
        turns = TurnRunner(store, self.agents.reset_policy, clock, random_id, self.agents.redact)
        lanes = Lanes(at_once=settings.max_concurrent)
        dispatcher = Dispatcher(SqliteInbox(self._database), turns, self.agents, lanes, clock, random_id)
        self.house = House(
            home=home,
            dispatcher=dispatcher,
            turns=turns,
            agents=self.agents,
            sessions=store,
            index=self._index,
            usage=SqliteUsage(self._database),
            models=self.agents,
            clock=clock,
            warnings=lambda: self.agents.warnings,
        )
        dispatcher.answers |= {"status": self._say_status, "context": self._say_context}

    async def close(self) -> None:
        """Finish what was accepted, then let go of everything."""
        await self.house.dispatcher.leave()
        await self.agents.close()
        await self._index.close()
        await self._database.close()

    async def _say_status(self, key: SessionKey, _: str) -> str:
        report = await status.STATUS.handler(self.house, status.AskStatus(key.agent))
        session = await self.house.sessions.find(key)
        lines = [f"model    {report.model} ({report.model_reason})", f"session  {key}"]
        if session is not None:
            lines.append(f"tokens   {session.input_tokens:,} in, {session.output_tokens:,} out")
            lines.append(f"context  {session.context_tokens:,} tokens at the last call")
        return "\n".join([*lines, f"running  {report.busy}"])

    async def _say_context(self, key: SessionKey, _: str) -> str:
        return render(await status.CONTEXT.handler(self.house, status.AskContext(str(key))))


def make_home(root: Path) -> None:
    """The folder of a home, for its owner alone."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageReadOnly(f"the home {root} cannot be made: {error.strerror}", hint="set PALINURUS_HOME") from None
