"""Talk to an agent: submit a message, follow the run, wait for it, stop it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct

from palinurus.dispatch.dispatcher import read_directives
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest
from palinurus.domain.events import RunEvent, RunResult
from palinurus.operations.bounds import Position, Seconds
from palinurus.operations.house import House
from palinurus.operations.table import Feed, Operation


class Accepted(Struct, frozen=True, rename="camel"):
    """The message is a committed row: it will not be lost."""

    run_id: str
    session_key: str
    accepted_at: int
    verbose: str = ""  # off | on | full: what the session, or the message, wants to be shown; empty: nothing said
    reasoning: str = ""  # off | on | stream


class Wait(Struct, frozen=True):
    run_id: str
    timeout: Seconds | None = None


class Follow(Struct, frozen=True):
    run_id: str
    after: Position = 0


class StopRuns(Struct, frozen=True):
    session_key: str = ""
    run_id: str = ""


class StoppedRuns(Struct, frozen=True):
    count: int


async def _submit(house: House, inbound: Inbound) -> Accepted:
    chosen = await house.turns.preferences(await house.dispatcher.place(inbound))
    run = await house.dispatcher.submit(inbound)  # from here on nothing may come between the caller and the answer
    now = read_directives(inbound)[0]
    verbose, reasoning = now.verbose or chosen.verbose_level, now.reasoning or chosen.reasoning_level
    return Accepted(run.id, str(run.key), run.accepted_at, verbose, reasoning)


async def _wait(house: House, params: Wait) -> RunResult:
    run = await house.dispatcher.find(params.run_id)
    return await run.wait(params.timeout)


async def _events(house: House, params: Follow) -> AsyncIterator[RunEvent]:
    run = await house.dispatcher.find(params.run_id)
    async for event in run.events(params.after):
        yield event


async def _stop(house: House, params: StopRuns) -> StoppedRuns:
    if not params.session_key and not params.run_id:
        raise BadRequest("whose run is to be stopped?", hint="name a session or a run")
    key = await house.dispatcher.place(Inbound("", "", session_key=params.session_key)) if params.session_key else None
    return StoppedRuns(house.dispatcher.stop(key, params.run_id))


# Whose words they are is said by a door of this machine; the gateway has methods that say it for their callers.
SUBMIT = Operation("agent.submit", Inbound, Accepted, "write", _submit, local=True)
WAIT = Operation("agent.wait", Wait, RunResult, "read", _wait)
EVENTS = Feed("agent.events", Follow, RunEvent, "read", _events)
STOP = Operation("agent.stop", StopRuns, StoppedRuns, "write", _stop)
OPERATIONS = (SUBMIT, WAIT, EVENTS, STOP)
