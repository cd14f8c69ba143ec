"""The parts of one agent, and the context of one turn that every step gets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct

from palinurus.agent.history import OpenSession
from palinurus.agent.loop import Emit, TurnTools
from palinurus.agent.reply import Stop
from palinurus.context.epoch import Route
from palinurus.context.prompt import ContextSettings
from palinurus.context.settings import CompactionSettings, PruneSettings, StartupSettings
from palinurus.domain.errors import BadRequest
from palinurus.domain.events import Notice
from palinurus.domain.identity import AgentIdentity
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import ContextNote, Trusting, Usage, trusting_nothing
from palinurus.ledger.usage import UsageRow
from palinurus.providers.provider import Provider
from palinurus.sessions.journal import Journal
from palinurus.skills.skills import Skills
from palinurus.workspace.files import WorkspaceFiles, read_identity

Recalling = Callable[[SessionKey, str], Awaitable[tuple[ContextNote, ...]]]
"""Returns what memory has about a message, for a session. Must not raise, and has its own time limit."""


class SessionWorkspace(Struct, frozen=True):
    """The one workspace of a session, as its tools, its memory and its prompt see it."""

    files: WorkspaceFiles
    path: str  # as the tools know it
    sandbox: str = ""  # how the prompt describes it and where commands run


async def named_as_written(name: str) -> str:
    """For an agent without a list of models: accepts any name with a provider."""
    if "/" not in name:
        raise BadRequest(f"{name!r} is not a model", hint="a model is named provider/model")
    return name


class Agent(Struct, frozen=True):
    id: str
    files: WorkspaceFiles
    tools: Callable[[SessionKey, Route, int], Awaitable[TurnTools]]
    """Returns the tools that a session may use with this model and window. Must not raise."""
    context: ContextSettings
    choose_model: Callable[[str], Awaitable[tuple[Provider, Route]]]
    """Returns the provider for the session's choice of model ("" for the agent's).

    Must not raise: an unreachable model becomes a provider that fails, so that the message is stored all the same.
    """
    timeout_seconds: float = 600.0  # seconds of a whole turn; 0 means no limit
    cost: Callable[[str, str, Usage], float | None] = lambda provider, model, usage: None
    """Returns the cost of a call in US dollars; None if the price is not known. Must not raise."""
    recall: Recalling | None = None  # None: no automatic recall
    compaction: CompactionSettings = CompactionSettings()
    pruning: PruneSettings = PruneSettings()
    startup: StartupSettings = StartupSettings(enabled=False)
    skills: Skills | None = None
    trusted: Trusting = trusting_nothing
    runtime: str = ""  # the runtime in one line, for its prompt
    workspace_of: Callable[[SessionKey], Awaitable[SessionWorkspace]] | None = None
    """Returns the workspace of a session; None: `files`, for all of them. Must not raise."""
    find_model: Callable[[str], Awaitable[str]] = named_as_written
    """Returns the full name, provider/model, of a model that a session may choose. Raises BadRequest for an unknown
    one.
    """

    async def in_session(self, key: SessionKey) -> Agent:
        """The agent in the workspace of one session: its files, and their description in the prompt.

        A subagent's prompt holds only what its task needs, and a group's nothing of private memory.
        """
        prompt, files = self.context.prompt, self.files
        if self.workspace_of is not None:
            found = await self.workspace_of(key)
            prompt, files = msgspec.structs.replace(prompt, workspace=found.path, sandbox=found.sandbox), found.files
        if key.is_subagent and prompt.mode != "none":
            prompt = msgspec.structs.replace(prompt, mode="minimal", audience="subagent")
        if not key.is_private:
            prompt = msgspec.structs.replace(prompt, private=False)
        if key.chat_type in ("group", "channel"):
            prompt = msgspec.structs.replace(prompt, audience="group")
        if prompt is self.context.prompt:
            return self
        return msgspec.structs.replace(self, files=files, context=msgspec.structs.replace(self.context, prompt=prompt))


class TurnContext(Struct, frozen=True):
    """One turn: the agent in this session, the journal that stores the turn, and the model that answers.

    Every step of the turn gets it.
    """

    agent: Agent
    key: SessionKey
    run_id: str
    journal: Journal
    provider: Provider
    route: Route
    window: int
    stop: Stop
    emit: Emit

    def warn(self, text: str) -> None:
        self.emit(Notice(text))

    def usage_row(self, entry_id: str, model: tuple[str, str], usage: Usage, at: int) -> UsageRow:
        """The usage ledger row of a call in this turn. `model`: the provider and the model that answered."""
        return UsageRow(
            entry_id=entry_id,
            at=at,
            run_id=self.run_id,
            session_key=str(self.key),
            agent=self.agent.id,
            provider=model[0],
            model=model[1],
            usage=usage,
            cost=self.agent.cost(*model, usage),
        )


async def turn_context(
    agent: Agent, session: OpenSession, run_id: str, choice: tuple[str, str], stop: Stop, emit: Emit
) -> TurnContext:
    """Chooses the model for a turn. `choice`: a model and a thinking level; empty: the agent's own."""
    model, thinking = choice
    here = await agent.in_session(session.key)
    provider, route = await here.choose_model(model)
    if thinking and thinking != route.thinking:
        route = msgspec.structs.replace(route, thinking=thinking)
    window = provider.context_window(route.model)
    return TurnContext(here, session.key, run_id, session.journal, provider, route, window, stop, emit)


def agent_identity(agent: Agent) -> AgentIdentity:
    """The identity for people: from the config, else from IDENTITY.md. It always has a name."""
    prompt = agent.context.prompt
    identity = prompt.identity.or_else(read_identity(agent.files))
    return identity.or_else(AgentIdentity(prompt.agent_name or agent.id))
