"""How things stand: the home, the model, a session, and what its prompt costs."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Struct

from palinurus import __version__
from palinurus.context.report import ContextReport, TokenPrice, context_report
from palinurus.context.view import View
from palinurus.dispatch.delivery import DeliveryCounts
from palinurus.dispatch.directives import describe
from palinurus.domain.clock import local_time, time_text
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import WorkspaceError
from palinurus.domain.identity import AgentIdentity
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Usage
from palinurus.ledger.usage import grand_total
from palinurus.operations.agents import AgentSummary, agents_of
from palinurus.operations.operation import Private, operation
from palinurus.operations.services import Services
from palinurus.operations.table import mcp_tool
from palinurus.sandbox.environment import describe_access, where_commands_run
from palinurus.sessions.session import Preferences, Session

if TYPE_CHECKING:
    from palinurus.agent.agent import Agent

OfSession = Annotated[str, "Which session. Default: the main session."]  # by its key or its name
OfAgent = Annotated[str, Private, "Whose main conversation, when none is named."]


class Status(Struct, frozen=True, rename="camel"):
    """Of a home that cannot be opened only the first three are known, and its troubles."""

    version: str
    home: str
    config: str
    agent: str = ""
    agents: tuple[str, ...] = ()
    others: tuple[AgentSummary, ...] = ()  # the other agents
    workspace: str = ""
    model: str = ""
    model_reason: str = ""
    holder_pid: int = 0
    busy: int = 0
    sessions: tuple[Session, ...] = ()
    warnings: tuple[str, ...] = ()
    deliveries: DeliveryCounts = DeliveryCounts()
    identity: AgentIdentity = AgentIdentity()  # of the agent: config and IDENTITY.md
    troubles: tuple[str, ...] = ()  # what keeps the agent from answering, one line each
    extensions: tuple[str, ...] = ()  # what they have to say, a line each


class SessionStanding(Struct, frozen=True, rename="camel"):
    """One session at a glance: what the status line of a chat is made of."""

    session_key: str
    model: str
    window: int
    context_tokens: int = 0  # at the last call
    cost: float = 0.0  # US dollars, of the calls whose price is known
    unpriced: int = 0  # calls that the cost leaves out
    verbose: str = ""  # off | on | full; empty: as the config says
    reasoning: str = ""  # off | on | stream


STATUS_TOOL = mcp_tool(
    "status",
    "How this home stands: its agents, the model, how many runs go on, what is odd.",
    ("agent", Annotated[str, "an agent; the default one when left out"], ""),
)


@operation("status", scope="read", mcp=STATUS_TOOL)
async def show_status(
    services: Services, agent: Annotated[str, "Which agent. Default: the default agent."] = ""
) -> Status:
    """Show how things stand: home, workspace, model, sessions."""
    agent_id = agent or services.agents.default
    _, route = await services.models.choose(agent_id)
    workspace, identity, troubles = _lodging(services, agent_id)
    return Status(
        version=__version__,
        home=str(services.home.root),
        config=str(services.home.config_path),
        agent=agent_id,
        agents=tuple(services.agents.ids),
        others=await asyncio.to_thread(_others, services, agent_id),
        workspace=workspace,
        model=f"{route.provider}/{route.model}",
        model_reason=route.reason,
        holder_pid=os.getpid(),
        busy=services.busy,
        sessions=tuple(await services.sessions.recent(agent=agent, limit=5, one_offs=False)),
        warnings=services.warnings(),
        deliveries=await services.deliveries.counts(),
        identity=identity,
        troubles=troubles,
        extensions=await services.status_lines(),
    )


def _others(services: Services, agent_id: str) -> tuple[AgentSummary, ...]:
    if len(services.agents.ids) < 2:
        return ()
    return tuple(each for each in agents_of(services).agents if each.id != agent_id)


def _lodging(services: Services, agent_id: str) -> tuple[str, AgentIdentity, tuple[str, ...]]:
    """The workspace of an agent, who it is, and what is wrong with it."""
    try:
        return *services.describe_agent(agent_id), ()
    except WorkspaceError as error:
        return str(services.workspace(agent_id)), AgentIdentity(), (str(error),)


@operation("context.show", scope="read")
async def show_context(services: Services, session_key: OfSession = "", agent: OfAgent = "") -> ContextReport:
    """Show the parts of the prompt: size on disk, size as sent, tokens.

    Example:
      pal context --session-key agent:main:main
    """
    from palinurus.agent.gather import add_hook_files, request_parts

    key, found = await _place(services, session_key, agent)
    there = await found.in_session(key)
    view = await services.turns.history.view_of(key)
    provider, route = await there.choose_model(view.model)
    offered = await there.tools(key, route, provider.context_window(route.model))
    plain = request_parts(there, key, offered.specs(), route, services.clock, Inbound("", ""))
    gathered = await add_hook_files(services.turns.hooks, there, key, View(), plain, private=key.is_private)
    window = provider.context_window(route.model)
    report = context_report(str(key), view, gathered, there.context, window)
    workspace = f"{there.context.prompt.workspace}, {describe_access(services.toolsets.environment(key))}"
    return msgspec.structs.replace(report, price=_price(there, route.provider, route.model), workspace=workspace)


def _price(agent: Agent, provider: str, model: str) -> TokenPrice | None:
    """What a million tokens of each kind cost."""
    million = 1_000_000
    kinds = (Usage(input=million), Usage(output=million), Usage(cache_read=million), Usage(cache_write=million))
    prices = [price for kind in kinds if (price := agent.cost(provider, model, kind)) is not None]
    return TokenPrice(*prices) if len(prices) == len(kinds) else None


@operation("status.session", scope="read")
async def show_session_status(services: Services, session_key: OfSession = "", agent: OfAgent = "") -> SessionStanding:
    """Show one session at a glance: its model, how full it is, what it cost."""
    key, found = await _place(services, session_key, agent)
    provider, route = await found.choose_model((await services.turns.history.view_of(key)).model)
    standing = SessionStanding(str(key), f"{route.provider}/{route.model}", provider.context_window(route.model))
    session = await services.sessions.find(key)
    if session is None:
        return standing
    spent = grand_total(await services.usage.totals("session", zone=services.clock.zone, session=str(key)))
    return msgspec.structs.replace(
        standing,
        context_tokens=session.context_tokens,
        cost=spent.cost,
        unpriced=spent.unpriced,
        verbose=session.preferences.verbose_level,
        reasoning=session.preferences.reasoning_level,
    )


async def session_report(services: Services, key: SessionKey) -> str:
    """A session at a glance: what `/status` says to a person, and session_status to a model."""
    standing = await show_session_status(services, session_key=str(key))
    session = await services.sessions.find(key)
    view = await services.turns.history.view_of(key)
    agent = services.agents.get(key.agent)
    _, route = await agent.choose_model(view.model)
    preferences = session.preferences if session else Preferences()
    compactions = session.compaction_count if session else 0
    why = "chosen for this session" if view.model else route.reason or "chosen"
    lines = (
        ("session", str(key)),
        ("time", time_text(local_time(services.clock), twelve_hours=agent.context.twelve_hours)),
        ("model", f"{standing.model} ({why}), thinking {view.thinking or route.thinking}"),
        ("context", f"{standing.context_tokens:,} of {standing.window:,} tokens at the last call"),
        ("used", _used(standing, session)),
        ("history", f"{compactions} {'compaction' if compactions == 1 else 'compactions'}"),
        ("running", f"{len(services.dispatcher.runs.active(key))} here, {services.dispatcher.busy} in all"),
        ("settings", describe(preferences, services.agents.queue("cli"))),
        ("commands", await _where_commands_run(services, key)),
    )
    return "\n".join(f"{name:<8} {told}" for name, told in lines)


def _used(standing: SessionStanding, session: Session | None) -> str:
    if session is None:
        return "nothing yet"
    unpriced = f", {standing.unpriced:,} calls without a known price" if standing.unpriced else ""
    return f"{session.input_tokens:,} tokens in, {session.output_tokens:,} out, ${standing.cost:.4f}{unpriced}"


async def _where_commands_run(services: Services, key: SessionKey) -> str:
    place = services.toolsets.environment(key)
    if place.sandboxed == "no":
        return "on the host"
    walls = await services.toolsets.sandbox(key.agent).check()
    match where_commands_run(place, walls):
        case "nowhere":
            return f"refused: {walls.why}"
        case "host":
            return f"on the host, where they ask: {walls.why}"
    network = "with" if place.network else "no"
    return f"in the sandbox ({walls.name}), workspace {describe_access(place)}, {network} network"


async def _place(services: Services, session_key: str, agent: str) -> tuple[SessionKey, Agent]:
    """The session that is meant, the main one when none is named, and its agent. Raises NotFound."""
    key = await services.dispatcher.place(Inbound("", "", session_key=session_key, agent=agent))
    return key, services.agents.get(key.agent)
