"""The agents of the config: who they are, a new one, a changed one, one that leaves. Everything here blocks.

An agent that leaves keeps its files and its conversations: only its place in the config goes.
"""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from palinurus.config.load import load_config
from palinurus.config.merging import merged
from palinurus.config.rewrite import drop, put
from palinurus.config.settings import AgentSettings, agent_ids, agent_settings, default_agent
from palinurus.config.source import parse
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.identity import AgentIdentity
from palinurus.domain.keys import AGENT_ID
from palinurus.operations.config import Ground, setup
from palinurus.operations.config_changes import Check, config_edit
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import WorkspaceFiles
from palinurus.workspace.identity import read_identity

MOST_AGENTS = 100
MAX_NAME = 80


class AgentSummary(Struct, frozen=True, rename="camel"):
    id: str
    name: str  # in listings
    identity: AgentIdentity  # of config and IDENTITY.md; its name may be another one
    workspace: str
    model: str  # empty: whatever is there
    fallbacks: tuple[str, ...]
    thinking: str
    is_default: bool


def agents_list(ground: Ground) -> tuple[AgentSummary, ...]:
    config = load_config(ground.home, ground.env).config
    default = default_agent(config)
    settings = (agent_settings(config, ground.home, agent) for agent in agent_ids(config))
    return tuple(_summary(each, default) for each in settings)


def agent_add(ground: Ground, name: str, check: Check, *, model: str = "", emoji: str = "") -> AgentSummary:
    """A new agent with a workspace of its own beside the others. Raises BadRequest when its name is taken."""
    shown = _name(name)
    agent = _id(shown)
    known = agent_ids(load_config(ground.home, ground.env).config)
    if agent in known:
        raise BadRequest(f"there is an agent {agent!r} already", hint="give it another name")
    if len(known) >= MOST_AGENTS:
        raise BadRequest(f"there are {len(known)} agents, and {MOST_AGENTS} is the limit")
    entry = {"id": agent, "name": shown, **_options(model or UNSET, emoji or UNSET)}
    config_edit(ground, lambda text: _with_agent(text, agent, entry, known), check)
    setup(ground)  # makes its workspace
    return _one(ground, agent)


def agent_change(
    ground: Ground,
    agent_id: str,
    check: Check,
    *,
    name: str | UnsetType = UNSET,
    model: str | UnsetType | None = UNSET,
    emoji: str | UnsetType = UNSET,
) -> AgentSummary:
    agent = _one(ground, agent_id).id
    own = {} if name is UNSET else {"name": _name(name)}
    entry = {"id": agent, **own, **_options(model, emoji)}
    config_edit(ground, lambda text: _with_agent(text, agent, entry, (agent,)), check)
    return _one(ground, agent)


def agent_remove(ground: Ground, agent_id: str) -> AgentSummary:
    """Take an agent out of the config. Raises BadRequest for the default one."""
    agent = _one(ground, agent_id)
    if agent.is_default:
        raise BadRequest(f"{agent.id} is the default agent", hint="make another one the default first")
    config_edit(ground, lambda text: _without_agent(text, agent.id), _no_more_than_this)
    return agent


def _no_more_than_this(_: Any, __: Any) -> None:
    """Nothing is set, so there is nothing to check; those behind it in a list only move up."""


def _with_agent(text: str, agent: str, entry: dict[str, Any], known: tuple[str, ...]) -> str:
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


def _one(ground: Ground, agent_id: str) -> AgentSummary:
    wanted = agent_id.strip().lower()
    found = next((each for each in agents_list(ground) if each.id == wanted), None)
    if found is None:
        raise NotFound(f"there is no agent {agent_id[:80]!r}", hint="agents.list shows them")
    return found


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


def _summary(settings: AgentSettings, default: str) -> AgentSummary:
    said = settings.identity.or_else(read_identity(WorkspaceFiles(Boundary(settings.workspace))))
    return AgentSummary(
        settings.agent_id,
        settings.name,
        said.or_else(AgentIdentity(settings.name)),
        str(settings.workspace),
        settings.model,
        settings.fallbacks,
        settings.thinking_default,
        settings.agent_id == default,
    )
