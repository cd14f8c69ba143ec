"""How each part of a home is built. A part is built when it is first touched, and imported with it."""

from __future__ import annotations

import random
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palinurus.config.agents import agent_settings
from palinurus.config.home import Home
from palinurus.config.include import read_text
from palinurus.config.load import Config, resolve_secret, secret_providers
from palinurus.domain.clock import Clock, SystemClock
from palinurus.domain.errors import PalinurusError, StorageFull
from palinurus.operations.services import Services
from palinurus.parts import resolve
from palinurus.runtime.agents import ConfiguredAgents
from palinurus.storage.database import Database
from palinurus.storage.files import looking_into
from palinurus.storage.reserve import Reserve
from palinurus.storage.settings import StorageSettings

if TYPE_CHECKING:
    from palinurus.agent.turn import TurnRunner
    from palinurus.config.section import Secret
    from palinurus.dispatch.delivery import Deliveries
    from palinurus.dispatch.dispatcher import Dispatcher
    from palinurus.dispatch.jobs import Jobs
    from palinurus.dispatch.lanes import Lanes
    from palinurus.dispatch.messages import Messages
    from palinurus.dispatch.pairing import Pairing, Pairings
    from palinurus.dispatch.reception import Reception
    from palinurus.dispatch.recipients import Recipients
    from palinurus.dispatch.traces import Tracer
    from palinurus.domain.hooks import Hooks
    from palinurus.domain.identity import AgentIdentity
    from palinurus.domain.tool import Tool
    from palinurus.ledger.audit_log import AuditLog
    from palinurus.ledger.usage import UsageLedger
    from palinurus.memory.backend import AgentMemory
    from palinurus.operations.access import Register
    from palinurus.providers.failover import Sleep
    from palinurus.runtime.histories import Histories
    from palinurus.runtime.tools import Toolsets
    from palinurus.sessions.index import TranscriptIndex
    from palinurus.sessions.settings import MaintenanceSettings
    from palinurus.sessions.store import SessionStore
    from palinurus.skills.skills import Skills
    from palinurus.tools.approval import Approvals, ApprovalStore
    from palinurus.tools.grants import GrantStore
    from palinurus.tools.registry import ResultStore
    from palinurus.workspace.boundary import Boundary
    from palinurus.workspace.file_origins import FileOriginStore


