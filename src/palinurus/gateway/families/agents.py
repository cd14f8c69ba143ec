"""Agents in OpenClaw's shape: who there are, a new one, a changed one, one that leaves.

Their files (agents.files.*) are operations in OpenClaw's shape already: see operations/agent_files.py.
"""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import UNSET, Struct, UnsetType

from palinurus.agent.agent import agent_identity
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest
from palinurus.domain.identity import AgentIdentity
from palinurus.gateway.door.untouchable import check_change
from palinurus.gateway.talk.methods import Method, Talk
from palinurus.operations import roster
from palinurus.workspace.pictures import avatar_url


class AskAgents(Struct, frozen=True):
    pass


class ModelOf(Struct, frozen=True, omit_defaults=True):
    primary: str = ""
    fallbacks: tuple[str, ...] = ()


class ShownAgent(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    name: str
    workspace: str
    identity: AgentIdentity = AgentIdentity()
    model: ModelOf = ModelOf()
    thinking_default: str = ""


class ShownAgents(Struct, frozen=True, rename="camel"):
    default_id: str
    agents: tuple[ShownAgent, ...]
    main_key: str = "main"
    scope: str = "per-sender"


class CreateAgent(Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str
    workspace: str = ""
    model: str = ""
    emoji: str = ""
    idempotency_key: str = ""


class CreatedAgent(Struct, frozen=True, rename="camel", omit_defaults=True):
    agent_id: str
    name: str
    workspace: str
    ok: bool
    model: str = ""


class UpdateAgent(Struct, frozen=True, rename="camel", omit_defaults=True):
    agent_id: str
    name: str | UnsetType = UNSET
    workspace: str | UnsetType = UNSET
    model: str | UnsetType | None = UNSET
    emoji: str | UnsetType = UNSET
    idempotency_key: str = ""


class UpdatedAgent(Struct, frozen=True, rename="camel"):
    agent_id: str
    ok: bool = True


class DeleteAgent(Struct, frozen=True, rename="camel", omit_defaults=True):
    agent_id: str
    delete_files: bool = False
    idempotency_key: str = ""


class Kept(Struct, frozen=True):
    path: str
    reason: str


class DeletedAgent(Struct, frozen=True, rename="camel"):
    agent_id: str
    removed_bindings: int = 0
    failed: tuple[Kept, ...] = ()  # files that were to be deleted and are still there
    ok: bool = True


class AskIdentity(Struct, frozen=True, rename="camel"):
    agent_id: str = ""
    session_key: str = ""


class IdentityReply(AgentIdentity, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    agent_id: str
    avatar_url: str = ""  # the picture itself, as a data URL; an address elsewhere is not asked


async def _list(talk: Talk, _: AskAgents) -> ShownAgents:
    known = await asyncio.to_thread(roster.agents_list, talk.desk.ground)
    default = next(each.id for each in known if each.is_default)
    return ShownAgents(default, tuple(map(_shown, known)))


def _shown(agent: roster.AgentSummary) -> ShownAgent:
    model = ModelOf(agent.model, agent.fallbacks)
    return ShownAgent(agent.id, agent.name, agent.workspace, agent.identity, model, agent.thinking)


async def _create(talk: Talk, params: CreateAgent) -> CreatedAgent:
    _no_workspace(params.workspace)
    made = await asyncio.to_thread(
        lambda: roster.agent_add(talk.desk.ground, params.name, check_change, model=params.model, emoji=params.emoji)
    )
    return CreatedAgent(made.id, made.name, made.workspace, True, made.model)


async def _update(talk: Talk, params: UpdateAgent) -> UpdatedAgent:
    _no_workspace("" if params.workspace is UNSET else params.workspace)
    changed = await asyncio.to_thread(
        lambda: roster.agent_change(
            talk.desk.ground,
            params.agent_id,
            check_change,
            name=params.name,
            model=params.model,
            emoji=params.emoji,
        )
    )
    return UpdatedAgent(changed.id)


async def _delete(talk: Talk, params: DeleteAgent) -> DeletedAgent:
    gone = await asyncio.to_thread(roster.agent_remove, talk.desk.ground, params.agent_id)
    kept = Kept(gone.workspace, "files of an agent are deleted by hand only")
    return DeletedAgent(gone.id, failed=(kept,) if params.delete_files else ())


async def _identity(talk: Talk, params: AskIdentity) -> IdentityReply:
    house = talk.desk.house
    place = Inbound("", "", session_key=params.session_key, agent=params.agent_id)
    agent = house.agents.get((await house.dispatcher.place(place)).agent)
    said = await asyncio.to_thread(agent_identity, agent)
    picture = await asyncio.to_thread(avatar_url, said.avatar, agent.files.boundary)
    return IdentityReply(agent_id=agent.id, avatar_url=picture, **msgspec.structs.asdict(said))


def _no_workspace(wanted: str) -> None:
    if wanted:
        raise BadRequest(
            "where an agent lives is not set by a call: it would open that place to its hands",
            hint="`pal config set` names another workspace",
        )


METHODS = (
    Method("agents.list", AskAgents, ShownAgents, "read", _list, about="Who lives here."),
    Method("agents.create", CreateAgent, CreatedAgent, "admin", _create, about="A new agent, with a new workspace."),
    Method("agents.update", UpdateAgent, UpdatedAgent, "admin", _update, about="Its name, its emoji, its model."),
    Method(
        "agents.delete",
        DeleteAgent,
        DeletedAgent,
        "admin",
        _delete,
        about="Take an agent out of the config. Its files and conversations stay.",
    ),
    Method("agent.identity.get", AskIdentity, AgentIdentity, "read", _identity, about="How an agent calls itself."),
)
