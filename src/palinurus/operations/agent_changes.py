"""Add an agent, change one, remove one, say who it is. The gateway's methods have OpenClaw's shapes.

A removed agent keeps its files, keys and sessions: only its entry and its bindings leave the config. Which folder an
agent lives in is decided on this machine, never by a call to the gateway. A change of the default agent moves nobody:
folders that follow from who is the default are written down first.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from palinurus.config.agents import agent_ids, agent_settings, default_agent
from palinurus.config.load import SHARED, LoadedConfig, load_config
from palinurus.config.rewrite import drop, merged, put
from palinurus.config.section import dig
from palinurus.config.source import parse
from palinurus.domain.clock import SystemClock
from palinurus.domain.errors import BadRequest, ConfigError, NotFound, WorkspaceError
from palinurus.domain.identity import AgentIdentity
from palinurus.domain.keys import AGENT_ID
from palinurus.operations.agents import agents_of, find_agent
from palinurus.operations.bindings import (
    ChangeBindings,
    matches_of,
    new_matches,
    with_bindings,
    without_bindings,
)
from palinurus.operations.config import edit_config, setup
from palinurus.operations.models import usable_model
from palinurus.operations.operation import operation
from palinurus.operations.scopes import LOCAL, Caller
from palinurus.operations.services import Services
from palinurus.providers.catalog import catalog_of
from palinurus.workspace.boundary import MEMORY_DIRECTORY, MEMORY_FILES, SKILLS, Boundary
from palinurus.workspace.files import IDENTITY, WorkspaceFiles, labelled, read_identity
from palinurus.workspace.seed import FIRST_RUN, TEMPLATES, SeedReport, TemplateKind, seed_workspace
from palinurus.workspace.write import create_file, delete_file, keep_backup, rewrite

MOST_AGENTS = 100
MAX_NAME = 80
MAX_VALUE = 2_000
MOST_COPIED = 2_000  # files
# What each template sets for its agent. One that reads much of others' text neither runs commands nor sends messages.
SETTINGS: dict[TemplateKind, dict[str, Any]] = {
    "assistant": {},
    "coder": {"tools": {"profile": "coding"}},
    "researcher": {"tools": {"deny": ["group:runtime", "group:messaging"]}},
    "home": {"tools": {"deny": ["group:runtime"]}},
}
_OWN = ("id", "name", "default", "workspace", "agentDir")  # not taken over from another agent
_FIELDS = AgentIdentity.__struct_fields__


class NewAgent(Struct, frozen=True, rename="camel"):
    """OpenClaw's clients send a name, of which the id is made; ours may send the id."""

    name: str = ""
    id: str = ""
    workspace: str = ""
    model: str = ""
    emoji: str = ""
    template: TemplateKind = "assistant"
    source: str = ""  # an agent whose files and settings are taken over
    with_memory: bool = False  # from there as well
    default: bool = False
    bind: tuple[str, ...] = ()  # CHANNEL[:ACCOUNT]


class CreatedAgent(Struct, frozen=True, rename="camel", omit_defaults=True):
    agent_id: str
    name: str
    workspace: str
    ok: bool
    model: str = ""
    default: bool = False
    created: tuple[str, ...] = ()  # files
    bindings: tuple[str, ...] = ()


class UpdateAgent(Struct, frozen=True, rename="camel"):
    agent_id: str
    name: str | UnsetType = UNSET
    workspace: str | UnsetType = UNSET
    model: str | UnsetType | None = UNSET
    emoji: str | UnsetType = UNSET
    default: bool = False  # True: messages without an agent go to it


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


