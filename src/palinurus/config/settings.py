"""What holds for one agent: the defaults, the config's defaults and the agent's own entry, joined into one record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

from msgspec import Struct

from palinurus.config.home import Home
from palinurus.config.schema import (
    AgentEntry,
    AgentOptions,
    Config,
    Identity,
    ModelChoice,
    ResetPolicy,
)
from palinurus.domain.errors import NotFound
from palinurus.domain.identity import AgentIdentity
from palinurus.domain.keys import DEFAULT_AGENT

DAILY_RESET_HOUR = 4


class AgentSettings(Struct, frozen=True):
    """One agent as the rest of the house sees it. The values here are the defaults of the product."""

    agent_id: str
    workspace: Path
    workspace_named: bool = True  # by the config or a flag, so it must be there; any other is made when it is needed
    name: str = ""
    identity: AgentIdentity = AgentIdentity()  # as the config says; IDENTITY.md fills in what is empty
    model: str = ""  # provider/model; empty: chosen by what is there
    fallbacks: tuple[str, ...] = ()
    context_injection: Literal["always", "continuation-skip", "never"] = "always"
    bootstrap_max_chars: int = 20_000
    bootstrap_total_max_chars: int = 60_000
    extra_bootstrap_files: tuple[str, ...] = ()
    skip_bootstrap: bool = False
    skip_optional_bootstrap_files: tuple[str, ...] = ()
    max_concurrent: int = 8
    timeout_seconds: float = 600.0  # 0: no limit
    user_timezone: str = ""
    time_format: Literal["auto", "12", "24"] = "auto"  # auto: 24
    thinking_default: str = ""  # empty: as the model does by itself
    prompt_mode: Literal["full", "minimal", "none"] = "full"
    workspace_history: Literal["runs", "off"] = "runs"

    @property
    def zone(self) -> ZoneInfo | None:
        """The owner's zone; None when it is the machine's, or one that this machine does not know."""
        return known_zone(self.user_timezone)


class ResetRule(Struct, frozen=True):
    """When a session starts afresh by itself. With both a daily hour and idle minutes, whichever comes first."""

    mode: Literal["none", "daily", "idle"] = "none"
    at_hour: int = DAILY_RESET_HOUR
    idle_minutes: int | None = None


_COPIED = (
    "context_injection",
    "bootstrap_max_chars",
    "bootstrap_total_max_chars",
    "extra_bootstrap_files",
    "skip_bootstrap",
    "skip_optional_bootstrap_files",
    "max_concurrent",
    "timeout_seconds",
    "user_timezone",
    "time_format",
    "thinking_default",
    "prompt_mode",
    "workspace_history",
)


def agent_ids(config: Config) -> tuple[str, ...]:
    """The agents of the config in its order; `main` when it names none."""
    listed = [agent.id for agent in config.agents.listed]
    return tuple(dict.fromkeys([*listed, *config.agents.entries])) or (DEFAULT_AGENT,)


def default_agent(config: Config) -> str:
    """The agent that a message without an address goes to: the marked one, else `main`, else the first."""
    ids = agent_ids(config)
    marked = next((agent.id for agent in config.agents.listed if agent.default), None)
    return marked or (DEFAULT_AGENT if DEFAULT_AGENT in ids else ids[0])


def agent_settings(config: Config, home: Home, agent_id: str | None = None) -> AgentSettings:
    """Everything that holds for an agent, the default one when none is named. Raises NotFound."""
    wanted = _known_id(config, agent_id)
    layers = list(agent_layers(config, wanted))
    values: dict[str, Any] = {name: _first(layers, name) for name in _COPIED}
    model, fallbacks = _models(layers)
    identity: Identity | None = _first(layers[:-2], "identity")
    own_name: str | None = _first(layers[:-2], "name")
    return AgentSettings(
        agent_id=wanted,
        workspace=_workspace(config, home, wanted, layers),
        workspace_named=_names_workspace(config, home, wanted, layers),
        name=own_name or (identity.name if identity else None) or wanted,
        identity=_identity(identity),
        model=model,
        fallbacks=fallbacks,
        **{name: value for name, value in values.items() if value is not None},
    )


def reset_rule(config: Config, chat_type: str, channel: str = "") -> ResetRule:
    """The reset policy for a chat: its channel's if there is one, else its type's, else the general one.

    `chat_type` is direct, group, channel or thread; channels go by the rule for groups. Older spellings
    (`session.idleMinutes`, `resetByType.dm`) count.
    """
    session = config.session
    if by_channel := session.reset_by_channel.get(channel):
        return _rule(by_channel)
    types = session.reset_by_type
    by_type = {"direct": types.direct or types.dm, "group": types.group, "channel": types.group, "thread": types.thread}
    if policy := by_type.get(chat_type):
        return _rule(policy)
    return _rule(session.reset, session.idle_minutes)


def known_zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (KeyError, OSError, ValueError):  # not found is a KeyError; names that make no sense fail in other ways
        return None


def _rule(policy: ResetPolicy, old_idle_minutes: int | None = None) -> ResetRule:
    idle = policy.idle_minutes or old_idle_minutes
    mode = policy.mode or ("idle" if idle else "none")
    return ResetRule(mode, DAILY_RESET_HOUR if policy.at_hour is None else policy.at_hour, idle)


def _known_id(config: Config, agent_id: str | None) -> str:
    if agent_id is None:
        return default_agent(config)
    ids = agent_ids(config)
    wanted = agent_id.strip().lower()
    if wanted not in ids:
        raise NotFound(f"there is no agent {agent_id!r}", hint=f"the config has {', '.join(ids)}")
    return wanted


def agent_layers(config: Config, agent_id: str) -> Iterator[AgentOptions]:
    """What is said about an agent, the nearest first; the last two layers are said about all agents."""
    nothing = AgentEntry.model_construct()
    yield config.agents.entries.get(agent_id, nothing)
    yield next((agent for agent in config.agents.listed if agent.id == agent_id), nothing)
    yield config.agents.defaults
    yield config.agent or nothing


def _first(layers: list[AgentOptions], name: str) -> Any:
    return next((value for layer in layers if (value := getattr(layer, name)) is not None), None)


def _identity(said: Identity | None) -> AgentIdentity:
    if said is None:
        return AgentIdentity()
    return AgentIdentity(**{field: getattr(said, field) or "" for field in AgentIdentity.__struct_fields__})


def _models(layers: list[AgentOptions]) -> tuple[str, tuple[str, ...]]:
    """A model named by a plain string stands alone; only a list of fallbacks makes any."""
    fallbacks: tuple[str, ...] = ()
    for layer in layers:
        if isinstance(layer.model, str):
            return layer.model, fallbacks
        if isinstance(layer.model, ModelChoice):
            fallbacks = fallbacks or layer.model.fallbacks
            if layer.model.primary:
                return layer.model.primary, fallbacks
    return "", fallbacks


def _workspace(config: Config, home: Home, agent_id: str, layers: list[AgentOptions]) -> Path:
    """Where the agent lives. A foreign config speaks of the home it stands in, so its paths start there."""
    if home.workspace_override is not None:
        return home.workspace_override
    base = home.root if home.ours else home.config_path.parent
    if own := _first(layers[:-2], "workspace"):
        return home.expand(own, base)
    shared = _first(layers[-2:], "workspace")
    is_default = agent_id == default_agent(config)
    if shared:
        return home.expand(shared, base) / ("" if is_default else agent_id)
    return base / ("workspace" if is_default else f"workspace-{agent_id}")


def _names_workspace(config: Config, home: Home, agent_id: str, layers: list[AgentOptions]) -> bool:
    """Whether a person chose this folder, and not we. In somebody else's home we choose none."""
    if home.workspace_override is not None or not home.ours or _first(layers[:-2], "workspace"):
        return True
    return bool(_first(layers[-2:], "workspace")) and agent_id == default_agent(config)
