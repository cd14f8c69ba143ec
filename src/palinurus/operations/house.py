"""The parts that operations work with: what wiring has joined, as one record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from palinurus.agent.turn import TurnRunner
from palinurus.config.compacting import MaintenanceSettings
from palinurus.config.handling import HandsSettings
from palinurus.config.home import Home
from palinurus.context.epoch import Route
from palinurus.dispatch.agents import Agents
from palinurus.dispatch.delivery import Deliveries
from palinurus.dispatch.dispatcher import Dispatcher
from palinurus.dispatch.runs import Runs
from palinurus.dispatch.traces import NoTraces, Tracer
from palinurus.domain.clock import Clock, NewId, SystemClock, random_id
from palinurus.domain.errors import NotOffered
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import Tool
from palinurus.ledger.audit import AuditLog
from palinurus.ledger.usage import UsageLedger
from palinurus.memory.memory import Memory
from palinurus.migrate.export.exporter import SessionExporter
from palinurus.migrate.forgetting.store import ForgettingStore
from palinurus.migrate.importer import SessionImporter
from palinurus.operations.holder import Holder
from palinurus.operations.register import Register
from palinurus.providers.keys.pool import CredentialState
from palinurus.providers.provider import Provider
from palinurus.sandbox.quarters import Quarters
from palinurus.sandbox.sandbox import Sandbox
from palinurus.sessions.store import SessionStore, TranscriptIndex
from palinurus.skills.skills import Skills
from palinurus.tools.approvals.approval import Approvals
from palinurus.tools.grants.grants import GrantStore
from palinurus.tools.mcp.servers import McpServers
from palinurus.tools.policy.decide import Policy


class ModelDesk(Protocol):
    """What can be said about the models of an agent besides asking them."""

    def credential_states(self, agent_id: str) -> Sequence[CredentialState]:
        """How its keys stand, in the order in which they would be asked, without their secrets."""

    def fallbacks(self, agent_id: str) -> Sequence[str]: ...

    async def choose(self, agent_id: str, wanted: str = "", credential: str = "") -> tuple[Provider, Route]:
        """As Agent.choose_model, for an agent that may have nowhere to live; with one key alone, if it is named.

        Raises NotFound for an unknown agent.
        """


class Snapshots(Protocol):
    """Whole copies of what is stored, taken while the house is lived in."""

    async def copy(self, to: Path, tell: Callable[[int, int], None] = ...) -> None:
        """Into a file that is not there yet. `tell` hears how far it is, in a thread. Raises StorageError."""


class HandsDesk(Protocol):
    """What can be said about the hands of an agent besides using them. Raises NotFound for an unknown agent."""

    async def tools(self, agent_id: str) -> Sequence[Tool]:
        """All that there are, whoever may use them, sorted by name."""

    def policy(self, agent_id: str) -> Policy: ...

    def settings(self, agent_id: str) -> HandsSettings: ...

    def quarters(self, key: SessionKey) -> Quarters: ...

    def sandbox(self, agent_id: str) -> Sandbox:
        """The backend that its config names; the host is not one."""


def _no_servers(_: str) -> McpServers:
    return McpServers((), Path(), SystemClock())


def _no_memory(_: str) -> Memory:
    raise NotOffered("this house has no memory to search")


def _no_skills(_: str) -> Skills:
    raise NotOffered("this house has no skills to show")


def _nobody(_: str, __: str) -> None: ...


def _no_tracer() -> Tracer:
    return Tracer(NoTraces(), SystemClock(), Runs())


class House(Struct, frozen=True):
    home: Home
    dispatcher: Dispatcher
    turns: TurnRunner
    agents: Agents
    sessions: SessionStore
    index: TranscriptIndex
    usage: UsageLedger
    models: ModelDesk
    hands: HandsDesk
    approvals: Approvals
    grants: GrantStore
    audit: AuditLog
    deliveries: Deliveries
    clock: Clock
    warnings: Callable[[], tuple[str, ...]]
    """What is odd about the config right now, one line each."""
    new_id: NewId = random_id
    mcp: Callable[[str], McpServers] = _no_servers
    """The MCP servers of an agent. Raises NotFound for an unknown one."""
    memory: Callable[[str], Memory] = _no_memory
    """The memory of an agent. Raises NotFound for an unknown one; what is wrong is said when asked."""
    skills: Callable[[str], Skills] = _no_skills
    """The skills of an agent. Raises NotFound for an unknown one."""
    workspace: Callable[[str], Path] = lambda _: Path()
    """Where an agent lives, whether or not it is there. Raises NotFound for an unknown one."""
    importer: SessionImporter | None = None
    """Takes conversations of other homes in."""
    exporter: SessionExporter | None = None
    snapshots: Snapshots | None = None
    forgetting: ForgettingStore | None = None
    access: Register | None = None
    """Who may come in by the gateway."""
    holder: Holder = field(default_factory=Holder)
    traces: Tracer = field(default_factory=_no_tracer)
    edited: Callable[[str, str], None] = _nobody
    """Told that a file of an agent was changed by a door, and how, in a few words. Does not raise, does not block."""
    maintenance: Callable[[], MaintenanceSettings] = MaintenanceSettings
    """Which conversations are put away, as the config says right now."""
