"""The tools for sessions: `message` writes to another person or session, `session_status` shows the current session.

A message is checked before it is sent: in a turn that has read text from outside, only messages to the owner need no
approval.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.domain.events import Plan
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import PreparedCall, Tool, ToolOutput, ToolRun, prepared_tool, tool

MAX_TEXT = 20_000
SOMEBODY_NEW = "a message to a new peer, in a turn that has read text from outside"
SOMEBODY_ELSE = "a message that leaves the owner's own sessions, in a turn that has read text from outside"
OWN = ("main", "named", "explicit", "dashboard")
"""Kinds of sessions that are the owner's own; the peer of `direct` may be anyone the owner knows."""

Known = Callable[[ToolRun, str], Awaitable[bool]]
"""Returns whether the session has earlier messages. Raises PalinurusError for a key that nothing can be sent to."""

Report = Callable[[SessionKey], Awaitable[str]]
"""Returns the state of a session in a few lines. May raise a PalinurusError."""


class OutgoingMessage(Struct, frozen=True):
    to: str  # a full session key
    text: str


Send = Callable[[ToolRun, OutgoingMessage], Awaitable[str]]
"""Sends a message and returns what happened. The same message in the same run is sent once. Raises PalinurusError."""


def message_tool(send: Send, known: Known) -> Tool:
    @prepared_tool("message", "Send a message to another person or conversation than this one.")
    async def message(
        run: ToolRun,
        to: Annotated[str, "main, telegram:42, telegram:group:7, or a session key"],
        text: str,
    ) -> PreparedCall | ToolOutput:
        key = SessionKey.recipient(to, run.key.agent)
        if key == run.key:
            raise BadRequest("that is the current session", hint="write it in your reply")
        outgoing = OutgoingMessage(str(key), check_text(text))
        is_known = await known(run, outgoing.to)

        async def deliver() -> ToolOutput:
            return ToolOutput(await send(run, outgoing))

        plan = Plan("message", f"message to {outgoing.to}", arguments={"to": outgoing.to, "text": outgoing.text})
        own = key.kind in OWN and not key.thread
        reason = SOMEBODY_NEW if not is_known else "" if own else SOMEBODY_ELSE
        return PreparedCall(plan, deliver, when_untrusted=reason, lasting=True)

    return message


def check_text(text: str) -> str:
    if not text.strip():
        raise BadRequest("the message is empty", hint="say something")
    if len(text) > MAX_TEXT:
        raise BadRequest(f"the message has {len(text):,} characters; {MAX_TEXT:,} are allowed", hint="shorten it")
    return text


def session_status_tool(report: Report) -> Tool:
    @tool("session_status", "Show this session: the time, its model, context, cost, what runs, where commands run.")
    async def session_status(run: ToolRun) -> ToolOutput:
        return ToolOutput(await report(run.key))

    return session_status
