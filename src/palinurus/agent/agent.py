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
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Usage
from palinurus.providers.provider import Provider
from palinurus.skills.skills import Skills
from palinurus.workspace.files import WorkspaceFiles


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
    find_model: Callable[[str], Awaitable[str]] = named_as_written
    """The whole name, provider/model, of a model that a session may choose. Raises BadRequest for one that is none."""
