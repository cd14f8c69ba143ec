"""A tool's result as the reply, where no model is asked: how it reads, and how it stands in the transcript.

Its words stand there once, in the reply. That is where every reader looks for what was said, be it a person, a page, a
search or the model in the next turn. The result beside the call keeps its origin, whether it failed, and its pictures.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from palinurus.domain.messages import AssistantMessage, Image, Origin, Text, ToolResult

SEE_REPLY = "The user has it word for word: it is the reply below."


class Told(Struct, frozen=True):
    """A result and the reply that has its words. They are stored together, or a crash in between would lose these."""

    result: ToolResult
    reply: AssistantMessage

    @property
    def messages(self) -> tuple[ToolResult, AssistantMessage]:
        return self.result, self.reply


def as_reply(result: ToolResult) -> str:
    """Words from outside must not pass for the house's own, neither to a person nor to the model that reads them."""
    text = result.text or f"{result.tool_name} is done; it had nothing to say."
    return f"{result.tool_name} brings, from outside:\n\n{text}" if result.origin == Origin.OUTSIDE else text


def as_told(result: ToolResult, reply: AssistantMessage) -> Told:
    if not result.text:
        return Told(result, reply)
    blocks = () if isinstance(result.content, str) else result.content
    pictures = tuple(block for block in blocks if isinstance(block, Image))
    content = (Text(SEE_REPLY), *pictures) if pictures else SEE_REPLY
    return Told(msgspec.structs.replace(result, content=content), reply)
