"""The agents of the config as they are: all of them, and one with the source of each setting. In OpenClaw's shapes.

What changes them is in agent_changes.py and bindings.py; the files of an agent are operations of workspace.py. No open
home is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Struct

from palinurus.config.agents import AgentSettings, agent_folder, agent_ids, agent_settings, default_agent, known_agent
from palinurus.config.load import LoadedConfig, load_config
from palinurus.config.schema import explain_option
from palinurus.config.section import dig
from palinurus.config.source import JsonPath, format_path
from palinurus.domain.errors import NotFound
from palinurus.domain.identity import AgentIdentity
from palinurus.operations.bindings import ListedBinding, bindings_of
from palinurus.operations.operation import AgentRef, Metavar, Positional, operation
from palinurus.operations.services import Services
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import WorkspaceFiles, read_identity

# Shown for every agent, also when nobody has set them; what its own entry sets besides comes after them.
SHOWN = ("model", "thinkingDefault", "tools.profile", "sandbox.mode", "sandbox.scope", "sandbox.workspaceAccess")
_TOLD_ALREADY = ("id", "default", "name", "workspace", "agentDir", "identity")


class AgentModel(Struct, frozen=True, omit_defaults=True):
    primary: str = ""  # empty: the first usable one
    fallbacks: tuple[str, ...] = ()


class AgentSummary(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    name: str  # in listings
    workspace: str
    identity: AgentIdentity = AgentIdentity()  # of config and IDENTITY.md; its name may be another one
    model: AgentModel = AgentModel()
    thinking_default: str = ""
    bindings: tuple[str, ...] = ()  # as they are written on the command line


class AgentList(Struct, frozen=True, rename="camel"):
    default_id: str
    agents: tuple[AgentSummary, ...]
    main_key: str = "main"
    scope: str = "per-sender"


class AgentSetting(Struct, frozen=True):
    """One setting that holds for an agent. A secret in it is not shown."""

    key: str  # from the agent's entry
    value: Any
    where: str  # file:line and path; empty: the default


class AgentView(Struct, frozen=True, rename="camel"):
    id: str
    name: str
    is_default: bool
    workspace: str
    agent_dir: str  # where its own keys are
    memory_index: str
    identity: AgentIdentity
    model: AgentModel
    bindings: tuple[ListedBinding, ...]
    settings: tuple[AgentSetting, ...]


@operation("agents.list", scope="read", strict=False, needs_home=False)
def list_agents(services: Services) -> AgentList:
    """List the agents of this home.

    Example:
      pal agents list --json
    """
    return agents_of(services)


@operation("agents.show", scope="read", needs_home=False)
def show_agent(
    services: Services, agent: Annotated[AgentRef, Positional, Metavar("ID"), "Default: the default agent."] = ""
) -> AgentView:
    """Show the settings of an agent, and the config line of each.

    Examples:
      pal agents show
      pal agents show work --json
    """
    loaded = load_config(services.home, services.env, thorough=True)
    config, home = loaded.config, services.home
    settings = agent_settings(config, home, known_agent(config, agent or None))
    wanted = settings.agent_id
    return AgentView(
        wanted,
        settings.name,
        wanted == default_agent(config),
        str(settings.workspace),
        str(agent_folder(config, home, wanted)),
        str(home.root / "derived" / "memory" / f"{wanted}.sqlite"),
        _identity(settings),
        AgentModel(settings.model, settings.fallbacks),
        bindings_of(config, wanted),
        tuple(_settings(loaded, wanted)),
    )


def agents_of(services: Services) -> AgentList:
    config = load_config(services.home, services.env).config
    settings = (agent_settings(config, services.home, agent) for agent in agent_ids(config))
    return AgentList(
        default_agent(config), tuple(_summary(each, bindings_of(config, each.agent_id)) for each in settings)
    )


def find_agent(listed: AgentList, agent_id: str) -> AgentSummary:
    """Raises NotFound."""
    wanted = agent_id.strip().lower()
    found = next((each for each in listed.agents if each.id == wanted), None)
    if found is None:
        raise NotFound(f"there is no agent {agent_id[:80]!r}", hint=_meant(wanted, [each.id for each in listed.agents]))
    return found


def _meant(wanted: str, known: list[str]) -> str:
    import difflib  # slow to import, and most know the name

    close = difflib.get_close_matches(wanted[:80], known, 1)
    return f"did you mean {close[0]}?" if close else f"the config has {', '.join(known[:20])}"


def _summary(settings: AgentSettings, bindings: tuple[ListedBinding, ...]) -> AgentSummary:
    return AgentSummary(
        settings.agent_id,
        settings.name,
        str(settings.workspace),
        _identity(settings),
        AgentModel(settings.model, settings.fallbacks),
        settings.thinking_default,
        tuple(each.text for each in bindings),
    )


def _identity(settings: AgentSettings) -> AgentIdentity:
    said = settings.identity.or_else(read_identity(WorkspaceFiles(Boundary(settings.workspace))))
    return said.or_else(AgentIdentity(settings.name))


def _settings(loaded: LoadedConfig, agent: str) -> Iterator[AgentSetting]:
    """The well-known settings, then what the agent's own entry sets besides."""
    own = (format_path(path) for place in loaded.config.own_places.get(agent, ()) for path in _leaves(loaded, place))
    for key in dict.fromkeys((*SHOWN, *own)):
        if key.split(".")[0] in _TOLD_ALREADY or key.startswith("model."):
            continue
        try:
            found = explain_option(loaded, f"agents.defaults.{key}", agent)
        except NotFound:  # kept for another program
            continue
        if found.said:
            said = found.said[0]
            yield AgentSetting(key, said.value, f"{said.where} {said.path}")
        elif key in SHOWN:
            yield AgentSetting(key, found.default, "")


def _leaves(loaded: LoadedConfig, place: JsonPath) -> Iterator[JsonPath]:
    """Paths below a place, down to values and lists."""
    waiting: list[JsonPath] = [()]
    while waiting:
        path = waiting.pop(0)
        found = dig(loaded.raw, (*place, *path))
        if isinstance(found, dict):
            waiting += [(*path, key) for key in found]
        elif path:
            yield path