class HomeServices(Services):
    access: Register
    agents: ConfiguredAgents
    database: Database
    lanes: Lanes
    histories: Histories
    index: TranscriptIndex

    def __init__(
        self, home: Home, env: Mapping[str, str], *, readonly: bool = False, sleep: Sleep, process: str = ""
    ) -> None:
        self.reserve = Reserve(home.root / "derived" / "reserve")
        super().__init__(home=home, env=env, readonly=readonly, sleep=sleep, process=process)

    @cached_property
    def storage_url(self) -> str:
        """Of a database elsewhere; empty: the home's own file. Only a config with that word in it is read for this:
        most commands need none of it."""
        text = read_text(self.home.config_path) or ""
        if not any(word in text for word in ("storage", "$include", "\\")):
            return ""
        return self.secret(self.agents.loaded.config.section(StorageSettings).url) or ""

    def _open_elsewhere(self) -> Database:
        from palinurus.runtime.extensions import LOADED

        tenant = self.agents.loaded.config.section(StorageSettings).tenant
        return LOADED.find_database(self.storage_url)(self.storage_url, tenant, readonly=self.readonly)

    def build_database(self) -> Database:
        if self.storage_url:
            return self._open_elsewhere()
        path = self.home.root / "home.sqlite"
        if self.readonly:
            database = Database(path, "home", readonly=True)
            database.check_form("home")
            return database
        try:
            database = Database(path, "home", exclusive=True, reserve=self.reserve)
        except StorageFull:
            if not self.reserve.give():
                raise
            return Database(path, "home", exclusive=True, reserve=self.reserve)
        self.reserve.keep()
        return database

    # The config, and what it says.

    def build_agents(self) -> ConfiguredAgents:
        return ConfiguredAgents(self)

    def build_models(self) -> ConfiguredAgents:
        return self.agents

    def build_clock(self) -> Clock:
        return SystemClock(agent_settings(self.agents.loaded.config, self.home).zone)

    @property
    def config(self) -> Config:
        return self.agents.current_config()

    def secret(self, value: Secret | None) -> str | None:
        loaded = self.agents.loaded
        return resolve_secret(value, loaded.env, secret_providers(loaded))

    async def extensions_in_use(self, part: str) -> list[Callable[..., Awaitable[Any]]]:
        """The `starts` or the `status` of those extensions that the home has something of."""
        from palinurus.runtime.extensions import LOADED

        known = [each for each in LOADED.known if each.in_use and getattr(each, part)]
        queries = [each.in_use for each in known]
        used = await self.database.read(lambda tx: [tx.value(query) for query in queries]) if known else []
        return [resolve(getattr(each, part)) for each, is_used in zip(known, used, strict=True) if is_used]

    async def status_lines(self) -> tuple[str, ...]:
        if self.readonly:  # perhaps of an older release
            return ()
        return tuple([await status(self) for status in await self.extensions_in_use("status")])

    def warnings(self) -> tuple[str, ...]:
        return (*self.agents.warnings, *filter(None, (self.reserve.trouble(),)), *super().warnings())

    def describe_agent(self, agent_id: str) -> tuple[str, AgentIdentity]:
        from palinurus.domain.identity import AgentIdentity
        from palinurus.workspace.boundary import Boundary
        from palinurus.workspace.files import WorkspaceFiles, read_identity

        settings = agent_settings(self.agents.loaded.config, self.home, agent_id)
        self.agents.prepare_workspace(settings)
        said = settings.identity.or_else(read_identity(WorkspaceFiles(Boundary(settings.workspace))))
        return str(settings.workspace), said.or_else(AgentIdentity(settings.name or agent_id))

    def maintenance(self) -> MaintenanceSettings:
        from palinurus.sessions.settings import MaintenanceSettings

        return self.agents.loaded.config.section(MaintenanceSettings)

    def workspace(self, agent_id: str) -> Path:
        return self.agents.workspace(agent_id)

    def memory(self, agent_id: str) -> AgentMemory:
        return self.agents.memory(agent_id)

    def skills(self, agent_id: str) -> Skills:
        return self.agents.skills(agent_id)

    def get(self, kind: type[Any]) -> Any:
        return self.agents.source(kind)

    # Stores.

    def build_sessions(self) -> SessionStore:
        from palinurus.sessions.store import CACHED_SESSIONS, SessionStore

        remembers = 0 if self.readonly else CACHED_SESSIONS  # only the holder may trust its memory
        return SessionStore(self.database, self.clock, self.new_id, remembers=remembers)

    def build_index(self) -> TranscriptIndex:
        from palinurus.sessions.index import TranscriptIndex

        return TranscriptIndex(self.database, self.home.root / "derived" / "transcripts.sqlite")

    def build_usage(self) -> UsageLedger:
        from palinurus.ledger.usage import UsageLedger

        return UsageLedger(self.database)

    def build_audit(self) -> AuditLog:
        from palinurus.ledger.audit import random_salt
        from palinurus.ledger.audit_log import AuditLog

        return AuditLog(self.database, self.clock, random_salt)

    def build_grants(self) -> GrantStore:
        from palinurus.tools.grants import GrantStore

        return GrantStore(self.database)

    def build_approval_store(self) -> ApprovalStore:
        from palinurus.tools.approval import ApprovalStore

        return ApprovalStore(self.database)

    def build_file_origins(self) -> FileOriginStore:
        from palinurus.workspace.file_origins import FileOriginStore

        return FileOriginStore(self.database)

    def build_access(self) -> Register:
        from palinurus.operations.access import AccessStore, Register

        return Register(AccessStore(self.database), self.clock, self.new_id)

    def session_changed(self, session_id: str) -> None:
        self.sessions.forget(session_id)

    def build_text_places(self) -> tuple[str, ...]:
        from palinurus.runtime.extensions import LOADED

        core = ("operations", "sessions", "dispatch", "tools", "ledger", "memory", "workspace")
        own = (f"palinurus.{package}.text_places:PLACES" for package in core)
        return (*own, *(place for extension in LOADED.known for place in extension.text_places))

    def was_spoken_to(self, agent_id: str) -> bool:
        from palinurus.sessions.store import was_spoken_to

        if self.storage_url:
            with self.database.apart() as tx:
                return was_spoken_to(tx, agent_id)
        with looking_into(self.home.root / "home.sqlite") as tx:
            return was_spoken_to(tx, agent_id)

    # Tools and runs.

    def build_approvals(self) -> Approvals:
        return self.agents.make_approvals()

    def build_results(self) -> ResultStore:
        return self.agents.tool_resources.results

    @property
    def toolsets(self) -> Toolsets:  # type: ignore[override]  # those of whatever config holds now
        return self.agents.current_hands()

    def build_core_tools(self) -> tuple[Tool, ...]:
        from palinurus.operations.status import session_report
        from palinurus.tools.session_tools import message_tool, session_status_tool

        return (
            session_status_tool(lambda key: session_report(self, key)),
            message_tool(self.messages.send, self.recipients.find),
        )

    def build_messages(self) -> Messages:
        from palinurus.dispatch.messages import Messages

        return Messages(self.turns, self.lanes, self.deliveries, self.clock)

    def build_recipients(self) -> Recipients:
        from palinurus.dispatch.contacts import Contacts
        from palinurus.dispatch.recipients import Recipients

        contacts = Contacts(self.sessions, self.pairings, lambda: self.clock.zone)
        return Recipients(self.sessions, contacts, self.agents.current_config, self.deliveries.has_sender)

    def build_turns(self) -> TurnRunner:
        from palinurus.agent.turn import TurnRunner
        from palinurus.context.daily_notes import NoteFiles
        from palinurus.context.engine import Engines
        from palinurus.runtime.extensions import LOADED

        policy, redact = self.agents.reset_policy, self.agents.redact
        make = LOADED.find_slot("contextEngine")
        engines = Engines(make(self) if make else None)
        turns = TurnRunner(self.sessions, policy, self.clock, self.new_id, redact, engines, self.hooks)
        turns.maintenance.place_notes = NoteFiles(self.sessions, self._workspace_of, self.clock)
        return turns

    def build_hooks(self) -> Hooks:
        from palinurus.domain.hooks import Hooks
        from palinurus.runtime.hooks import find_hooks

        return Hooks(partial(find_hooks, self), self.clock, self.agents.redact)

    def build_lanes(self) -> Lanes:
        from palinurus.dispatch.lanes import Lanes

        return Lanes(at_once=agent_settings(self.agents.loaded.config, self.home).max_concurrent)

    def build_deliveries(self) -> Deliveries:
        from palinurus.dispatch.delivery import Deliveries

        return Deliveries(self.jobs, redact=self.agents.redact, hooks=self.hooks)

    def build_jobs(self) -> Jobs:
        from palinurus.dispatch.jobs import Jobs
        from palinurus.runtime.extensions import LOADED
        from palinurus.storage.jobs import JobQueue

        queue = JobQueue(self.database)
        jobs = Jobs(queue, self.clock, self.new_id, random.random, LOADED.find_job, self, redact=self.agents.redact)
        jobs.stays = bool(self.process)
        if not self.readonly:
            jobs.open()
        return jobs

    def build_dispatcher(self) -> Dispatcher:
        from palinurus.dispatch.dispatcher import Dispatcher
        from palinurus.runtime.commands import slash_commands
        from palinurus.storage.jobs import JobQueue

        queue = JobQueue(self.database)
        dispatcher = Dispatcher(queue, self.turns, self.agents, self.lanes, self.clock, self.new_id, self.deliveries)
        vars(self)["dispatcher"] = dispatcher  # the tracer asks for it
        dispatcher.runs.listen(self.traces)
        dispatcher.runs.listen(self.histories)
        dispatcher.when_stopped = self.agents.stop_commands
        dispatcher.answers |= slash_commands(self)
        return dispatcher

    def build_pairings(self) -> Pairings:
        from palinurus.dispatch.pairing import Pairings, PairingStore

        pairings = Pairings(PairingStore(self.database), self.clock, secrets.randbelow)
        pairings.changed = self._publish_pairing
        return pairings

    def _publish_pairing(self, pairing: Pairing) -> None:
        told = {"channel": pairing.channel, "account": pairing.account, "status": pairing.status}
        self.holder.publish("pairing", "", lambda: told)

    def build_reception(self) -> Reception:
        from palinurus.dispatch.reception import Reception

        return Reception(
            self.dispatcher,
            self.deliveries,
            self.jobs,
            self.pairings,
            self.agents.current_config,
            lambda agent_id: self.describe_agent(agent_id)[1],
        )

    def build_traces(self) -> Tracer:
        from palinurus.dispatch.traces import Tracer
        from palinurus.ledger.trace import TraceStore

        return Tracer(TraceStore(self.database), self.clock, self.dispatcher.runs)

    def build_histories(self) -> Histories:
        from palinurus.runtime.histories import Histories

        return Histories(self._history_of, self.agents.redact)

    def edited(self, agent_id: str, what: str) -> None:
        self.histories.edited(agent_id, what)

    def _workspace_of(self, agent_id: str) -> Boundary:
        return self.agents.get(agent_id).files.boundary

    def _history_of(self, agent_id: str) -> Boundary | None:
        try:
            settings = agent_settings(self.agents.loaded.config, self.home, agent_id)
            return self._workspace_of(agent_id) if settings.workspace_history == "runs" else None
        except PalinurusError:  # the config, or the disk, has lost it since its run began
            return None
