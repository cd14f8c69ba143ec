"""Describes agents to OpenClaw's clients: identity, models, collections, slash commands, tools, and the schema of the
config.

agents.*, config.*, credentials.* and models.set are operations in OpenClaw's shape already. The folders that memory
reads are decided on the machine, so there is no method that adds one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Struct

from palinurus import __version__
from palinurus.agent.agent import agent_identity
from palinurus.config.schema import json_schema
from palinurus.dispatch.commands import COMMANDS, DIRECTIVES, SKILL
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import NotOffered
from palinurus.domain.identity import AgentIdentity
from palinurus.domain.tool import Tool
from palinurus.gateway.auth.protected_config import protected_paths
from palinurus.gateway.http.invoke import Invocations, InvokeTool
from palinurus.gateway.websocket.methods import ClientSession, method
from palinurus.operations.memory_collections import ListedCollection
from palinurus.operations.memory_collections import list_collections as list_collections_of
from palinurus.operations.models import ListedModel, list_known_models
from palinurus.operations.shapes import From, made_of
from palinurus.operations.tools import ToolAccess, list_tools
from palinurus.providers.catalog import Price
from palinurus.sessions.transcript import timestamp
from palinurus.skills.offer import shortened
from palinurus.skills.requirements import MissingRequirements
from palinurus.skills.skills import Skills, SkillState
from palinurus.tools.tool_names import PROFILES, allowed_by, group_of
from palinurus.workspace.pictures import avatar_url


class IdentityReply(AgentIdentity, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    agent_id: str
    avatar_url: str = ""  # the picture as a data URL; a remote address is not fetched


class ModelRow(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: Annotated[str, From("info.id")]
    name: str
    provider: Annotated[str, From("info.provider")]
    available: Annotated[bool, From("usable")]
    reasoning: Annotated[bool, From("info.reasoning")]
    input: Annotated[tuple[str, ...], From("info.inputs")]
    alias: str = ""
    context_window: int | None = None
    max_tokens: int | None = None
    unavailable_reason: Annotated[str, From("lacks")] = ""
    cost: Annotated[Price | None, From("info.price")] = None  # US dollars per million tokens; absent: unknown


class ModelRows(Struct, frozen=True):
    models: tuple[ModelRow, ...]


class Collections(Struct, frozen=True):
    collections: tuple[ListedCollection, ...]


class SlashCommand(Struct, frozen=True, omit_defaults=True):
    name: str
    words: str  # how it is written
    meaning: str
    skill: str = ""  # the one that it calls


class SlashCommands(Struct, frozen=True):
    commands: tuple[SlashCommand, ...]


@method("agent.identity.get", scope="read")
async def get_identity(client: ClientSession, agent_id: str = "", session_key: str = "") -> IdentityReply:
    """Show how an agent calls itself."""
    services = client.services
    place = Inbound("", "", session_key=session_key, agent=agent_id)
    agent = services.agents.get((await services.dispatcher.place(place)).agent)
    said = await asyncio.to_thread(agent_identity, agent)
    picture = await asyncio.to_thread(avatar_url, said.avatar, agent.files.boundary)
    return IdentityReply(agent_id=agent.id, avatar_url=picture, **msgspec.structs.asdict(said))


@method("models.list", scope="read")
async def list_models(
    client: ClientSession,
    view: Literal["default", "configured", "provider-config", "all"] = "default",
    provider: str = "",
) -> ModelRows:
    """Models that can be asked, or all."""
    listed = await list_known_models(client.services, everything=view == "all")
    return ModelRows(tuple(_model_row(each) for each in listed if provider.lower() in ("", each.info.provider)))


def _model_row(listed: ListedModel) -> ModelRow:
    info, alias = listed.info, listed.aliases[0] if listed.aliases else ""
    sizes = {"context_window": info.context_window or None, "max_tokens": info.max_output or None}
    return made_of(ModelRow, listed, name=info.name or info.id, alias=alias, **sizes)


@method("memory.collections.list", scope="read")
async def list_collections(client: ClientSession, agent_id: str = "") -> Collections:
    """Folders that memory searches besides the workspace."""
    return Collections(await list_collections_of(client.services, agent=agent_id.strip().lower()))


@method("commands.list", scope="read")
async def list_commands(
    client: ClientSession, agent_id: Annotated[str, "Whose skills; empty: the default one's."] = ""
) -> SlashCommands:
    """Words behind a slash."""
    services = client.services
    known = {**COMMANDS, **DIRECTIVES}
    own = [SlashCommand(name, each.words, each.meaning) for name, each in known.items()]
    try:
        skills = services.skills(agent_id.strip().lower() or services.agents.default)
    except NotOffered:  # a home without skills
        return SlashCommands(tuple(own))
    listed = await asyncio.to_thread(lambda: skills.listing().commands)
    called = [
        SlashCommand(command, f"/{command} [words]", skill.about.description, skill.name)
        for command, skill in listed.items()
    ]
    by_name = SlashCommand("skill", SKILL.words, SKILL.meaning)
    return SlashCommands((*own, *((by_name, *called) if called else ())))


class SkillRow(Struct, frozen=True, rename="camel"):
    name: str
    description: str
    source: str
    bundled: bool
    file_path: str
    base_dir: str
    skill_key: str
    always: bool
    disabled: bool
    blocked_by_allowlist: bool
    eligible: bool
    model_visible: bool
    user_invocable: bool
    command_visible: bool
    requirements: MissingRequirements
    missing: MissingRequirements
    install: tuple[dict[str, Any], ...]
    emoji: str = ""
    homepage: str = ""
    primary_env: str = ""
    config_checks: tuple[str, ...] = ()


class SkillRows(Struct, frozen=True, rename="camel"):
    agent_id: str
    workspace_dir: str  # for admins, as the next one
    managed_skills_dir: str
    skills: tuple[SkillRow, ...]


@method("skills.status", scope="read")
async def list_skills(client: ClientSession, agent_id: str = "") -> SkillRows:
    """The skills of an agent, what they need and what is missing."""
    services = client.services
    agent = services.agents.get(agent_id.strip().lower() or services.agents.default).id
    skills = services.skills(agent)
    rows = await asyncio.to_thread(lambda: tuple(_skill_row(each, skills) for each in skills.listing().states))
    shown = client.principal.may("admin")
    folders = (skills.workspace, str(services.home.root / "skills")) if shown else ("", "")
    return SkillRows(agent, *folders, rows)


def _skill_row(state: SkillState, skills: Skills) -> SkillRow:
    skill, about, usable = state.skill, state.skill.about, state.verdict.usable
    place = shortened(skill.location, skills.user_home)
    return SkillRow(
        about.name,
        about.description,
        f"openclaw-{skill.tier}",
        skill.tier == "bundled",
        place,
        place.rpartition("/")[0],
        skill.key,
        about.always,
        not usable and not state.verdict.missing,
        blocked_by_allowlist=False,
        eligible=usable,
        model_visible=state.offered,
        user_invocable=about.user_invocable,
        command_visible=bool(state.command),
        requirements=made_of(MissingRequirements, about.requires, os=about.os),
        missing=state.verdict.missing,
        install=tuple(
            {"id": each.id, "kind": each.kind, "label": each.label, "bins": each.bins} for each in about.install
        ),
        emoji=about.emoji,
        homepage=about.homepage,
        primary_env=about.primary_env,
    )


class ConfigSchema(Struct, frozen=True, rename="camel"):
    schema: dict[str, Any]
    ui_hints: dict[str, Any]
    version: str
    generated_at: str


@method("config.schema", scope="admin")
async def get_config_schema(client: ClientSession) -> ConfigSchema:
    """The JSON Schema of the config."""
    return ConfigSchema(json_schema(), protected_paths(), __version__, timestamp(client.services.clock.now_ms()))


Source = Literal["core", "mcp"]
LABELS = {"fs": "Files", "runtime": "Commands", "ui": "Screen", "plugins": "MCP servers"}


class Profile(Struct, frozen=True):
    id: str
    label: str


class NamedSource(Struct, frozen=True, rename="camel"):
    id: str
    label: str
    source: Source


class CatalogTool(NamedSource, frozen=True, rename="camel"):
    description: str
    default_profiles: tuple[str, ...]


class CatalogGroup(NamedSource, frozen=True):
    tools: tuple[CatalogTool, ...]


class ToolCatalog(Struct, frozen=True, rename="camel"):
    agent_id: str
    profiles: tuple[Profile, ...]
    groups: tuple[CatalogGroup, ...]


class EffectiveTool(NamedSource, frozen=True, rename="camel"):
    description: str
    raw_description: str


class EffectiveGroup(NamedSource, frozen=True):
    tools: tuple[EffectiveTool, ...]


class EffectiveTools(Struct, frozen=True, rename="camel"):
    agent_id: str
    session_key: str
    sandboxed: bool
    groups: tuple[EffectiveGroup, ...]


class ToolFailure(Struct, frozen=True):
    code: str
    message: str


class ToolInvoked(Struct, frozen=True, rename="camel", omit_defaults=True):
    ok: bool
    tool_name: str
    source: Source
    output: dict[str, Any] | None = None
    error: ToolFailure | None = None


@method("tools.catalog", scope="read")
async def show_catalog(client: ClientSession, agent_id: str = "") -> ToolCatalog:
    """All tools of an agent, allowed or not."""
    services = client.services
    agent = services.agents.get(agent_id.strip().lower() or services.agents.default).id
    groups: dict[str, list[CatalogTool]] = {}
    for tool in await services.toolsets.tools(agent):
        groups.setdefault(group_of(tool.spec.name) or "other", []).append(_in_catalog(tool))
    profiles = tuple(Profile(name, name.capitalize()) for name in PROFILES)
    return ToolCatalog(agent, profiles, tuple(_group(name, found) for name, found in sorted(groups.items())))


def _group(name: str, found: list[CatalogTool]) -> CatalogGroup:
    source: Source = "mcp" if all(tool.source == "mcp" for tool in found) else "core"
    return CatalogGroup(name, LABELS.get(name, name.capitalize()), source, tuple(found))


def _in_catalog(tool: Tool) -> CatalogTool:
    name = tool.spec.name
    profiles = tuple(profile for profile, listed in PROFILES.items() if allowed_by(listed, name))
    return CatalogTool(name, _label(name), _source(name), tool.spec.description, profiles)


@method("tools.effective", scope="read")
async def show_effective_tools(client: ClientSession, session_key: str, agent_id: str = "") -> EffectiveTools:
    """Tools that a session may use."""
    listed = await list_tools(client.services, agent=agent_id.strip().lower(), session_key=session_key)
    allowed = [tool for tool in listed.tools if tool.allowed]
    groups = (_effective_group("core", "Built in", allowed), _effective_group("mcp", "MCP servers", allowed))
    agent = listed.session_key.split(":")[1]
    return EffectiveTools(agent, listed.session_key, listed.sandboxed, tuple(each for each in groups if each.tools))


@method("tools.invoke", scope="write")
async def invoke_tool(client: ClientSession, params: InvokeTool, idempotency_key: str = "") -> ToolInvoked:
    """Call a tool, under the policy of its agent and the limits of /tools/invoke."""
    # A tool that fails is a result; one that this route does not offer is an error, as on HTTP.
    wanted = msgspec.structs.replace(params, idempotency_key=idempotency_key)
    reply = await Invocations(client.gateway).invoke(client.principal, wanted)
    body = msgspec.json.decode(reply.body)
    name = params.tool or params.name
    if reply.status == 200:
        return ToolInvoked(True, name, _source(name), body["result"])
    return ToolInvoked(False, name, _source(name), error=ToolFailure(body["code"], body["detail"]))


def _effective_group(source: Source, label: str, allowed: Iterable[ToolAccess]) -> EffectiveGroup:
    own = ((tool.name, tool.description) for tool in allowed if _source(tool.name) == source)
    rows = (EffectiveTool(name, _label(name), source, about.strip().partition("\n")[0], about) for name, about in own)
    return EffectiveGroup(source, label, source, tuple(rows))


def _source(name: str) -> Source:
    return "mcp" if "__" in name else "core"  # <server>__<tool>


def _label(name: str) -> str:
    return name.replace("__", ": ").replace("_", " ")
