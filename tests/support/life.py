"""One life of a simulated house, from its start to its crash, on stores that outlive it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from palinurus.agent.agent import Agent
from palinurus.agent.loop import TurnTools
from palinurus.agent.turn import TurnRunner
from palinurus.config.secrets import Redactor
from palinurus.context.epoch import Route
from palinurus.context.prompt import ContextSettings, Injection, PromptSettings
from palinurus.dispatch.dispatcher import Dispatcher
from palinurus.dispatch.lanes import Lanes
from palinurus.dispatch.queue import MODES, QueueSettings
from palinurus.domain.clock import Clock, NewId
from palinurus.domain.errors import WorkspaceError
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import Tool
from palinurus.ledger.audit_log import AuditLog
from palinurus.providers.provider import Provider
from palinurus.sessions.reset import ResetPolicy
from palinurus.sessions.store import SessionStore
from palinurus.storage.jobs import JobQueue
from palinurus.testing.harness import FULL, FixedAgents
from palinurus.tools.approval import Approvals
from palinurus.tools.gate import Gate, GateServices
from palinurus.tools.grants import GrantStore
from palinurus.tools.registry import ToolRegistry
from palinurus.workspace.files import WorkspaceFiles

from .faults import Border, faulty
from .liar import SECRETS, LyingModel, Received

T = TypeVar("T")

TURN_SECONDS = 600.0
AT_ONCE = 2
LANE_CAP = 6
WINDOWS = (1_800, 2_200, 3_000, 32_000)  # the head alone has about 1,200


class Settings(Struct, frozen=True):
    """What a config decides, as far as the simulator turns its knobs."""

    model: str = "model-1"
    window: int = 32_000
    wire: str = "wire-1"
    thinking: str = "off"
    few_tools: bool = False
    injection: Injection = "always"
    minimal: bool = False
    resets: ResetPolicy = ResetPolicy()
    queue: QueueSettings = QueueSettings("followup")


class Outlives(Struct, frozen=True):
    """What a crash does not touch."""

    sessions: SessionStore
    queue: JobQueue
    files: WorkspaceFiles
    clock: Clock
    new_id: NewId
    audit: AuditLog
    approvals: Approvals
    grants: GrantStore
    received: Received
    tools: tuple[Tool, ...]  # making them costs more than a turn, so lives share them


class _Agents(FixedAgents):
    """Whose workspace is now and then out of reach, as on a disk that was not mounted."""

    def __init__(self, agent: Agent, border: Border) -> None:
        super().__init__(agent)
        self._border = border

    def get(self, agent_id: str) -> Agent:
        if self._border.dice.random() < self._border.weather.fail:
            self._border.trace.add("fail", "workspace")
            raise WorkspaceError("the workspace is not there", hint="mount it")
        return super().get(agent_id)


class Life:
    """A dispatcher with all its parts on faulty borders."""

    def __init__(self, outlives: Outlives, border: Border, settings: Settings) -> None:
        self.border = border
        self._outlives = outlives
        self._settings = settings
        redact = Redactor(SECRETS).redact
        audit = faulty(outlives.audit, border, "record")
        self._watch = GateServices(outlives.approvals, outlives.grants, audit, outlives.clock, redact)
        self._calls: dict[asyncio.Task[Any], None] = {}  # a set would have another order in each run
        self._agents = _Agents(self._agent(), border)
        self._agents.queueing = settings.queue
        turns = TurnRunner(
            faulty(outlives.sessions, border),
            lambda _: self._settings.resets,
            outlives.clock,
            outlives.new_id,
            redact,
        )
        self._lanes = Lanes(at_once=AT_ONCE, cap=LANE_CAP)
        queue = faulty(outlives.queue, border)
        self.dispatcher = Dispatcher(queue, turns, self._agents, self._lanes, outlives.clock, outlives.new_id)

    @property
    def on(self) -> bool:
        return self.border.power.on

    def configure(self, settings: Settings) -> None:
        self._settings = settings
        self._agents.agent = self._agent()
        self._agents.queueing = settings.queue

    def call(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Have it done inside this life; it is cancelled when the life ends."""
        task = asyncio.create_task(work)
        self._calls[task] = None
        task.add_done_callback(self._calls.pop)
        return task

    async def crash(self) -> None:
        """Cut the current and sweep away what was going on."""
        self.border.power.cut()
        while self._calls:
            for task in list(self._calls):
                task.cancel()
            await asyncio.wait(self._calls)
        # A tool may swallow a cancellation; what it does next runs into the border, and is cancelled again there.
        while True:
            try:
                async with asyncio.timeout(1):
                    return await self._lanes.cancel()
            except TimeoutError:
                continue

    def _agent(self) -> Agent:
        files, settings = self._outlives.files, self._settings
        # The workspace's true path is another one in each run and would give each run other requests.
        prompt = PromptSettings(
            mode="minimal" if settings.minimal else "full", workspace="/workspace", inject=settings.injection != "never"
        )
        return Agent(
            "main",
            files,
            self._hands,
            ContextSettings(prompt, settings.injection),
            self._choose,
            TURN_SECONDS,
        )

    async def _hands(self, key: SessionKey, route: Route, window: int) -> TurnTools:
        tools = self._outlives.tools[:4] if self._settings.few_tools else self._outlives.tools
        return Gate(ToolRegistry(tools), FULL, self._watch).offer(key, route.provider, route.model)

    async def _choose(self, wanted: str) -> tuple[Provider, Route]:
        settings = self._settings
        model = LyingModel(self.border, settings.wire, self._outlives.received, self._outlives.clock, settings.window)
        return model, Route(model.name, settings.model, settings.wire, settings.thinking)


def changed_at_random(settings: Settings, dice: random.Random) -> Settings:
    """One knob turned."""
    knobs: dict[str, tuple[Any, ...]] = {
        "model": ("model-1", "model-2"),
        "window": WINDOWS,
        "wire": ("wire-1", "wire-2"),
        "thinking": ("off", "high"),
        "few_tools": (False, True),
        "injection": ("always", "continuation-skip", "never"),
        "minimal": (False, True),
        "queue": (
            *(QueueSettings(mode) for mode in MODES),
            QueueSettings("steer", cap=2, drop="old"),
            QueueSettings("collect", cap=3, drop="summarize"),
        ),
        "resets": (ResetPolicy(), ResetPolicy("daily", 4), ResetPolicy("idle", idle_minutes=30)),
    }
    name = dice.choice(sorted(knobs))
    return msgspec.structs.replace(settings, **{name: dice.choice(knobs[name])})
