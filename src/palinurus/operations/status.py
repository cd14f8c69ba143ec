"""How things stand: the home, the model, a session, and what its prompt costs."""

from __future__ import annotations

import os

from msgspec import Struct

from palinurus import __version__
from palinurus.agent.turn import context_for, gather
from palinurus.context.report import ContextReport, context_report
from palinurus.domain.errors import NotFound
from palinurus.domain.keys import SessionKey
from palinurus.operations.house import House
from palinurus.operations.table import Operation
from palinurus.sessions.session import Session


class AskStatus(Struct, frozen=True):
    agent: str = ""


class Status(Struct, frozen=True, rename="camel"):
    version: str
    home: str
    config: str
    agent: str
    agents: tuple[str, ...]
    workspace: str
    model: str
    model_reason: str
    holder_pid: int
    busy: int
    sessions: tuple[Session, ...]
    warnings: tuple[str, ...]


class AskContext(Struct, frozen=True):
    session_key: str = ""


async def _status(house: House, params: AskStatus) -> Status:
    agent = house.agents.get(params.agent or house.agents.default)
    _, route = await agent.choose_model("")
    return Status(
        version=__version__,
        home=str(house.home.root),
        config=str(house.home.config_path),
        agent=agent.id,
        agents=tuple(house.agents.ids),
        workspace=agent.context.prompt.workspace,
        model=f"{route.provider}/{route.model}",
        model_reason=route.reason,
        holder_pid=os.getpid(),
        busy=house.dispatcher.busy,
        sessions=tuple(await house.sessions.recent(limit=5)),
        warnings=house.warnings(),
    )


async def _context(house: House, params: AskContext) -> ContextReport:
    key = SessionKey.parse(params.session_key) if params.session_key else SessionKey.main(house.agents.default)
    if key.agent not in house.agents.ids:
        raise NotFound(f"there is no agent {key.agent!r}", hint=f"configured: {', '.join(house.agents.ids)}")
    agent = house.agents.get(key.agent)
    view = await house.turns.view_of(key)
    provider, route = await agent.choose_model(view.model)
    gathered = gather(agent, key, route, house.clock)
    return context_report(str(key), view, gathered, context_for(agent, key), provider.context_window(route.model))


STATUS = Operation("status", AskStatus, Status, "read", _status)
CONTEXT = Operation("context.show", AskContext, ContextReport, "read", _context)
OPERATIONS = (STATUS, CONTEXT)
