"""How things stand: the home, the model, a session, and what its prompt costs."""

from __future__ import annotations

import os
from typing import Annotated

import msgspec
from msgspec import Struct

from palinurus import __version__
from palinurus.agent.agent import Agent, agent_identity
from palinurus.agent.gathering import context_for, gather, in_session
from palinurus.context.report import ContextReport, TokenPrice, context_report
from palinurus.dispatch.delivery import Standing
from palinurus.dispatch.preferences import describe
from palinurus.domain.clock import local_time, time_text
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import WorkspaceError
from palinurus.domain.identity import AgentIdentity
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Usage
from palinurus.ledger.usage import grand_total
from palinurus.operations.house import House
from palinurus.operations.operation import Private, operation
from palinurus.sandbox.description import describe_access, where_commands_run
from palinurus.sessions.session import Preferences, Session

OfSession = Annotated[str, "Which conversation; the main one when left out."]  # by its key or its name
OfAgent = Annotated[str, Private, "Whose main conversation, when none is named."]


class Status(Struct, frozen=True, rename="camel"):
    """Of a house that cannot be entered only the first three are known, and its troubles."""

    version: str
    home: str
    config: str
    agent: str = ""
    agents: tuple[str, ...] = ()
    workspace: str = ""
    model: str = ""
    model_reason: str = ""
    holder_pid: int = 0
    busy: int = 0
    sessions: tuple[Session, ...] = ()
    warnings: tuple[str, ...] = ()
    deliveries: Standing = Standing()
    identity: AgentIdentity = AgentIdentity()  # of the agent: config and IDENTITY.md
    troubles: tuple[str, ...] = ()  # what keeps the agent from answering, one line each


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


@operation("status", scope="read")
async def show_status(
    house: House, agent: Annotated[str, "Which agent; the default one when left out."] = ""
) -> Status:
    """Show how things stand: home, workspace, model, sessions."""
    agent_id = agent or house.agents.default
    _, route = await house.models.choose(agent_id)
    workspace, identity, troubles = _lodging(house, agent_id)
    return Status(
        version=__version__,
        home=str(house.home.root),
        config=str(house.home.config_path),
        agent=agent_id,
        agents=tuple(house.agents.ids),
        workspace=workspace,
        model=f"{route.provider}/{route.model}",
        model_reason=route.reason,
        holder_pid=os.getpid(),
        busy=house.dispatcher.busy,
        sessions=tuple(await house.sessions.recent(limit=5)),
        warnings=(*house.warnings(), *house.turns.upkeep.engines.warnings),
        deliveries=await house.deliveries.standing(),
        identity=identity,
        troubles=troubles,
    )


def _lodging(house: House, agent_id: str) -> tuple[str, AgentIdentity, tuple[str, ...]]:
    """The workspace of an agent, who it is, and what is wrong with it."""
    try:
        agent = house.agents.get(agent_id)
    except WorkspaceError as error:
        return str(house.workspace(agent_id)), AgentIdentity(), (str(error),)
    return agent.context.prompt.workspace, agent_identity(agent), ()


@operation("context.show", scope="read")
async def show_context(house: House, session_key: OfSession = "", agent: OfAgent = "") -> ContextReport:
    """Show what the prompt is made of: size on disk, size as sent, tokens.

    Example:
      pal context --session-key agent:main:main
    """
    key, found = await _place(house, session_key, agent)
    there = await in_session(found, key)
    view = await house.turns.view_of(key)
    provider, route = await there.choose_model(view.model)
    hands = await there.hands(key, route, provider.context_window(route.model))
    gathered = gather(there, key, hands.specs(), route, house.clock)
    window = provider.context_window(route.model)
    report = context_report(str(key), view, gathered, context_for(there, key), window)
    workspace = f"{there.context.prompt.workspace}, {describe_access(house.hands.quarters(key))}"
    return msgspec.structs.replace(report, price=_price(there, route.provider, route.model), workspace=workspace)


