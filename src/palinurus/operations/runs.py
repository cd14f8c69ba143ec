"""Runs: submit a message, follow its run, wait for it, stop it; list runs and show what one did when."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Annotated

from msgspec import Meta, Struct

from palinurus.dispatch.dispatcher import read_directives
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, HolderLost, NotFound
from palinurus.domain.events import Lifecycle, RunEvent, RunResult
from palinurus.ledger.trace import RunLine, RunTrace, Status, line_of
from palinurus.operations.operation import Position, Positional, Seconds, operation
from palinurus.operations.services import Services
from palinurus.operations.table import OperationClient, mcp_tool
from palinurus.sessions.names import name_key


class AcceptedMessage(Struct, frozen=True, rename="camel"):
    """The message is a committed row: it will not be lost."""

    run_id: str
    session_key: str
    accepted_at: int
    verbose: str = ""  # off | on | full: what the session, or the message, wants to be shown; empty: nothing said
    reasoning: str = ""  # off | on | stream


class WaitForRun(Struct, frozen=True):
    run_id: str
    timeout: Seconds | None = None


class FollowRun(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: str
    after: Position = 0


class StopRuns(Struct, frozen=True, forbid_unknown_fields=True):
    session_key: str = ""
    run_id: str = ""


class StoppedRuns(Struct, frozen=True):
    count: int


WAITS = Annotated[float, Meta(ge=0, le=600), "how long to wait for the reply"]

SEND = mcp_tool(
    "message_send",
    "Say something to an agent of this home and wait for its reply. When the reply takes longer than `waitSeconds`, "
    "the status is `running`, and run_wait waits on. The same `idempotencyKey` and words again are the same message: "
    "nothing is said twice.",
    ("message", Annotated[str, Meta(min_length=1), "the words"]),
    ("session_key", Annotated[str, "the conversation; the agent's main one when left out"], ""),
    ("agent", Annotated[str, "the agent; the default one when left out"], ""),
    (
        "idempotency_key",
        Annotated[str, Meta(max_length=200), "new for each message, the same when one is sent again"],
        "",
    ),
    ("wait_seconds", WAITS, 50.0),  # clients commonly give up after a minute
    repeatable=False,
)

RUN_WAIT = mcp_tool(
    "run_wait",
    "Wait for the reply of a run that message_send has left running.",
    ("run_id", Annotated[str, Meta(min_length=1), "the run, as message_send tells it"]),
    ("wait_seconds", WAITS, 50.0),
)

RUN_STOP = mcp_tool(
    "run_stop",
    "Stop a run, or all that goes on in a conversation.",
    ("run_id", Annotated[str, "the run, as message_send tells it"], ""),
    ("session_key", Annotated[str, "all that goes on in this conversation"], ""),
    destructive=True,
)


@operation("agent.submit", scope="write", local=True, mcp=SEND)
async def submit_message(services: Services, inbound: Inbound) -> AcceptedMessage:
    """Accept a message for an agent. The gateway has methods of its own, which say who the sender is."""
    chosen = await services.turns.history.preferences(await services.dispatcher.place(inbound))
    run = await services.dispatcher.submit(inbound)  # from here on nothing may come between the caller and the answer
    now = read_directives(inbound)[0]
    verbose, reasoning = now.verbose or chosen.verbose_level, now.reasoning or chosen.reasoning_level
    return AcceptedMessage(run.id, str(run.key), run.accepted_at, verbose, reasoning)


@operation("agent.wait", scope="read", mcp=RUN_WAIT)
async def wait_for_run(services: Services, params: WaitForRun) -> RunResult:
    """Wait until a run has ended."""
    run = await services.dispatcher.find(params.run_id)
    return await run.wait(params.timeout)


@operation("agent.events", scope="read")
async def follow_run(services: Services, params: FollowRun) -> AsyncIterator[RunEvent]:
    """The events of a run, from one of them on."""
    run = await services.dispatcher.find(params.run_id)
    async for event in run.events(params.after):
        yield event


@operation("agent.stop", scope="write", mcp=RUN_STOP)
async def stop_runs(services: Services, params: StopRuns) -> StoppedRuns:
    """Stop a run, or all runs of a session."""
    if not params.session_key and not params.run_id:
        raise BadRequest("which run should be stopped?", hint="name a session or a run")
    key = (
        await services.dispatcher.place(Inbound("", "", session_key=params.session_key)) if params.session_key else None
    )
    return StoppedRuns(services.dispatcher.stop(key, params.run_id))


OnEvent = Callable[[RunEvent], None]
"""Is given every event. After the holder was lost it is given `accepted` again, and all events from the first."""


async def converse(
    caller: OperationClient,
    inbound: Inbound,
    on_event: OnEvent,
    on_accepted: Callable[[AcceptedMessage], None] = lambda _: None,
) -> RunResult:
    """Send a message and follow its run to the end. After a lost holder the idempotency key leads to the same run."""
    async with aclosing(follow_message(caller, inbound)) as items:
        async for item in items:
            if isinstance(item, RunResult):
                return item
            if isinstance(item, AcceptedMessage):
                on_accepted(item)
            else:
                on_event(item)
    raise AssertionError("the result comes last")


async def follow_message(
    caller: OperationClient, inbound: Inbound
) -> AsyncGenerator[AcceptedMessage | RunEvent | RunResult]:
    """The same as a stream: that it was accepted, its events, and the result at the end."""
    while True:
        accepted = await caller.call(submit_message, inbound)
        yield accepted
        try:
            async for event in caller.follow(follow_run, FollowRun(accepted.run_id)):
                yield event
        except HolderLost:
            yield Lifecycle("accepted", "the process that ran it has ended; trying again")
            continue
        result = await caller.call(wait_for_run, WaitForRun(accepted.run_id))
        yield result
        return


class RunList(Struct, frozen=True):
    runs: tuple[RunLine, ...]  # what goes on first, then the newest


@operation("runs.list", scope="read")
async def list_runs(
    services: Services,
    session_key: Annotated[str, "Only of this session."] = "",
    status: Annotated[Status | None, "Only runs with this status."] = None,
    limit: Annotated[int, Meta(ge=1, le=1_000), "Maximum number of runs."] = 20,
) -> RunList:
    """List runs: active ones first, then the newest.

    Examples:
      pal runs list
      pal runs list --status error --limit 5
      pal runs list --session-key agent:main:main --json
    """
    session = session_key and await name_key(services.sessions, session_key, agent=services.agents.default)
    found = await services.traces.recent(limit=limit, session=session, status=status)
    return RunList(tuple(map(line_of, found)))


@operation("runs.show", scope="read")
async def show_run(services: Services, run_id: Annotated[str, Positional] = "") -> RunTrace:
    """Show the steps, times and tokens of a run. The beginning of the id is enough. Default: the newest run.

    Examples:
      pal runs show
      pal runs show 3f9a
      pal runs show 3f9a --json
    """
    beginning = run_id.strip()
    found = await services.traces.find(beginning) if beginning else await services.traces.recent(limit=1)
    if not found or (len(found) > 1 and found[0].run_id != beginning):
        what = "more than one run begins with" if found else "there is no run"
        raise NotFound(f"{what} {beginning[:80]!r}" if beginning else "there are no runs yet", hint="pal runs list")
    return found[0]
