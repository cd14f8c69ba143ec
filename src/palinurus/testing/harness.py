"""A whole Palinurus in one process: real services, a scripted model, a fake clock, stores in memory.

async with Harness(workspace) as pal:
    pal.model.says("Hello.")
    reply = await pal.hears("hi")
    assert reply.text == "Hello."
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from palinurus.agent.agent import Agent
from palinurus.agent.loop import TurnTools
from palinurus.agent.turn import TurnRunner
from palinurus.config.home import Home
from palinurus.config.secrets import Redactor
from palinurus.context.engine import ContextEngine, Engines
from palinurus.context.epoch import Route
from palinurus.context.prompt import ContextSettings, PromptSettings
from palinurus.dispatch.delivery import Deliveries
from palinurus.dispatch.dispatcher import Dispatcher
from palinurus.dispatch.jobs import Jobs
from palinurus.dispatch.lanes import Lanes
from palinurus.dispatch.queue import QueueSettings
from palinurus.dispatch.runs import Run, result_of
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import NotFound
from palinurus.domain.events import RunResult
from palinurus.domain.hooks import Hooks
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Message, ToolResult
from palinurus.domain.tool import Tool
from palinurus.ledger.audit import AuditRow, Link, row_of
from palinurus.ledger.audit_log import BEFORE_ALL, AuditLog
from palinurus.ledger.usage import UsageLedger
from palinurus.memory.tools import memory_write_tool
from palinurus.operations.services import Services
from palinurus.providers.keys.pool import CredentialState
from palinurus.providers.provider import Provider
from palinurus.sandbox.environment import ExecEnvironment, exec_environment
from palinurus.sandbox.host import HostSandbox
from palinurus.sandbox.sandbox import Sandbox
from palinurus.sandbox.settings import SandboxSettings
from palinurus.sessions.index import TranscriptIndex
from palinurus.sessions.reset import ResetPolicy
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import decode_row, messages_of
from palinurus.storage.database import Database, MemoryDatabase
from palinurus.storage.jobs import RUN, Job, JobQueue
from palinurus.testing.fakes import FakeClock, ScriptedProvider, SeededIds
from palinurus.tools.approval import Approvals, ApprovalStore
from palinurus.tools.built_in import file_tools
from palinurus.tools.gate import Gate, GateServices
from palinurus.tools.grant_issuer import GrantIssuer
from palinurus.tools.grants import GrantStore
from palinurus.tools.policy import Policy, Rules
from palinurus.tools.registry import ToolRegistry
from palinurus.tools.settings import ElevatedSettings, ExecSettings, FetchSettings, SearchSettings, ToolSettings
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import WorkspaceFiles

WAIT = 60.0
FULL = Policy(everybody=Rules(profile="full"))


class FixedAgents:
    """Implements dispatch.Agents and operations.ModelService: one agent, which a test may replace between turns."""

    default = "main"
    reset_triggers: Sequence[str] = ("/new", "/reset")

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.queueing = QueueSettings("followup")

    @property
    def ids(self) -> list[str]:
        return [self.agent.id]

    def queue(self, channel: str) -> QueueSettings:
        return self.queueing

    def redact(self, text: str) -> str:
        return text

    def get(self, agent_id: str) -> Agent:
        if agent_id != self.agent.id:
            raise NotFound(f"there is no agent {agent_id!r}")
        return self.agent

    def credential_states(self, agent_id: str) -> list[CredentialState]:
        return []

    def fallbacks(self, agent_id: str) -> list[str]:
        return []

    async def choose(self, agent_id: str, wanted: str = "", credential: str = "") -> tuple[Provider, Route]:
        return await self.get(agent_id).choose_model(wanted)


class FixedToolsets:
    """Implements operations.ToolService with the harness's tools and the product's defaults."""

    def __init__(self, pal: Harness, home: Home) -> None:
        self._pal = pal
        self._home = home

    async def tools(self, agent_id: str) -> Sequence[Tool]:
        return self._pal.tools.all()

    def policy(self, agent_id: str) -> Policy:
        return self._pal.policy

    def settings(self, agent_id: str) -> ToolSettings:
        sandbox = SandboxSettings(self._home.root / "sandboxes")
        return ToolSettings(self._pal.exec, ElevatedSettings(), sandbox, SearchSettings(), FetchSettings())

    def environment(self, key: SessionKey) -> ExecEnvironment:
        return exec_environment(self.settings(key.agent).sandbox, self._pal.files.boundary.root, key)

    def sandbox(self, agent_id: str) -> Sandbox:
        return HostSandbox()


class Harness:
    def __init__(
        self,
        workspace: Path,
        *,
        model: Provider | None = None,
        tools: Sequence[Tool] = (),
        policy: Policy | None = None,
        sessions: SessionStore | None = None,
        queue: type[JobQueue] = JobQueue,
        context: ContextSettings | None = None,
        resets: ResetPolicy | None = None,
        secrets: Sequence[str] = (),
        engine: ContextEngine | None = None,
        files: WorkspaceFiles | None = None,
        hooks: Hooks | None = None,
        at_once: int = 4,
        seed: int = 0,
    ) -> None:
        self.clock = FakeClock()
        self.new_id = SeededIds(seed)
        self.model: Any = model or ScriptedProvider()  # Any: tests use attributes of their own model
        self.model_name = "model-1"
        self.files = files or WorkspaceFiles(Boundary(workspace))
        self.sessions = sessions or SessionStore(MemoryDatabase(), self.clock, self.new_id)
        self.database = self.sessions.database
        self.queue: Any = queue(self.database)  # Any: tests use attributes of their own queue
        self.resets = resets or ResetPolicy()
        note = memory_write_tool(lambda _: (self.files.boundary, ""), self.clock)
        self.tools = ToolRegistry([*file_tools(self.files), note, *tools])
        self.exec = ExecSettings()
        self.audit = AuditLog(self.database, self.clock, self.new_id)
        self.grants = GrantStore(self.database)
        self.approval_rows = ApprovalStore(self.database)
        self.policy = policy or FULL
        settings = context or ContextSettings(PromptSettings(workspace=str(workspace)))
        self.agents = FixedAgents(Agent("main", self.files, self._hands, settings, self._choose))
        self._secrets = secrets
        self._engine = engine
        self.hooks = hooks or Hooks()
        self._at_once = at_once
        self.start()

    def start(self) -> None:
        """Builds all services on the existing stores, as a process does at start."""
        redact = Redactor(self._secrets).redact
        issuer = GrantIssuer(self.grants, self.clock, self.new_id, lambda _: self.exec)
        self.approvals = Approvals(self.approval_rows, issuer, redact=redact)
        self.gate = Gate(
            self.tools,
            self.policy,
            GateServices(self.approvals, self.grants, self.audit, self.clock, redact, hooks=self.hooks),
        )
        self.turns = TurnRunner(
            self.sessions, lambda _: self.resets, self.clock, self.new_id, redact, Engines(self._engine), self.hooks
        )
        self.lanes = Lanes(at_once=self._at_once)
        self.jobs = Jobs(self.queue, self.clock, self.new_id, lambda: 0.5, lambda _: None, redact=redact)
        self.deliveries = Deliveries(self.jobs, redact=redact, hooks=self.hooks)
        self.dispatcher = Dispatcher(
            self.queue, self.turns, self.agents, self.lanes, self.clock, self.new_id, self.deliveries
        )

    async def crash(self) -> None:
        """Drops everything that is only in the process, and starts again from the stores."""
        await self.lanes.cancel()
        await self.jobs.close()
        self.start()
        await self.dispatcher.recover()

    def services(self, home: Home) -> Services:
        return Services(
            home=home,
            env={},
            dispatcher=self.dispatcher,
            turns=self.turns,
            agents=self.agents,
            sessions=self.sessions,
            index=TranscriptIndex(self.database, None),
            usage=UsageLedger(self.database),
            models=self.agents,
            toolsets=FixedToolsets(self, home),
            approvals=self.approvals,
            grants=self.grants,
            audit=self.audit,
            deliveries=self.deliveries,
            hooks=self.hooks,
            jobs=self.jobs,
            clock=self.clock,
            new_id=self.new_id,
        )

    async def submits(self, text: str, *, key: str = "", idempotency_key: str = "", sender: str = "owner") -> Run:
        inbound = Inbound(text, idempotency_key or self.new_id(), session_key=key, sender=sender)
        return await asyncio.wait_for(self.dispatcher.submit(inbound), WAIT)

    async def hears(self, text: str, *, key: str = "", idempotency_key: str = "") -> RunResult:
        """Sends a message and waits for the reply."""
        run = await self.submits(text, key=key, idempotency_key=idempotency_key)
        return await run.wait(WAIT)

    async def pending(self) -> list[Job]:
        """Returns accepted runs without a result, in order."""
        found: list[Job] = await self.queue.open(RUN)
        return found

    async def result(self, run_id: str) -> RunResult | None:
        """Returns the stored result."""
        job = await self.queue.find(run_id)
        return result_of(job) if job is not None else None

    async def idle(self) -> None:
        await asyncio.wait_for(self.dispatcher.idle(), WAIT)

    async def transcript(self, key: str = "agent:main:main") -> list[Any]:
        session = await self.sessions.find(SessionKey.parse(key))
        return [decode_row(row) for row in await self.sessions.rows(session.id)] if session else []

    async def messages(self, key: str = "agent:main:main") -> list[Message]:
        return messages_of(await self.transcript(key))

    async def tool_results(self, key: str = "agent:main:main") -> list[ToolResult]:
        return [message for message in await self.messages(key) if isinstance(message, ToolResult)]

    def change(self, **settings: Any) -> None:
        """Changes the agent's context settings between two turns, as a config edit would."""
        context = msgspec.structs.replace(self.agents.agent.context, **settings)
        self.agents.agent = msgspec.structs.replace(self.agents.agent, context=context)

    async def _hands(self, key: SessionKey, route: Route, window: int) -> TurnTools:
        return self.gate.offer(key, route.provider, route.model)

    async def _choose(self, wanted: str) -> tuple[Provider, Route]:
        return self.model, Route(self.model.name, wanted.partition("/")[2] or self.model_name, self.model.wire)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.lanes.cancel()
        await self.jobs.close()
        await self.hooks.close()


def audit_rows(database: Database) -> list[AuditRow]:
    """Returns all rows of the audit log of an in-memory database, oldest first."""
    assert isinstance(database, MemoryDatabase)  # noqa: S101  # another one cannot be looked into without waiting
    found = database.look(lambda tx: tx.all("audit.links_after", after=BEFORE_ALL, limit=-1))
    return [row_of(Link(*row)) for row in found]
