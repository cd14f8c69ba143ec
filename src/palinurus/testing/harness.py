"""A whole Palinurus in one process: real rooms, fake model, fake clock, stores in memory.

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
from palinurus.agent.loop import Hands
from palinurus.agent.turn import TurnRunner
from palinurus.config.handling import (
    ElevatedSettings,
    ExecSettings,
    FetchSettings,
    HandsSettings,
    SandboxSettings,
    SearchSettings,
)
from palinurus.config.home import Home
from palinurus.config.secrets import Redactor
from palinurus.context.engine import ContextEngine, Engines
from palinurus.context.epoch import Route
from palinurus.context.opening import ContextSettings
from palinurus.context.prompt import PromptSettings
from palinurus.dispatch.delivery import Deliveries
from palinurus.dispatch.dispatcher import Dispatcher
from palinurus.dispatch.inbox import Inbox
from palinurus.dispatch.lanes import Lanes
from palinurus.dispatch.queueing import QueueSettings
from palinurus.dispatch.runs import Run
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import NotFound
from palinurus.domain.events import RunResult
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Message, ToolResult
from palinurus.domain.tool import Tool
from palinurus.memory.tools import memory_write_tool
from palinurus.operations.house import House
from palinurus.providers.keys.pool import CredentialState
from palinurus.providers.provider import Provider
from palinurus.sandbox.host import HostSandbox
from palinurus.sandbox.quarters import Quarters, quarters
from palinurus.sandbox.sandbox import Sandbox
from palinurus.sessions.reset import ResetPolicy
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import decode_row, messages_of
from palinurus.testing.clock import FakeClock, SeededIds
from palinurus.testing.hands import MemoryApprovals, MemoryAudit, MemoryGrants
from palinurus.testing.outbox import MemoryOutbox
from palinurus.testing.provider import ScriptedProvider
from palinurus.testing.stores import MemoryInbox, MemoryIndex, MemorySessions
from palinurus.tools.approvals.approval import Approvals
from palinurus.tools.files.reading import file_tools
from palinurus.tools.gate import Gate, Watch
from palinurus.tools.policy.decide import Policy, Rules
from palinurus.tools.registry import Registry
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import WorkspaceFiles

WAIT = 30.0
FULL = Policy(everybody=Rules(profile="full"))


class FixedAgents:
    """Implements dispatch.Agents and operations.ModelDesk: one agent, which a test may replace between turns."""

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


class FixedHands:
    """Implements operations.HandsDesk: what the harness has, and the defaults of the product."""

    def __init__(self, pal: Harness, home: Home) -> None:
        self._pal = pal
        self._home = home

    async def tools(self, agent_id: str) -> Sequence[Tool]:
        return self._pal.tools.all()

    def policy(self, agent_id: str) -> Policy:
        return self._pal.policy

    def settings(self, agent_id: str) -> HandsSettings:
        sandbox = SandboxSettings(self._home.root / "sandboxes")
        return HandsSettings(self._pal.exec, ElevatedSettings(), sandbox, SearchSettings(), FetchSettings())

    def quarters(self, key: SessionKey) -> Quarters:
        return quarters(self.settings(key.agent).sandbox, self._pal.files.boundary.root, key)

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
        inbox: Inbox | None = None,
        context: ContextSettings | None = None,
        resets: ResetPolicy | None = None,
        secrets: Sequence[str] = (),
        engine: ContextEngine | None = None,
        files: WorkspaceFiles | None = None,
        at_once: int = 4,
        seed: int = 0,
    ) -> None:
        self.clock = FakeClock()
        self.new_id = SeededIds(seed)
        self.model: Any = model or ScriptedProvider()  # Any: tests reach for what their own model has
        self.model_name = "model-1"
        self.files = files or WorkspaceFiles(Boundary(workspace))
        self.sessions = sessions or MemorySessions(self.clock, self.new_id)
        self.inbox = inbox or MemoryInbox()
        self.outbox = self.inbox.outbox if isinstance(self.inbox, MemoryInbox) else MemoryOutbox()
        self.resets = resets or ResetPolicy()
        note = memory_write_tool(lambda _: (self.files.boundary, ""), self.clock)
        self.tools = Registry([*file_tools(self.files), note, *tools])
        self.exec = ExecSettings()
        self.audit = MemoryAudit(self.clock, self.new_id)
        self.grants = MemoryGrants()
        self.approval_rows = MemoryApprovals()
        self.policy = policy or FULL
        settings = context or ContextSettings(PromptSettings(workspace=str(workspace)))
        self.agents = FixedAgents(Agent("main", self.files, self._hands, settings, self._choose))
        self._secrets = secrets
        self._engine = engine
        self._at_once = at_once
        self.start()

    def start(self) -> None:
        """Build the house on the stores that are there: what a process does when it starts."""
        redact = Redactor(self._secrets).redact
        self.approvals = Approvals(
            self.approval_rows, self.grants, self.clock, self.new_id, lambda _: self.exec, redact=redact
        )
        self.gate = Gate(self.tools, self.policy, Watch(self.approvals, self.grants, self.audit, self.clock, redact))
        engines = Engines(self._engine)
        self.turns = TurnRunner(self.sessions, lambda _: self.resets, self.clock, self.new_id, redact, engines=engines)
        self.lanes = Lanes(at_once=self._at_once)
        self.deliveries = Deliveries(self.outbox, self.clock, self.new_id, lambda: 0.5, redact=redact)
        self.dispatcher = Dispatcher(
            self.inbox, self.turns, self.agents, self.lanes, self.clock, self.new_id, self.deliveries
        )

    async def crash(self) -> None:
        """Drop everything that only lives in the process, and start again on what was stored."""
        await self.lanes.cancel()
        await self.deliveries.close()
        self.start()
        await self.dispatcher.recover()

    def house(self, home: Home) -> House:
        memory = self.sessions
        assert isinstance(memory, MemorySessions)  # noqa: S101  # the index reads its lists
        return House(
            home=home,
            dispatcher=self.dispatcher,
            turns=self.turns,
            agents=self.agents,
            sessions=memory,
            index=MemoryIndex(memory),
            usage=memory.usage,
            models=self.agents,
            hands=FixedHands(self, home),
            approvals=self.approvals,
            grants=self.grants,
            audit=self.audit,
            deliveries=self.deliveries,
            clock=self.clock,
            warnings=lambda: (),
            new_id=self.new_id,
        )

    async def submits(self, text: str, *, key: str = "", idempotency_key: str = "", sender: str = "owner") -> Run:
        inbound = Inbound(text, idempotency_key or self.new_id(), session_key=key, sender=sender)
        return await asyncio.wait_for(self.dispatcher.submit(inbound), WAIT)

    async def hears(self, text: str, *, key: str = "", idempotency_key: str = "") -> RunResult:
        """Say something and wait for the answer."""
        run = await self.submits(text, key=key, idempotency_key=idempotency_key)
        return await run.wait(WAIT)

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
        """Change the agent's context settings between two turns, as a config edit would."""
        context = msgspec.structs.replace(self.agents.agent.context, **settings)
        self.agents.agent = msgspec.structs.replace(self.agents.agent, context=context)

    async def _hands(self, key: SessionKey, route: Route, window: int) -> Hands:
        return self.gate.hands(key, route.provider, route.model)

    async def _choose(self, wanted: str) -> tuple[Provider, Route]:
        return self.model, Route(self.model.name, wanted.partition("/")[2] or self.model_name, self.model.wire)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.lanes.cancel()
        await self.deliveries.close()