class ChangeIdentity(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A field that is not sent stays; an empty one is removed."""

    agent_id: str
    name: str | UnsetType = UNSET
    emoji: str | UnsetType = UNSET
    creature: str | UnsetType = UNSET
    vibe: str | UnsetType = UNSET
    theme: str | UnsetType = UNSET
    avatar: str | UnsetType = UNSET
    from_file: bool = False  # take what IDENTITY.md says
    file: bool = False  # write IDENTITY.md instead of the config


class ChangedIdentity(Struct, frozen=True, rename="camel"):
    agent_id: str
    identity: AgentIdentity  # that holds now
    file: str  # that was written
    hidden: tuple[str, ...] = ()  # fields that were written and do not show, because the config says otherwise
    ok: bool = True


@operation("agents.create", scope="admin", strict=False, needs_home=False)
def create_agent(services: Services, params: NewAgent, caller: Caller = LOCAL) -> CreatedAgent:
    """Add an agent with a workspace of its own."""
    if params.workspace and not caller.is_local:
        raise _no_workspace_by_call()
    loaded = load_config(services.home, services.env)
    known = agent_ids(loaded.config)
    agent = _new_id(params, known)
    source = find_agent(agents_of(services), params.source).id if params.source else ""
    said = merged(SETTINGS[params.template], _said(loaded, params, agent))
    entry = merged(_taken_over(loaded, source), said)
    wanted = matches_of(ChangeBindings(agent, params.bind)) if params.bind else []
    fresh = new_matches(loaded.config, agent, wanted)
    pinned = _chosen_workspace(services, loaded, agent, params.workspace)

    if not services.home.is_used:
        setup(services, complete=False)  # for the agent that is there without being named

    def edit(text: str) -> str:
        return with_bindings(with_agent(text, agent, entry, known), agent, fresh)

    edit_config(services, edit, caller)
    if pinned:  # chosen by us or by the owner at this machine
        edit_config(services, lambda text: with_agent(text, agent, {"workspace": pinned}, known), LOCAL)
    if params.default:
        _make_default(services, agent, caller)
    made = find_agent(agents_of(services), agent)
    report = _furnish(services, agent, params, source)
    return CreatedAgent(
        agent, made.name, made.workspace, True, made.model.primary, params.default, report.created, made.bindings
    )


@operation("agents.update", scope="admin", strict=False, needs_home=False)
def update_agent(services: Services, params: UpdateAgent, caller: Caller = LOCAL) -> UpdatedAgent:
    """Change the name, emoji or model of an agent, or make it the default."""
    if params.workspace:
        raise _no_workspace_by_call()
    agent = find_agent(agents_of(services), params.agent_id).id
    own = {} if params.name is UNSET else {"name": _name(params.name)}
    entry = {**own, **_options(params.model, params.emoji)}
    if entry:
        edit_config(services, lambda text: with_agent(text, agent, entry, (agent,)), caller)
    if params.default:
        _make_default(services, agent, caller)
    return UpdatedAgent(agent)


@operation("agents.delete", scope="admin", strict=False, needs_home=False)
def delete_agent(services: Services, agent_id: str, delete_files: bool = False) -> DeletedAgent:
    """Remove an agent and its bindings from the config. Its files and sessions stay."""
    listed = agents_of(services)
    agent = find_agent(listed, agent_id)
    if agent.id == listed.default_id:
        raise BadRequest(f"{agent.id} is the default agent", hint="make another agent the default first")
    # Nothing is set, so there is nothing to check: agents behind it in the list only move up.
    edit_config(services, lambda text: without_bindings(_without_agent(text, agent.id), agent.id), LOCAL)
    left = RemainingFile(agent.workspace, "files of an agent are deleted by hand only")
    return DeletedAgent(agent.id, len(agent.bindings), (left,) if delete_files else ())


@operation("agents.identity.set", scope="admin", needs_home=False)
def set_identity(services: Services, params: ChangeIdentity, caller: Caller = LOCAL) -> ChangedIdentity:
    """Say who an agent is: in the config, which comes first, or in its IDENTITY.md."""
    agent = find_agent(agents_of(services), params.agent_id)
    files = WorkspaceFiles(Boundary(Path(agent.workspace)))
    said = {field: _value(field, value) for field in _FIELDS if (value := getattr(params, field)) is not UNSET}
    if params.from_file:
        found = read_identity(files)
        said = {**{field: value for field in _FIELDS if (value := getattr(found, field))}, **said}
    if not said:
        where = f"{IDENTITY} of {agent.id} says nothing" if params.from_file else "no change was given"
        raise BadRequest(where, hint="for example --name Ada --emoji 🦉, or --from-file")
    if params.file:
        _write_identity(files.boundary, said)
        written = str(files.boundary.root / IDENTITY)
    else:
        entry = {"identity": {field: value or None for field, value in said.items()}}
        edit_config(services, lambda text: with_agent(text, agent.id, entry, (agent.id,)), caller)
        written = str(services.home.config_path)
    now = find_agent(agents_of(services), agent.id).identity
    hidden = tuple(field for field, value in said.items() if value and getattr(now, field) != value)
    return ChangedIdentity(agent.id, now, written, hidden)


def _no_workspace_by_call() -> BadRequest:
    return BadRequest(
        "the workspace of an agent cannot be set by a call: its tools could then write there",
        hint="`pal config set` names another workspace",
    )


def _new_id(params: NewAgent, known: Sequence[str]) -> str:
    agent = params.id.strip() or _made_id(_name(params.name))
    if not AGENT_ID.fullmatch(agent):
        made = re.sub(r"[^a-z0-9_]+", "-", agent.lower()).strip("-_")[:64]
        example = f", for example {made}" if AGENT_ID.fullmatch(made) else ""
        raise BadRequest(f"not an agent's id: {agent[:80]!r}", hint=f"a to z, 0 to 9, - and _, at most 64{example}")
    if agent in known:
        raise BadRequest(f"there is an agent {agent!r} already", hint="give it another name")
    if len(known) >= MOST_AGENTS:
        raise BadRequest(f"there are {len(known)} agents, and {MOST_AGENTS} is the limit")
    return agent


def _made_id(name: str) -> str:
    made = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-_")[:64]
    if not AGENT_ID.fullmatch(made):
        raise BadRequest(f"no id can be made of {name!r}", hint="it needs a letter or digit of a to z, 0 to 9")
    return made


def _said(loaded: LoadedConfig, params: NewAgent, agent: str) -> dict[str, Any]:
    """What the new entry says by itself."""
    if params.model:
        usable_model(loaded, catalog_of(loaded.config), params.model)
    name = {"name": _name(params.name)} if params.name else {}
    return {"id": agent, **name, **_options(params.model or UNSET, params.emoji or UNSET)}


def _taken_over(loaded: LoadedConfig, source: str) -> dict[str, Any]:
    """The entry of another agent, without what makes it that agent."""
    found: dict[str, Any] = {}
    for place in reversed(loaded.config.own_places.get(source, [])):
        found = merged(found, dig(loaded.raw, place))
    identity = {key: value for key, value in (found.get("identity") or {}).items() if key != "name"}
    rest = {key: value for key, value in found.items() if key not in (*_OWN, "identity")}
    return {**rest, "identity": identity} if identity else rest


def _chosen_workspace(services: Services, loaded: LoadedConfig, agent: str, named: str) -> str:
    """The folder to write into the entry; empty when the usual one will do. Raises BadRequest."""
    home = services.home
    others = {each: agent_settings(loaded.config, home, each).workspace for each in agent_ids(loaded.config)}
    if named:
        wanted = home.expand(named, home.root)
        _check_place(wanted, home.root, others)
        return str(wanted)
    # With agents.defaults.workspace the usual one is inside the default agent's, whose tools would read it.
    usual = home.root / f"workspace-{agent}"
    _check_place(usual, home.root, others)
    return usual.name if any(dig(loaded.config.data, (*place, "workspace")) for place in SHARED) else ""


def _check_place(wanted: Path, root: Path, others: dict[str, Path]) -> None:
    place, home = (Path(os.path.realpath(path)) for path in (wanted, root))
    usual = place.parent == home and place.name.startswith("workspace-")
    if home.is_relative_to(place) or (place.is_relative_to(home) and not usual):
        where = "around" if home.is_relative_to(place) and home != place else "inside"
        raise BadRequest(f"{wanted} is {where} the home {root}", hint="choose a folder apart from it, or leave it out")
    for agent, workspace in others.items():
        real = Path(os.path.realpath(workspace))
        if home.is_relative_to(real) and place.is_relative_to(home):
            continue  # tools of an agent that lives around the home do not see the home
        if place == real:
            raise BadRequest(f"{wanted} is the workspace of {agent}", hint="each agent needs a folder of its own")
        if place.is_relative_to(real) or real.is_relative_to(place):
            inside = "inside" if place.is_relative_to(real) else "around"
            raise BadRequest(f"{wanted} is {inside} the workspace of {agent}", hint="choose a folder apart from it")
    if os.path.lexists(place) and not place.is_dir():
        raise BadRequest(f"{wanted} is not a folder", hint="choose another one")


def _make_default(services: Services, agent: str, caller: Caller) -> None:
    """Mark one agent as the default, and write down folders that would otherwise follow the mark."""
    loaded = load_config(services.home, services.env)
    before = default_agent(loaded.config)
    if agent == before:
        return
    known = agent_ids(loaded.config)
    for each in (before, agent):
        if not any(dig(loaded.raw, (*place, "workspace")) for place in loaded.config.own_places.get(each, [])):
            folder = agent_settings(loaded.config, services.home, each).workspace
            inside = folder.is_relative_to(services.home.root)
            said = str(folder.relative_to(services.home.root) if inside else folder)
            edit_config(services, _setting(each, {"workspace": said}, known), LOCAL)
            seed_workspace(folder)  # a folder that is named must be there

    def edit(text: str) -> str:
        for each in known:
            text = with_agent(text, each, {"default": True if each == agent else None}, known)
        return text

    edit_config(services, edit, caller)


def _setting(agent: str, entry: dict[str, Any], known: Sequence[str]) -> Any:
    return lambda text: with_agent(text, agent, entry, known)


def _furnish(services: Services, agent: str, params: NewAgent, source: str) -> SeedReport:
    """The files of the template, then those of the agent that it comes from."""
    config = load_config(services.home, services.env).config
    settings = agent_settings(config, services.home, agent)
    report = seed_workspace(
        settings.workspace,
        skip_bootstrap=settings.skip_bootstrap,
        skip_optional=settings.skip_optional_bootstrap_files,
        kind=params.template,
    )
    if not source:
        return report
    origin = Boundary(agent_settings(config, services.home, source).workspace)
    copied = _copy_files(origin, Boundary(settings.workspace), set(report.created), with_memory=params.with_memory)
    return SeedReport((*dict.fromkeys((*report.created, *copied)),), report.kept, report.git_initialised)


def _copy_files(source: Boundary, target: Boundary, fresh: set[str], *, with_memory: bool) -> list[str]:
    """Only what the template has just made is replaced; whatever else is there stays."""
    copied = []
    for name in [*TEMPLATES, *_walk(source, SKILLS), *(_notes(source) if with_memory else ())]:
        try:
            with source.open_file(name) as file:
                data, mode = file.read(), 0o700 if file.stat.st_mode & 0o100 else 0o600
        except (NotFound, WorkspaceError):
            continue
        if name in fresh:
            rewrite(target, name, lambda *_, data=data: data, create=True)
            copied.append(name)
        elif create_file(target, name, data, mode=mode):
            copied.append(name)
    if FIRST_RUN in fresh and source.stat_names((FIRST_RUN,)) == (None,):  # the agent knows who it is
        delete_file(target, FIRST_RUN, lambda *_: None)
    return copied


def _walk(source: Boundary, folder: str) -> list[str]:
    try:
        return list(source.walk(folder, max_files=MOST_COPIED).files)
    except (NotFound, WorkspaceError):
        return []


def _notes(source: Boundary) -> list[str]:
    return [*MEMORY_FILES, *(name for name in _walk(source, MEMORY_DIRECTORY) if name.endswith(".md"))]


def _write_identity(boundary: Boundary, said: dict[str, str]) -> None:
    def change(path: str, before: bytes | None) -> bytes:
        text = (before or b"# Identity\n").decode(errors="replace")
        for field, value in said.items():
            text = _with_label(text, field, value)
        if before and before != text.encode():
            keep_backup(boundary, path, before, SystemClock().now_ms())
        return text.encode()

    rewrite(boundary, IDENTITY, change, create=True)


def _with_label(text: str, field: str, value: str) -> str:
    """The text with `- Field: value` in place of the last line of that label, or behind the others."""
    lines = text.rstrip("\n").split("\n")
    found = [at for at, line in enumerate(lines) if labelled(line)[0] == field]
    new = f"- {field.title()}: {value}".rstrip()
    if found:
        lines[found[-1]] = new
        lines = [line for at, line in enumerate(lines) if at not in found[:-1]]
    else:
        lines.append(new)
    return "\n".join(lines) + "\n"


def with_agent(text: str, agent: str, entry: dict[str, Any], known: Sequence[str]) -> str:
    """The entry where this config keeps its agents. A config that names none has one, which must not vanish."""
    agents = parse(text).get("agents") or {}
    own = {key: value for key, value in entry.items() if key != "id"}
    spelled = next((name for name in agents.get("entries") or {} if name.strip().lower() == agent), None)
    if spelled is not None:
        return _put(text, ("agents", "entries", spelled), agents["entries"][spelled], own)
    listed = agents.get("list") or []
    at = next((at for at, each in enumerate(listed) if _listed_id(each) == agent), None)
    if at is not None:
        return _put(text, ("agents", "list", at), listed[at], own)
    if agents.get("entries") and not listed:
        return _put(text, ("agents", "entries", agent), None, own)
    if not listed and agent not in known:
        text = _put(text, ("agents", "list", 0), None, {"id": known[0], "default": True})
        return _put(text, ("agents", "list", 1), None, {"id": agent, **own})
    return _put(text, ("agents", "list", len(listed)), None, {"id": agent, **own})


def _listed_id(entry: Any) -> str:
    return str(entry.get("id")).strip().lower() if isinstance(entry, dict) else ""


def _without_agent(text: str, agent: str) -> str:
    agents = parse(text).get("agents") or {}
    edited = text
    for at, each in reversed(list(enumerate(agents.get("list") or []))):
        edited = drop(edited, ("agents", "list", at)) if _listed_id(each) == agent else edited
    for name in agents.get("entries") or {}:
        edited = drop(edited, ("agents", "entries", name)) if name.strip().lower() == agent else edited
    if edited == text:
        raise ConfigError(f"{agent} comes from an included file", hint="take it out there")
    return edited


def _put(text: str, path: tuple[str | int, ...], before: Any, entry: dict[str, Any]) -> str:
    """The text with the entry merged into what is at a path, key by key, so that comments between keys stay."""
    if not isinstance(before, dict):
        return put(text, path, json.loads(json.dumps(merged(None, entry))))
    for key, value in entry.items():
        if value is None:
            text = drop(text, (*path, key)) if key in before else text
        elif merged(before.get(key), value) != before.get(key):
            text = put(text, (*path, key), json.loads(json.dumps(merged(before.get(key), value))))
    return text


def _options(model: str | UnsetType | None, emoji: str | UnsetType) -> dict[str, Any]:
    chosen: dict[str, Any] = {} if model is UNSET else {"model": model or None}
    return chosen if emoji is UNSET else {**chosen, "identity": {"emoji": emoji[:16] or None}}


def _name(name: str) -> str:
    shown = " ".join(name.split())
    if not shown or len(shown) > MAX_NAME or not shown.isprintable():
        raise BadRequest(f"not a name for an agent: {name[:80]!r}", hint=f"some words, at most {MAX_NAME} characters")
    return shown


def _value(field: str, value: str) -> str:
    plain = " ".join(value.split())
    if len(plain) > MAX_VALUE or not plain.isprintable():
        raise BadRequest(f"not a value for {field}: {value[:80]!r}", hint=f"one line, at most {MAX_VALUE} characters")
    return plain
