"""What operations are given: the parts of an open home, each built when it is first touched.

`runtime` says how each part is built (`build_<part>` of its subclass); tests hand parts over ready-made. Nothing is
imported here for a part that nobody touches.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from msgspec import Struct

from palinurus.domain.clock import Clock, NewId, random_id
from palinurus.domain.errors import NotOffered

if TYPE_CHECKING:
    from palinurus.agent.turn import TurnRunner
    from palinurus.config.home import Home
    from palinurus.config.load import Config
    from palinurus.config.section import Secret
    from palinurus.context.epoch import Route
    from palinurus.dispatch.agents import Agents
    from palinurus.dispatch.delivery import Deliveries
    from palinurus.dispatch.dispatcher import Dispatcher
    from palinurus.dispatch.jobs import Jobs
    from palinurus.dispatch.messages import Messages
    from palinurus.dispatch.pairing import Pairings
    from palinurus.dispatch.reception import Reception
    from palinurus.dispatch.recipients import Recipients
    from palinurus.dispatch.traces import Tracer
    from palinurus.domain.hooks import Hooks
    from palinurus.domain.identity import AgentIdentity
    from palinurus.domain.keys import SessionKey
    from palinurus.domain.tool import Tool
    from palinurus.ledger.audit_log import AuditLog
    from palinurus.ledger.usage import UsageLedger
    from palinurus.memory.backend import AgentMemory
    from palinurus.operations.access import Register
    from palinurus.operations.scopes import Scope
    from palinurus.providers.failover import Sleep
    from palinurus.providers.keys.pool import CredentialState
    from palinurus.providers.provider import Provider
    from palinurus.sandbox.environment import ExecEnvironment
    from palinurus.sandbox.sandbox import Sandbox
    from palinurus.sessions.index import TranscriptIndex
    from palinurus.sessions.settings import MaintenanceSettings
    from palinurus.sessions.store import SessionStore
    from palinurus.skills.skills import Skills
    from palinurus.tools.approval import Approvals, ApprovalStore
    from palinurus.tools.grants import GrantStore
    from palinurus.tools.policy import Policy
    from palinurus.tools.registry import ResultStore
    from palinurus.tools.settings import ToolSettings
    from palinurus.workspace.file_origins import FileOriginStore


T = TypeVar("T")


class GatewayState(Struct, frozen=True, rename="camel"):
    """The state of the gateway. Nothing here is secret."""

    running: bool
    pid: int = 0
    url: str = ""
    bind: str = ""
    auth: str = ""
    token_from: str = ""  # where the owner's secret stands, not what it is
    version: str = ""
    started_at: int = 0
    uptime_ms: int = 0
    clients: int = 0
    busy: int = 0
    ready: bool = False
    secure_url: str = ""  # where the network reaches it by TLS
    fingerprint: str = ""  # of its certificate


class DashboardLink(Struct, frozen=True, rename="camel"):
    """An address by which one browser can sign in, once. `url` holds the code, so only the owner may see it."""

    url: str
    expires_at: int = 0  # 0: no code is needed
    fingerprint: str = ""  # of the certificate, where TLS is spoken


class Holder:
    """What others can ask of the process that holds the home. Empty when it serves nobody."""

    def __init__(self) -> None:
        self.gateway: Callable[[], GatewayState] | None = None
        self.end: Callable[[], None] | None = None
        """Ends the gateway once it has finished what it accepted. Must not block."""
        self.link: Callable[[bool, tuple[Scope, ...]], DashboardLink] | None = None
        """Makes a link to the dashboard, for the network or not. Raises BadRequest when there is no such address."""
        self.hand_over: Callable[[], Awaitable[int]] | None = None
        """Hands the home to another process once all runs are finished; returns at once with their number."""
        self.publish: Callable[[str, str, Callable[[], Any]], None] = _no_listener
        """Sends an event to the listeners of a session: name, key, what makes the payload. Does not block or raise."""
        self._listeners: dict[int, tuple[Callable[[str, str, str], None], Callable[[], None]]] = {}

    def listen(self, on_message: Callable[[str, str, str], None], on_end: Callable[[], None]) -> Callable[[], None]:
        """Calls the first for each message that is published: session, entry, text; and the second when this process
        lets go of the home. Neither may block or raise. What it returns ends this."""
        self._listeners[id(on_message)] = on_message, on_end
        return lambda: self._listeners.pop(id(on_message), None) and None

    def publish_message(self, session_key: str, entry_id: str, text: str) -> None:
        """Publishes a message of the agent that answers nobody, such as a reminder."""
        told = {"sessionKey": session_key, "entryId": entry_id, "text": text}
        self.publish("session.message", session_key, lambda: told)
        self.publish_change(session_key, "message")
        for on_message, _ in tuple(self._listeners.values()):
            on_message(session_key, entry_id, text)

    def close(self) -> None:
        for _, on_end in tuple(self._listeners.values()):
            on_end()

    def publish_change(self, session_key: str, reason: str) -> None:
        """Publishes that a session was renamed, reset, ended …"""
        self.publish("sessions.changed", session_key, lambda: {"sessionKey": session_key, "reason": reason})


def _no_listener(_: str, __: str, ___: Callable[[], Any]) -> None: ...


class ModelService(Protocol):
    """What is known about the models of an agent, besides their replies."""

    def credential_states(self, agent_id: str) -> Sequence[CredentialState]:
        """How its keys stand, in the order in which they would be asked, without their secrets."""

    def fallbacks(self, agent_id: str) -> Sequence[str]: ...

    async def choose(self, agent_id: str, wanted: str = "", credential: str = "") -> tuple[Provider, Route]:
        """As Agent.choose_model, for an agent that may have nowhere to live; with one key alone, if it is named.

        Raises NotFound for an unknown agent.
        """


class ToolService(Protocol):
    """What is known about the tools of an agent, besides their results. Raises NotFound for an unknown agent."""

    async def tools(self, agent_id: str) -> Sequence[Tool]:
        """All that there are, whoever may use them, sorted by name."""

    def policy(self, agent_id: str) -> Policy: ...

    def settings(self, agent_id: str) -> ToolSettings: ...

    def environment(self, key: SessionKey) -> ExecEnvironment: ...

    def sandbox(self, agent_id: str) -> Sandbox:
        """The backend that its config names; the host is not one."""


class Services:
    home: Home
    env: Mapping[str, str]
    readonly: bool = False
    process: str = ""
    """The process that holds the home for others, as people are told of it."""
    sleep: Sleep
    clock: Clock
    new_id: NewId = staticmethod(random_id)
    agents: Agents
    models: ModelService
    toolsets: ToolService
    dispatcher: Dispatcher
    deliveries: Deliveries
    jobs: Jobs
    """Work that survives a restart; kinds of it are registered by extensions."""
    hooks: Hooks
    """Calls hooks of extensions and people when something happens."""
    pairings: Pairings
    messages: Messages
    recipients: Recipients
    """Whom a name or an address means."""
    reception: Reception
    """What channels call for each message that arrives."""
    turns: TurnRunner
    traces: Tracer
    sessions: SessionStore
    index: TranscriptIndex
    usage: UsageLedger
    audit: AuditLog
    approvals: Approvals
    approval_store: ApprovalStore
    file_origins: FileOriginStore
    results: ResultStore
    core_tools: tuple[Tool, ...]
    """Those that reach into sessions and deliveries."""
    grants: GrantStore
    database: Any
    """storage.database.Database, on which extensions build stores of their own; none: nothing is kept on a disk."""
    text_places: tuple[str, ...]
    """Who declares places that hold words (domain/text_places.py), as "module:name"."""
    access: Register | None
    """Who may come in by the gateway."""
    holder: Holder

    def __init__(self, **parts: Any) -> None:
        vars(self).update(parts)

    if not TYPE_CHECKING:  # a checker would take every misspelt name for a part

        def __getattr__(self, part: str) -> Any:
            """Python asks here for what is not there yet."""
            build = getattr(type(self), f"build_{part}", None)
            if build is None:
                raise AttributeError(f"there is no service {part!r}")
            vars(self)[part] = built = build(self)
            return built

    def built(self, part: str) -> Any:
        """The part, if anybody has touched it."""
        return vars(self).get(part)

    def replace(self, **parts: Any) -> Self:
        """The same with other parts, for tests."""
        changed = copy.copy(self)
        vars(changed).update(parts)
        return changed

    @property
    def config(self) -> Config:
        """The config that holds now."""
        raise NotOffered("this home has no config")

    def secret(self, value: Secret | None) -> str | None:
        """The secret of a config value, looked up now; None if there is none. Raises ConfigError."""
        raise NotOffered("this home has no config")

    def warnings(self) -> tuple[str, ...]:
        """What is odd about the config or a context engine right now, one line each."""
        turns: TurnRunner | None = self.built("turns")
        return (*turns.maintenance.engines.warnings, *turns.hooks.warnings()) if turns is not None else ()

    async def status_lines(self) -> tuple[str, ...]:
        """What extensions have to say in `pal status`, a line each."""
        return ()

    def get(self, kind: type[Any]) -> Any:
        """What an extension keeps for as long as the process lives, by its type. Raises NotOffered."""
        raise NotOffered(f"this home has no {kind.__name__}")

    def keep(self, kind: type[T]) -> T:
        """What an extension keeps for as long as the process lives: made of the services when it is first asked for,
        and closed with the home if it has an async `close`."""
        kept: dict[type[Any], Any] = vars(self).setdefault("kept", {})
        if kind not in kept:
            kept[kind] = kind(self)  # type: ignore[call-arg]
        found: T = kept[kind]
        return found

    async def close_kept(self) -> None:
        for each in vars(self).pop("kept", {}).values():
            if hasattr(each, "close"):
                await each.close()

    def memory(self, agent_id: str) -> AgentMemory:
        """The memory of an agent. Raises NotFound for an unknown one; what is wrong is said when asked."""
        raise NotOffered("this home has no memory to search")

    def skills(self, agent_id: str) -> Skills:
        """The skills of an agent. Raises NotFound for an unknown one."""
        raise NotOffered("this home has no skills to show")

    def workspace(self, agent_id: str) -> Path:
        """Where an agent lives, whether or not it is there. Raises NotFound for an unknown one."""
        return Path()

    def was_spoken_to(self, agent_id: str) -> bool:
        """Whether an agent has sessions already. May block for a moment."""
        return False

    def describe_agent(self, agent_id: str) -> tuple[str, AgentIdentity]:
        """Where an agent lives, and who it is. Raises NotFound, and WorkspaceError when it has nowhere to live."""
        from palinurus.agent.agent import agent_identity

        agent = self.agents.get(agent_id)
        return agent.context.prompt.workspace, agent_identity(agent)

    @property
    def busy(self) -> int:
        """Runs that go on or wait."""
        dispatcher = self.built("dispatcher")
        return dispatcher.busy if dispatcher is not None else 0

    def maintenance(self) -> MaintenanceSettings:
        """Which sessions are put away, as the config says right now."""
        from palinurus.sessions.settings import MaintenanceSettings

        return MaintenanceSettings()

    def edited(self, agent_id: str, what: str) -> None:
        """Told that a file of an agent was changed by a person, and how, in a few words. Does not raise or block."""

    def session_changed(self, session_id: str) -> None:
        """Told that rows of a session are others now: whoever remembers them reads them anew."""

    def build_database(self) -> Any:
        return None

    def build_text_places(self) -> tuple[str, ...]:
        return ()

    def build_access(self) -> Register | None:
        return None

    def build_hooks(self) -> Hooks:
        from palinurus.domain.hooks import Hooks

        return Hooks()

    def build_holder(self) -> Holder:
        return Holder()

    def build_traces(self) -> Tracer:
        from palinurus.dispatch.runs import Runs
        from palinurus.dispatch.traces import Tracer
        from palinurus.ledger.trace import TraceStore
        from palinurus.storage.database import MemoryDatabase

        return Tracer(TraceStore(MemoryDatabase()), self.clock, Runs())
