"""The tools for sessions: `message` writes to another person or session, `session_status` shows the current session.

A message is checked before it is sent: in a turn that has read text from outside, only messages to the owner need no
approval. dispatch/recipients.py says who can be written to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from msgspec import Struct

from palinurus.domain.envelope import Delivery
from palinurus.domain.errors import BadRequest
from palinurus.domain.events import Plan
from palinurus.domain.keys import SessionKey
from palinurus.domain.tool import PreparedCall, Tool, ToolOutput, ToolRun, prepared_tool, tool

MAX_TEXT = 20_000
SOMEBODY_NEW = "a message to a new peer, in a turn that has read text from outside"
SOMEBODY_ELSE = "a message that leaves the owner's own sessions, in a turn that has read text from outside"
OWN = ("main", "named", "explicit", "dashboard")
"""Kinds of sessions that are the owner's own; the peer of `direct` may be anyone the owner knows."""

Report = Callable[[SessionKey], Awaitable[str]]
"""Returns the state of a session in a few lines. May raise a PalinurusError."""


class Recipient(Struct, frozen=True):
    """Where a message goes: a session, or a chat on a channel with its session."""

    address: str  # as people read it
    session_key: str
    place: Delivery | None = None  # on a channel; None: only the session
    ask: str = ""  # why it needs an approval
    when_untrusted: str = ""  # why it needs one in a turn that has read text from outside
    is_shared: bool = False  # whether its session is the one that writes


class OutgoingMessage(Struct, frozen=True):
    to: Recipient
    text: str


Find = Callable[[ToolRun, str], Awaitable[Recipient]]
"""Returns whom a text names. Raises PalinurusError if it names nobody or several, or nothing can be sent to them."""


Send = Callable[[ToolRun, OutgoingMessage], Awaitable[str]]
"""Sends a message and returns what happened. The same message in the same run is sent once. Raises PalinurusError."""


def message_tool(send: Send, find: Find) -> Tool:
    @prepared_tool("message", "Send a message to another person or conversation than this one.")
    async def message(
        run: ToolRun,
        to: Annotated[str, "a name the home knows, telegram:42, telegram:group:7, main, or a session key"],
        text: str,
    ) -> PreparedCall | ToolOutput:
        checked = check_text(text)
        recipient = await find(run, to)
        address = recipient.address

        async def deliver() -> ToolOutput:
            return ToolOutput(await send(run, OutgoingMessage(recipient, checked)))

        plan = Plan("message", f"message to {address}", arguments={"to": address, "text": checked})
        return PreparedCall(plan, deliver, ask=recipient.ask, when_untrusted=recipient.when_untrusted, lasting=True)

    return message


def check_text(text: str) -> str:
    if not text.strip():
        raise BadRequest("the message is empty", hint="write a message")
    if len(text) > MAX_TEXT:
        raise BadRequest(f"the message has {len(text):,} characters; {MAX_TEXT:,} are allowed", hint="shorten it")
    return text


def session_status_tool(report: Report) -> Tool:
    @tool("session_status", "Show this session: the time, its model, context, cost, what runs, where commands run.")
    async def session_status(run: ToolRun) -> ToolOutput:
        return ToolOutput(await report(run.key))

    return session_status