def _price(agent: Agent, provider: str, model: str) -> TokenPrice | None:
    """What a million tokens of each kind cost."""
    million = 1_000_000
    kinds = (Usage(input=million), Usage(output=million), Usage(cache_read=million), Usage(cache_write=million))
    prices = [price for kind in kinds if (price := agent.cost(provider, model, kind)) is not None]
    return TokenPrice(*prices) if len(prices) == len(kinds) else None


@operation("status.session", scope="read")
async def show_session_status(house: House, session_key: OfSession = "", agent: OfAgent = "") -> SessionStanding:
    """Show one session at a glance: its model, how full it is, what it cost."""
    key, found = await _place(house, session_key, agent)
    provider, route = await found.choose_model((await house.turns.view_of(key)).model)
    session = await house.sessions.find(key)
    if session is None:
        return SessionStanding(str(key), f"{route.provider}/{route.model}", provider.context_window(route.model))
    spent = grand_total(await house.usage.totals("session", zone=house.clock.zone, session=str(key)))
    return SessionStanding(
        session_key=str(key),
        model=f"{route.provider}/{route.model}",
        window=provider.context_window(route.model),
        context_tokens=session.context_tokens,
        cost=spent.cost,
        unpriced=spent.unpriced,
        verbose=session.preferences.verbose_level,
        reasoning=session.preferences.reasoning_level,
    )


async def session_report(house: House, key: SessionKey) -> str:
    """A session at a glance: what `/status` says to a person, and session_status to a model."""
    standing = await show_session_status(house, session_key=str(key))
    session = await house.sessions.find(key)
    view = await house.turns.view_of(key)
    agent = house.agents.get(key.agent)
    _, route = await agent.choose_model(view.model)
    preferences = session.preferences if session else Preferences()
    why = "chosen for this session" if view.model else route.reason or "chosen"
    lines = (
        ("session", str(key)),
        ("time", time_text(local_time(house.clock), twelve_hours=agent.context.twelve_hours)),
        ("model", f"{standing.model} ({why}), thinking {view.thinking or route.thinking}"),
        ("context", f"{standing.context_tokens:,} of {standing.window:,} tokens at the last call"),
        ("used", _used(standing, session)),
        ("history", _compactions(session)),
        ("running", f"{len(house.dispatcher.runs.active(key))} here, {house.dispatcher.busy} in all"),
        ("chosen", describe(preferences, house.agents.queue("cli"))),
        ("commands", await _where_commands_run(house, key)),
    )
    return "\n".join(f"{name:<8} {told}" for name, told in lines)


def _compactions(session: Session | None) -> str:
    count = session.compaction_count if session else 0
    return f"{count} {'compaction' if count == 1 else 'compactions'}"


def _used(standing: SessionStanding, session: Session | None) -> str:
    if session is None:
        return "nothing yet"
    unpriced = f", {standing.unpriced:,} calls without a known price" if standing.unpriced else ""
    return f"{session.input_tokens:,} tokens in, {session.output_tokens:,} out, ${standing.cost:.4f}{unpriced}"


async def _where_commands_run(house: House, key: SessionKey) -> str:
    place = house.hands.quarters(key)
    if place.sandboxed == "no":
        return "on the host"
    walls = await house.hands.sandbox(key.agent).check()
    match where_commands_run(place, walls):
        case "nowhere":
            return f"refused: {walls.why}"
        case "host":
            return f"on the host, where they ask: {walls.why}"
    network = "with" if place.network else "no"
    return f"in the sandbox ({walls.name}), workspace {describe_access(place)}, {network} network"


async def _place(house: House, session_key: str, agent: str) -> tuple[SessionKey, Agent]:
    """The session that is meant, the main one when none is named, and its agent. Raises NotFound."""
    key = await house.dispatcher.place(Inbound("", "", session_key=session_key, agent=agent))
    return key, house.agents.get(key.agent)


OPERATIONS = (show_status, show_context, show_session_status)
