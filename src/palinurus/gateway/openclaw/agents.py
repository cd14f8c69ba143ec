"""Describes agents to OpenClaw's clients: identity, models, collections, slash commands, and the schema of the config.

agents.*, config.*, credentials.* and models.set are operations in OpenClaw's shape already. The folders that memory
reads are decided on the machine, so there is no method that adds one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
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
from palinurus.gateway.auth.protected_config import protected_paths
from palinurus.gateway.websocket.methods import ClientSession, method
from palinurus.operations.memory_collections import ListedCollection
from palinurus.operations.memory_collections import list_collections as list_collections_of
from palinurus.operations.models import ListedModel, list_known_models
from palinurus.operations.shapes import From, made_of
from palinurus.providers.catalog import Price
from palinurus.sessions.transcript import timestamp
from palinurus.skills.skills import Skills
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
    wanted = [each for each in listed if provider.lower() in ("", each.info.provider)]
    return ModelRows(tuple(map(_choice, wanted)))


def _choice(listed: ListedModel) -> ModelRow:
    info = listed.info
    return made_of(
        ModelRow,
        listed,
        name=info.name or info.id,
        alias=listed.aliases[0] if listed.aliases else "",
        context_window=info.context_window or None,
        max_tokens=info.max_output or None,
    )


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
    called = await asyncio.to_thread(lambda: list(_called(skills)))
    by_name = SlashCommand("skill", SKILL.words, SKILL.meaning)
    return SlashCommands((*own, *((by_name, *called) if called else ())))


def _called(skills: Skills) -> Iterator[SlashCommand]:
    for command, skill in skills.listing().commands.items():
        yield SlashCommand(command, f"/{command} [words]", skill.about.description, skill.name)


class ConfigSchema(Struct, frozen=True, rename="camel"):
    schema: dict[str, Any]
    ui_hints: dict[str, Any]
    version: str
    generated_at: str


@method("config.schema", scope="admin")
async def get_config_schema(client: ClientSession) -> ConfigSchema:
    """The JSON Schema of the config."""
    return ConfigSchema(json_schema(), protected_paths(), __version__, timestamp(client.services.clock.now_ms()))


METHODS = (get_identity, list_models, list_collections, list_commands, get_config_schema)
