"""The hand that speaks elsewhere: a message to a person or a session other than the one that is talking.

It is looked at before it is done, so that a turn that has read text from outside writes to nobody but the owner without
a person who agrees.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from msgspec import Struct

from palinurus.domain.errors import BadRequest
from palinurus.domain.function_tool import prepared_tool
from palinurus.domain.keys import SessionKey
from palinurus.domain.plan import Plan
from palinurus.domain.tool import Prepared, Tool, ToolOutput, ToolRun

MAX_TEXT = 20_000
SOMEBODY_NEW = "a message to somebody new, in a turn that has read text from outside"
SOMEBODY_ELSE = "a message out of the owner's own conversations, in a turn that has read text from outside"
OWN = ("main", "named", "explicit", "dashboard")
"""Kinds of conversations that are the owner's own; who writes in `direct` may be anybody whom he knows."""


class Outgoing(Struct, frozen=True):
    to: str  # a session's key, in full
    text: str


Send = Callable[[ToolRun, Outgoing], Awaitable[str]]
"""Sends it and says what became of it. Sending the same in the same run again sends nothing. Raises PalinurusError."""

Known = Callable[[ToolRun, str], Awaitable[bool]]
"""Whether somebody has been spoken with there. Raises PalinurusError for a key that nothing can be sent to."""


def message_tool(send: Send, known: Known) -> Tool:
    @prepared_tool("message", "Send a message to another person or conversation than this one.")
    async def message(
        run: ToolRun,
        to: Annotated[str, "main, telegram:42, telegram:group:7, or a session key"],
        text: Annotated[str, "what they will read"],
    ) -> Prepared | ToolOutput:
        key = _recipient(run, to)
        outgoing = Outgoing(str(key), _words(text))
        is_known = await known(run, outgoing.to)

        async def deliver() -> ToolOutput:
            return ToolOutput(await send(run, outgoing))

        plan = Plan("message", f"message to {outgoing.to}", arguments={"to": outgoing.to, "text": outgoing.text})
        return Prepared(plan, deliver, when_untrusted=_reason(key, is_known), lasting=True)

    return message


def _recipient(run: ToolRun, to: str) -> SessionKey:
    key = SessionKey.recipient(to, run.key.agent)
    if key == run.key:
        raise BadRequest("that is this very conversation", hint="just answer")
    return key


def _reason(key: SessionKey, is_known: bool) -> str:
    own = key.kind in OWN and not key.thread
    return SOMEBODY_NEW if not is_known else "" if own else SOMEBODY_ELSE


def _words(text: str) -> str:
    if not text.strip():
        raise BadRequest("the message is empty", hint="say something")
    if len(text) > MAX_TEXT:
        raise BadRequest(f"the message has {len(text):,} characters; {MAX_TEXT:,} are allowed", hint="shorten it")
    return text
