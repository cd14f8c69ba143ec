"""The agents of the config: list them, add one, change one, remove one. In OpenClaw's shapes.

A removed agent keeps its files and its sessions: only its entry in the config goes. The files of an agent are
operations of workspace.py. No open home is needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from palinurus.config.agents import AgentSettings, agent_ids, agent_settings, default_agent
from palinurus.config.load import load_config
from palinurus.config.rewrite import drop, merged, put
from palinurus.config.source import parse
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.identity import AgentIdentity
from palinurus.domain.keys import AGENT_ID
from palinurus.operations.config import edit_config, setup
from palinurus.operations.operation import operation
from palinurus.operations.scopes import LOCAL, Caller
from palinurus.operations.services import Services
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import WorkspaceFiles, read_identity

MOST_AGENTS = 100
MAX_NAME = 80


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


class AgentList(Struct, frozen=True, rename="camel"):
    default_id: str
    agents: tuple[AgentSummary, ...]
    main_key: str = "main"
    scope: str = "per-sender"


class CreatedAgent(Struct, frozen=True, rename="camel", omit_defaults=True):
    agent_id: str
    name: str
    workspace: str
    ok: bool
    model: str = ""


class UpdatedAgent(Struct, frozen=True, rename="camel"):
    agent_id: str
    ok: bool = True


class RemainingFile(Struct, frozen=True):
    path: str
    reason: str


class DeletedAgent(Struct, frozen=True, rename="camel"):
    agent_id: str
    removed_bindings: int = 0
    failed: tuple[RemainingFile, ...] = ()  # files that were to be deleted and are still there
    ok: bool = True


@operation("agents.list", scope="read", strict=False, needs_home=False)
def list_agents(services: Services) -> AgentList:
    """List the agents of this home."""
    return _list(services)


@operation("agents.create", scope="admin", strict=False, needs_home=False)
def create_agent(
    services: Services, name: str, workspace: str = "", model: str = "", emoji: str = "", caller: Caller = LOCAL
) -> CreatedAgent:
    """Add an agent with a new workspace."""
    _refuse_workspace(workspace)
    shown = _name(name)
    agent = _id(shown)
    known = agent_ids(load_config(services.home, services.env).config)
    if agent in known:
        raise BadRequest(f"there is an agent {agent!r} already", hint="give it another name")
    if len(known) >= MOST_AGENTS:
        raise BadRequest(f"there are {len(known)} agents, and {MOST_AGENTS} is the limit")
    entry = {"id": agent, "name": shown, **_options(model or UNSET, emoji or UNSET)}
    edit_config(services, lambda text: _with_agent(text, agent, entry, known), caller)
    setup(services)  # makes its workspace
    made = _find(_list(services), agent)
    return CreatedAgent(made.id, made.name, made.workspace, True, made.model.primary)


@operation("agents.update", scope="admin", strict=False, needs_home=False)
def update_agent(
    services: Services,
    agent_id: str,
    name: str | UnsetType = UNSET,
    workspace: str | UnsetType = UNSET,
    model: str | UnsetType | None = UNSET,
    emoji: str | UnsetType = UNSET,
    caller: Caller = LOCAL,
) -> UpdatedAgent:
    """Change the name, emoji or model of an agent."""
    _refuse_workspace("" if workspace is UNSET else workspace)
    agent = _find(_list(services), agent_id).id
    own = {} if name is UNSET else {"name": _name(name)}
    entry = {"id": agent, **own, **_options(model, emoji)}
    edit_config(services, lambda text: _with_agent(text, agent, entry, (agent,)), caller)
    return UpdatedAgent(agent)


@operation("agents.delete", scope="admin", strict=False, needs_home=False)
def delete_agent(services: Services, agent_id: str, delete_files: bool = False) -> DeletedAgent:
    """Remove an agent from the config. Its files and sessions stay."""
    listed = _list(services)
    agent = _find(listed, agent_id)
    if agent.id == listed.default_id:
        raise BadRequest(f"{agent.id} is the default agent", hint="make another agent the default first")
    # Nothing is set, so there is nothing to check: agents behind it in the list only move up.
    edit_config(services, lambda text: _without_agent(text, agent.id), LOCAL)
    left = RemainingFile(agent.workspace, "files of an agent are deleted by hand only")
    return DeletedAgent(agent.id, failed=(left,) if delete_files else ())


def _refuse_workspace(wanted: str) -> None:
    if wanted:
        raise BadRequest(
            "the workspace of an agent cannot be set by a call: its tools could then write there",
            hint="`pal config set` names another workspace",
        )


def _list(services: Services) -> AgentList:
    config = load_config(services.home, services.env).config
    settings = (agent_settings(config, services.home, agent) for agent in agent_ids(config))
    return AgentList(default_agent(config), tuple(map(_summary, settings)))


def _summary(settings: AgentSettings) -> AgentSummary:
    identity = settings.identity.or_else(read_identity(WorkspaceFiles(Boundary(settings.workspace))))
    return AgentSummary(
        settings.agent_id,
        settings.name,
        str(settings.workspace),
        identity.or_else(AgentIdentity(settings.name)),
        AgentModel(settings.model, settings.fallbacks),
        settings.thinking_default,
    )


def _find(listed: AgentList, agent_id: str) -> AgentSummary:
    wanted = agent_id.strip().lower()
    found = next((each for each in listed.agents if each.id == wanted), None)
    if found is None:
        raise NotFound(f"there is no agent {agent_id[:80]!r}", hint="agents.list shows them")
    return found


def _with_agent(text: str, agent: str, entry: dict[str, Any], known: Sequence[str]) -> str:
    """The entry where this config keeps its agents. A config that names none has one, which must not vanish."""
    agents = parse(text).get("agents") or {}
    own = {key: value for key, value in entry.items() if key != "id"}
    if agent in (agents.get("entries") or {}):
        return _put(text, ("agents", "entries", agent), merged(agents["entries"][agent], own))
    listed = agents.get("list") or []
    at = next((at for at, each in enumerate(listed) if isinstance(each, dict) and each.get("id") == agent), None)
    if at is not None:
        return _put(text, ("agents", "list", at), merged(listed[at], entry))
    if not listed and not agents.get("entries") and agent not in known:
        return _put(text, ("agents", "list"), [{"id": known[0], "default": True}, merged(None, entry)])
    return _put(text, ("agents", "list", len(listed)), merged(None, entry))


def _without_agent(text: str, agent: str) -> str:
    agents = parse(text).get("agents") or {}
    listed = agents.get("list") or []
    found = [("agents", "list", at) for at, each in enumerate(listed) if each.get("id") == agent]
    edited = drop(text, found[0]) if found else text
    if agent in (agents.get("entries") or {}):
        edited = drop(edited, ("agents", "entries", agent))
    if edited == text:
        raise BadRequest(f"{agent} comes from an included file", hint="take it out there")
    return edited


def _put(text: str, path: tuple[str | int, ...], value: Any) -> str:
    return put(text, path, json.loads(json.dumps(value)))


def _options(model: str | UnsetType | None, emoji: str | UnsetType) -> dict[str, Any]:
    chosen: dict[str, Any] = {} if model is UNSET else {"model": model or None}
    return chosen if emoji is UNSET else {**chosen, "identity": {"emoji": emoji[:16] or None}}


def _name(name: str) -> str:
    shown = " ".join(name.split())
    if not shown or len(shown) > MAX_NAME or not shown.isprintable():
        raise BadRequest(f"not a name for an agent: {name[:80]!r}", hint=f"some words, at most {MAX_NAME} characters")
    return shown


def _id(name: str) -> str:
    made = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-_")[:64]
    if not AGENT_ID.fullmatch(made):
        raise BadRequest(f"no id can be made of {name!r}", hint="it needs a letter or digit of a to z, 0 to 9")
    return made


OPERATIONS = (list_agents, create_agent, update_agent, delete_agent)
