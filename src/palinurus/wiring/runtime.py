"""A house that runs: config, stores, agents and dispatcher, joined. One builder; whoever holds the lock calls it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec

from palinurus.agent.turn import TurnRunner
from palinurus.config.compacting_settings import maintenance_settings
from palinurus.config.home import Home
from palinurus.config.load import load_config
from palinurus.config.settings import agent_settings
from palinurus.context.placing import Placing
from palinurus.context.report import render
from palinurus.dispatch.delivery import Deliveries
from palinurus.dispatch.dispatcher import Dispatcher
from palinurus.dispatch.lanes import Lanes
from palinurus.dispatch.messages import SessionMessages
from palinurus.dispatch.traces import Tracer
from palinurus.domain.clock import SystemClock, random_id
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import PalinurusError, StorageFull, StorageReadOnly
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin
from palinurus.domain.tool import ToolRun
from palinurus.ledger.chain import random_salt
from palinurus.operations import (
    agent_files,
    agents,
    approvals,
    audit,
    backup,
    delivery,
    export,
    forget,
    gateway,
    ingest,
    mcp,
    memory,
    migrate,
    models,
    runs,
    sandbox,
    session_changes,
    session_cleanup,
    session_compaction,
    session_export,
    session_import,
    sessions,
    skills,
    status,
    tools,
    trust,
    usage,
    workspace,
)
from palinurus.operations.approve import answer_command
from palinurus.operations.catalog import chat_models
from palinurus.operations.config import Ground
from palinurus.operations.house import House
from palinurus.operations.register import Register
from palinurus.operations.table import Table
from palinurus.operations.trust import trust_command
from palinurus.providers.relay import Sleep
from palinurus.storage.access import SqliteAccess
from palinurus.storage.approvals import SqliteApprovals, SqliteGrants
from palinurus.storage.audit import SqliteAudit
from palinurus.storage.database import Database, OnCommit
from palinurus.storage.examine import was_spoken_to
from palinurus.storage.exporting import SqliteExporter
from palinurus.storage.file_origins import SqliteFileOrigins
from palinurus.storage.forgetting import SqliteForgetting
from palinurus.storage.importing import SqliteImporter
from palinurus.storage.outbox import SqliteOutbox
from palinurus.storage.recent import RecentSessions
from palinurus.storage.reserve import Reserve
from palinurus.storage.snapshot import SqliteSnapshots
from palinurus.storage.sqlite import SqliteInbox, SqliteSessions
from palinurus.storage.traces import SqliteTraces
from palinurus.storage.transcripts import SqliteTranscriptIndex
from palinurus.storage.usage import SqliteUsage
from palinurus.tools.message import Outgoing, message_tool
from palinurus.tools.session_status import session_status_tool
from palinurus.wiring.agents import ConfiguredAgents, Keeping
from palinurus.wiring.hands import CurrentHands
from palinurus.wiring.histories import Histories
from palinurus.wiring.shortcut import leave_shortcut
from palinurus.wiring.skills import leave_skill_note
from palinurus.wiring.tidying import Tidying
from palinurus.workspace.boundary import Boundary

ROOMS = (
    agents, agent_files, sessions, session_changes, session_cleanup, session_compaction, status, models, usage, tools,
    approvals, audit, sandbox, mcp, memory, skills, gateway, delivery, runs, workspace, session_export, migrate, backup,
    forget, ingest, export, session_import, trust,
)  # fmt: skip
TABLE = Table(row for room in ROOMS for row in room.OPERATIONS)


class Runtime:
    """A house and what must be closed behind it."""

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
        loaded = load_config(home, env)
        self._ground = Ground(home, env)
        if not readonly:
            leave_shortcut(home, loaded)
            leave_skill_note(home, loaded)
        settings = agent_settings(loaded.config, home)
        clock = SystemClock(settings.zone)
        self._reserve = Reserve(home.root / "derived" / "reserve")
        self._database = _open_database(home.root / "home.sqlite", self._reserve, readonly=readonly)
        if readonly:
            self._database.check_form("home")
        audit = SqliteAudit(self._database, clock, random_salt)
        grants = SqliteGrants(self._database)
        own = (
            session_status_tool(lambda key: status.session_report(self.house, key)),
            message_tool(self._send, self._knows),
        )
        on_disk = SqliteSessions(self._database, clock, random_id)
        recent = RecentSessions(on_disk)
        store = on_disk if readonly else recent  # only the holder may trust its memory
        approvals = SqliteApprovals(self._database)
        keeping = Keeping(
            approvals,
            grants,
            audit,
            random_id,
            store,
            SqliteFileOrigins(self._database),
            own,
            readonly=readonly,
            process=process,
            was_spoken_to=partial(was_spoken_to, home.root / "home.sqlite"),
        )
        self.agents = ConfiguredAgents(home, env, loaded, clock, keeping, sleep)
        self._index = SqliteTranscriptIndex(self._database, home.root / "derived" / "transcripts.sqlite")
        turns = TurnRunner(store, self.agents.reset_policy, clock, random_id, self.agents.redact)
        turns.upkeep.place_notes = Placing(store, self._workspace_of, clock)
        lanes = Lanes(at_once=settings.max_concurrent)
        outbox = SqliteOutbox(self._database)
        deliveries = Deliveries(outbox, clock, random_id, random.random, redact=self.agents.redact)
        inbox = SqliteInbox(self._database)
        dispatcher = Dispatcher(inbox, turns, self.agents, lanes, clock, random_id, deliveries)
        tracer = Tracer(SqliteTraces(self._database), clock, dispatcher.runs)
        dispatcher.runs.listen(tracer)
        self._histories = Histories(self._history_of, self.agents.redact)
        dispatcher.runs.listen(self._histories)
        self._messages = SessionMessages(store, turns, lanes, self.agents, clock)
        self.house = House(
            home=home,
            dispatcher=dispatcher,
            turns=turns,
            agents=self.agents,
            sessions=store,
            index=self._index,
            usage=SqliteUsage(self._database),
            models=self.agents,
            hands=CurrentHands(self.agents.current_hands),
            approvals=self.agents.approvals,
            grants=grants,
            audit=audit,
            deliveries=deliveries,
            mcp=self.agents.servers,
            memory=self.agents.memory,
            skills=self.agents.skills,
            workspace=self.agents.workspace,
            snapshots=SqliteSnapshots(self._database),
            forgetting=SqliteForgetting(self._database, recent.forget, self._index.discard),
            exporter=SqliteExporter(self._database),
            importer=SqliteImporter(self._database, clock, recent.forget, self._index.discard),
            clock=clock,
            warnings=self._warnings,
            access=Register(SqliteAccess(self._database), clock, random_id),
            traces=tracer,
            edited=self._histories.edited,
            maintenance=lambda: maintenance_settings(self.agents.loaded.config),
        )
        self._tidying = Tidying(self.house)
        dispatcher.when_stopped = self.agents.stop_commands
        dispatcher.answers |= {
            "status": self._say_status,
            "context": self._say_context,
            "models": self._say_models,
            "approve": self._approve,
            "trust": self._trust,
        }

    def when_committed(self, told: OnCommit) -> None:
        self._database.on_commit = told

    def disk_trouble(self) -> str:
        """What keeps the home from taking anything new, in one line; empty when nothing does. Blocks a little."""
        return self._reserve.trouble()

    def _warnings(self) -> tuple[str, ...]:
        return (*self.agents.warnings, *filter(None, (self.disk_trouble(),)))

    async def recover(self) -> None:
        """Take up what a process that died had left: first the questions that nobody hears the answers of."""
        await self.agents.approvals.recover()
        await self.house.deliveries.start()
        await self.house.dispatcher.recover()

    def keep_up(self) -> None:
        """Index memories and watch skills in the background, in a process that stays. Not needed for right answers."""
        self.agents.memories.keep_up(self.agents.ids)
        self.agents.skill_watch.start()
        self._tidying.start()

    async def drain(self) -> None:
        """Accept nothing more, and finish what was accepted."""
        self.house.dispatcher.shut()
        await self._tidying.close()
        await self.agents.approvals.release()  # nobody can answer here any more
        await self.house.dispatcher.leave()
        await self._histories.close()

    async def close(self) -> None:
        """Finish what was accepted, then let go of everything."""
        await self.drain()
        await self.house.deliveries.close()
        await self.agents.close()
        await self._index.close()
        await self._database.close()

    async def _send(self, run: ToolRun, letter: Outgoing) -> str:
        return await self._messages.send(run, letter)

    async def _knows(self, run: ToolRun, to: str) -> bool:
        return await self._messages.known(run, to)

    async def _approve(self, key: SessionKey, words: str, inbound: Inbound) -> str:
        owner = inbound.origin == Origin.OWNER
        return await answer_command(
            self.agents.approvals, session_key=str(key), words=words, by=_speaker(inbound), owner=owner
        )

    async def _trust(self, key: SessionKey, words: str, inbound: Inbound) -> str:
        owner = inbound.origin == Origin.OWNER
        return await trust_command(self.house, key, words, _speaker(inbound), owner=owner)

    def _workspace_of(self, agent_id: str) -> Boundary:
        return self.agents.get(agent_id).files.boundary

    def _history_of(self, agent_id: str) -> Boundary | None:
        try:
            settings = agent_settings(self.agents.loaded.config, self.house.home, agent_id)
            return self._workspace_of(agent_id) if settings.workspace_history == "runs" else None
        except PalinurusError:  # the config, or the disk, has lost it since its run began
            return None

    async def _say_status(self, key: SessionKey, _: str, __: Inbound) -> str:
        return await status.session_report(self.house, key)

    async def _say_context(self, key: SessionKey, view: str, _: Inbound) -> str:
        report = await status.show_context(self.house, session_key=str(key))
        if view.lower() == "json":
            return msgspec.json.format(msgspec.json.encode(report)).decode()
        return render(report, detail=view.lower() == "detail")

    async def _say_models(self, _: SessionKey, __: str, ___: Inbound) -> str:
        return await chat_models(self._ground)


def _speaker(inbound: Inbound) -> str:
    return inbound.sender if inbound.channel == "cli" else f"{inbound.channel}:{inbound.sender}"


def _open_database(path: Path, reserve: Reserve, *, readonly: bool) -> Database:
    if readonly:
        return Database(path, "home", readonly=True)
    try:
        database = Database(path, "home", exclusive=True, reserve=reserve)
    except StorageFull:
        if not reserve.give():
            raise
        return Database(path, "home", exclusive=True, reserve=reserve)
    reserve.keep()
    return database


def make_home(root: Path) -> None:
    """The folder of a home, for its owner alone."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageReadOnly(f"the home {root} cannot be made: {error.strerror}", hint="set PALINURUS_HOME") from None
