"""Send a message to an agent on behalf of another one, and wait for the reply for a limited time.

A message is accepted once, by a key made of its text and the sender's idempotency key, so that a repeated call after an
interrupted wait sends nothing twice. Ending the wait does not stop the run: run_stop does.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from palinurus.domain import events
from palinurus.domain.clock import NewId
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import BadRequest, HolderLost, NotFound, PalinurusError
from palinurus.domain.messages import Origin
from palinurus.operations.agents import list_agents
from palinurus.operations.runs import (
    FollowRun,
    StopRuns,
    WaitForRun,
    follow_run,
    stop_runs,
    submit_message,
    wait_for_run,
)
from palinurus.operations.table import OperationClient

CHANNEL = "mcp"
MOST_RUNS = 1_000  # that are remembered as a guest's own
_GUEST_SESSION = re.compile(
    rf"(?:agent:(?P<agent>[a-z0-9_-]+):{CHANNEL}:direct:)?(?P<name>[a-z0-9][a-z0-9._-]{{0,63}})"
)
TELL_SECONDS = 5.0  # at least this often a waiting client gets a progress message


class ServeOptions(Struct, frozen=True):
    """What the owner permits to other agents."""

    read_only: bool = False
    approvals: bool = False  # other agents may answer approvals for the owner
    guest: bool = False  # messages of other agents count as text from outside, not as the owner's


class CallSlots(Struct):
    """How many calls are being answered, of all who share it, and which runs they have begun."""

    taken: int = 0
    runs: dict[str, None] = {}  # the oldest first


class McpCall(Struct, frozen=True):
    """One tool call by another agent."""

    client: OperationClient
    options: ServeOptions
    new_id: NewId
    slots: CallSlots
    tell: Callable[[int, str], Awaitable[None]]
    """Reports progress to a waiting client: a growing number, and a line. Costs nothing if the client wants none."""


async def send_message(call: McpCall, arguments: Any) -> dict[str, Any]:
    message = Inbound(
        arguments.message,
        _key(arguments, call.new_id()),
        session_key=await _session(call, arguments.session_key, arguments.agent),
        agent=arguments.agent,
        channel=CHANNEL,
        sender=CHANNEL,
        origin=Origin.OUTSIDE if call.options.guest else Origin.OWNER,
        attended=call.options.approvals,
        plain=True,
    )
    accepted = await call.client.call(submit_message, message)
    call.slots.runs[accepted.run_id] = None
    if len(call.slots.runs) > MOST_RUNS:
        del call.slots.runs[next(iter(call.slots.runs))]
    return await _follow(call, accepted.run_id, arguments.wait_seconds, accepted.session_key)


async def run_wait(call: McpCall, arguments: Any) -> dict[str, Any]:
    _check_run(call, arguments.run_id)
    return await _follow(call, arguments.run_id, arguments.wait_seconds)


async def run_stop(call: McpCall, arguments: Any) -> dict[str, Any]:
    if arguments.run_id:
        _check_run(call, arguments.run_id)
    session = await _session(call, arguments.session_key, "") if arguments.session_key else ""
    stopped = await call.client.call(stop_runs, StopRuns(run_id=arguments.run_id, session_key=session))
    return {"stopped": stopped.count}


async def _session(call: McpCall, name: str, agent: str) -> str:
    """The session that is meant. Guests have sessions of their own, whatever they name. Raises BadRequest."""
    if not call.options.guest:
        return name
    found = _GUEST_SESSION.fullmatch(name.strip().lower() or "guest")
    if found is None:
        raise BadRequest("guests have sessions of their own", hint="name one with letters, digits and hyphens")
    agent = agent or found["agent"] or (await call.client.call(list_agents, list_agents.params())).default_id
    return f"agent:{agent}:{CHANNEL}:direct:{found['name']}"


def _check_run(call: McpCall, run_id: str) -> None:
    """Raises NotFound for a run that a guest did not begin."""
    if call.options.guest and run_id not in call.slots.runs:
        raise NotFound(
            f"there is no run {run_id[:80]!r} of yours", hint="send the message again with its idempotencyKey"
        )


def _key(arguments: Any, fresh: str) -> str:
    """Returns the idempotency key. It contains the text, so that a key reused for another text does not drop it."""
    if not arguments.idempotency_key:
        return f"{CHANNEL}:{fresh}"
    parts = (arguments.idempotency_key, arguments.agent, arguments.session_key, arguments.message)
    return f"{CHANNEL}:{hashlib.sha256(chr(0).join(parts).encode('utf-8', 'surrogatepass')).hexdigest()}"


async def _follow(call: McpCall, run_id: str, seconds: float, session_key: str = "") -> dict[str, Any]:
    progress = _Progress(call.tell)
    telling = asyncio.create_task(progress.tell())
    try:
        async with asyncio.timeout(seconds):
            return _reply(await _result(call.client, run_id, progress.note))
    except TimeoutError:
        answer = {"runId": run_id, "status": "running", "sessionKey": session_key, "doing": progress.line}
        return {name: value for name, value in answer.items() if value}
    finally:
        telling.cancel()
        with suppress(asyncio.CancelledError):
            await telling


async def _result(client: OperationClient, run_id: str, note: Callable[[events.RunEvent], None]) -> events.RunResult:
    while True:
        try:
            async for event in client.follow(follow_run, FollowRun(run_id)):
                note(event)
            return await client.call(wait_for_run, WaitForRun(run_id))
        except HolderLost:
            continue  # the next process that holds the home continues the run; wait until there is one


def _reply(result: events.RunResult) -> dict[str, Any]:
    if result.status == "error":
        raise PalinurusError(f"the run {result.run_id} in {result.session_key} failed: {result.error}")
    answer = {"runId": result.run_id, "status": result.status, "sessionKey": result.session_key}
    return answer | {name: value for name, value in (("reply", result.text), ("model", result.model)) if value}


class _Progress:
    """The progress of a run, sent when it changes and every few seconds: some clients give up after silence."""

    def __init__(self, tell: Callable[[int, str], Awaitable[None]]) -> None:
        self.line = "waits its turn"
        self._tell = tell
        self._changed = asyncio.Event()

    def note(self, event: events.RunEvent) -> None:
        line = _line(event)
        if line and line != self.line:
            self.line = line
            self._changed.set()

    async def tell(self) -> None:
        count = 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(TELL_SECONDS):
                    await self._changed.wait()
            self._changed.clear()
            count += 1
            await self._tell(count, self.line)


def _line(event: events.RunEvent) -> str:
    match event:
        case events.Lifecycle(phase="start") | events.ThinkingDelta():
            return "thinks"
        case events.AssistantDelta():
            return "writes"
        case events.ToolStarted():
            return f"uses {event.name}"
        case events.ApprovalAsked():
            return f"waits for approval {event.id}: {event.reason}"
        case events.ApprovalSettled():
            return f"approval {event.id}: {event.status}"
        case events.Notice():
            return event.text
        case _:
            return ""
