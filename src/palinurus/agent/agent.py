"""The parts that one agent works with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from palinurus.agent.loop import Hands
from palinurus.config.compacting import CompactionSettings, PruneSettings, StartupSettings
from palinurus.context.epoch import Route
from palinurus.context.opening import ContextSettings
from palinurus.context.recall import Recalling, nothing_recalled
from palinurus.domain.errors import BadRequest
from palinurus.domain.identity import AgentIdentity
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Usage
from palinurus.domain.provenance import Trusting, trusting_nothing
from palinurus.providers.provider import Provider
from palinurus.skills.skills import Skills
from palinurus.workspace.files import WorkspaceFiles
from palinurus.workspace.identity import read_identity


class SessionWorkspace(Struct, frozen=True):
    """The one workspace of a session, as its tools, its memory and its prompt see it."""

    files: WorkspaceFiles
    path: str  # as the tools know it
    sandbox: str = ""  # what the prompt says about it and about where commands run


async def named_as_written(name: str) -> str:
    """For an agent without a list of models: whatever has a provider."""
    if "/" not in name:
        raise BadRequest(f"{name!r} is no model", hint="a model is named provider/model")
    return name


class Agent(Struct, frozen=True):
    id: str
    files: WorkspaceFiles
    hands: Callable[[SessionKey, Route, int], Awaitable[Hands]]
    """The tools that a session may use with this model, whose window is so large. Must not raise."""
    context: ContextSettings
    choose_model: Callable[[str], Awaitable[tuple[Provider, Route]]]
    """Gives the provider for the session's own choice of model ("" for the agent's).

    Must not raise: what cannot be reached is a provider that fails, so that the message is kept all the same.
    """
    timeout_seconds: float = 600.0  # of a whole turn; 0 means no limit
    cost: Callable[[str, str, Usage], float | None] = lambda provider, model, usage: None
    """What a call of this provider's model cost in US dollars; None when nobody told the price. Must not raise."""
    recall: Recalling = nothing_recalled
    compaction: CompactionSettings = CompactionSettings()
    pruning: PruneSettings = PruneSettings()
    startup: StartupSettings = StartupSettings(enabled=False)
    skills: Skills | None = None
    trusted: Trusting = trusting_nothing
    runtime: str = ""  # on what it runs, in one line: for its prompt
    workspace_of: Callable[[SessionKey], Awaitable[SessionWorkspace]] | None = None
    """The workspace of a session; None: `files`, for all of them. Must not raise."""
    find_model: Callable[[str], Awaitable[str]] = named_as_written
    """The whole name, provider/model, of a model that a session may choose. Raises BadRequest for one that is none."""


def agent_identity(agent: Agent) -> AgentIdentity:
    """Who it is for people: what the config says, else IDENTITY.md. It has a name in any case."""
    prompt = agent.context.prompt
    said = prompt.identity.or_else(read_identity(agent.files))
    return said.or_else(AgentIdentity(prompt.agent_name or agent.id))
