"""Say something to an agent on behalf of another one, and wait for the reply, but not for ever.

A message is accepted once, by a key made of the words and of what the sender calls it, so that asking again after a
wait that was cut off says nothing twice. Who stops waiting does not stop the run: run_stop does.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated

from msgspec import Meta

from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import HolderLost, PalinurusError
from palinurus.domain.events import (
    ApprovalAsked,
    ApprovalSettled,
    AssistantDelta,
    Lifecycle,
    Notice,
    RunEvent,
    RunResult,
    ThinkingDelta,
    ToolStarted,
)
from palinurus.domain.messages import Origin
from palinurus.gateway.mcp_server.visit import Arguments, Options, Shown, Visit
from palinurus.operations.agents import EVENTS, SUBMIT, WAIT, Follow, Wait
from palinurus.operations.table import Caller

CHANNEL = "mcp"
TELL_SECONDS = 5.0  # at least so often somebody who waits is told that it goes on
Seconds = Annotated[float, Meta(ge=0, le=600, description="how long to wait for the reply")]


class SendMessage(Arguments, frozen=True):
    message: Annotated[str, Meta(min_length=1, description="the words")]
    session_key: Annotated[str, Meta(description="the conversation; the agent's main one when left out")] = ""
    agent: Annotated[str, Meta(description="the agent; the default one when left out")] = ""
    idempotency_key: Annotated[
        str, Meta(max_length=200, description="new for each message, the same when one is sent again")
    ] = ""
    wait_seconds: Seconds = 50.0  # clients commonly give up after a minute


class AwaitRun(Arguments, frozen=True):
    run_id: Annotated[str, Meta(min_length=1, description="the run, as message_send tells it")]
    wait_seconds: Seconds = 50.0


class Reply(Shown, frozen=True):
    run_id: str
    status: str  # ok | aborted | running
    session_key: str = ""
    reply: str = ""
    model: str = ""
    doing: str = ""  # what a run does that goes on


async def send(visit: Visit, asked: SendMessage) -> Reply:
    accepted = await visit.caller.call(SUBMIT, _inbound(asked, visit.options, visit.new_id()))
    return await _followed(visit, accepted.run_id, asked.wait_seconds, accepted.session_key)


async def wait(visit: Visit, asked: AwaitRun) -> Reply:
    return await _followed(visit, asked.run_id, asked.wait_seconds)


def _inbound(asked: SendMessage, options: Options, fresh: str) -> Inbound:
    return Inbound(
        asked.message,
        _key(asked, fresh),
        session_key=asked.session_key,
        agent=asked.agent,
        channel=CHANNEL,
        sender=CHANNEL,
        origin=Origin.OUTSIDE if options.guest else Origin.OWNER,
        attended=options.approvals,
        plain=True,
    )


def _key(asked: SendMessage, fresh: str) -> str:
    """The words are part of it: a key that is used for other words by mistake must not swallow them."""
    if not asked.idempotency_key:
        return f"{CHANNEL}:{fresh}"
    parts = (asked.idempotency_key, asked.agent, asked.session_key, asked.message)
    return f"{CHANNEL}:{hashlib.sha256(chr(0).join(parts).encode('utf-8', 'surrogatepass')).hexdigest()}"


async def _followed(visit: Visit, run_id: str, seconds: float, session_key: str = "") -> Reply:
    news = _News(visit.tell)
    telling = asyncio.create_task(news.tell())
    try:
        async with asyncio.timeout(seconds):
            return _reply(await _result(visit.caller, run_id, news.hear))
    except TimeoutError:
        return Reply(run_id, "running", session_key, doing=news.line)
    finally:
        telling.cancel()
        with suppress(asyncio.CancelledError):
            await telling


async def _result(caller: Caller, run_id: str, hear: Callable[[RunEvent], None]) -> RunResult:
    while True:
        try:
            async for event in caller.follow(EVENTS, Follow(run_id)):
                hear(event)
            return await caller.call(WAIT, Wait(run_id))
        except HolderLost:
            continue  # the next holder takes the run up; the door waits until there is one


def _reply(result: RunResult) -> Reply:
    if result.status == "error":
        raise PalinurusError(f"the run {result.run_id} in {result.session_key} failed: {result.error}")
    return Reply(result.run_id, result.status, result.session_key, result.text, result.model)


class _News:
    """What a run does, told when it changes, and again every few seconds: some clients give up on who is silent."""

    def __init__(self, tell: Callable[[int, str], Awaitable[None]]) -> None:
        self.line = "waits its turn"
        self._tell = tell
        self._changed = asyncio.Event()

    def hear(self, event: RunEvent) -> None:
        line = _line(event)
        if line and line != self.line:
            self.line = line
            self._changed.set()

    async def tell(self) -> None:
        told = 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(TELL_SECONDS):
                    await self._changed.wait()
            self._changed.clear()
            told += 1
            await self._tell(told, self.line)


def _line(event: RunEvent) -> str:
    match event:
        case Lifecycle(phase="start"):
            return "thinks"
        case ThinkingDelta():
            return "thinks"
        case AssistantDelta():
            return "writes"
        case ToolStarted():
            return f"uses {event.name}"
        case ApprovalAsked():
            return f"waits for approval {event.id}: {event.reason}"
        case ApprovalSettled():
            return f"approval {event.id}: {event.status}"
        case Notice():
            return event.text
        case _:
            return ""
