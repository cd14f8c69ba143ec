"""A message on its way to an agent, and where its replies go, whatever channel it uses."""

from __future__ import annotations

from msgspec import Struct

from palinurus.domain.messages import ContextNote, Image, Origin, ToolResult
from palinurus.domain.tool import ToolSpec


class Inbound(Struct, frozen=True, omit_defaults=True):
    """One message to an agent. `idempotency_key` makes sending it twice harmless."""

    text: str
    idempotency_key: str
    images: tuple[Image, ...] = ()
    session_key: str = ""  # set if the sender names the agent; otherwise bindings decide
    agent: str = ""
    channel: str = "cli"
    sender: str = "owner"
    origin: Origin = Origin.OWNER
    attended: bool = True  # whether a person may be present to answer an approval
    notes: tuple[ContextNote, ...] = ()  # extra context for the model besides the message
    model: str = ""  # provider/model, for this message only
    plain: bool = False  # sent by a program: commands in the text are ignored, and the run is not joined with others
    client_tools: tuple[ToolSpec, ...] = ()  # tools that the sender itself runs when the model calls them
    results: tuple[ToolResult, ...] = ()  # results of tool calls that the sender ran; the run continues with them
    reply_to: Delivery | None = None  # where to deliver the reply, if it must be delivered

    @property
    def place(self) -> Delivery:
        """Where the message came from and where a reply goes."""
        return self.reply_to or Delivery(self.channel, self.sender)


class Delivery(Struct, frozen=True, omit_defaults=True):
    """Where replies of a session go: the last channel, account and peer its owner wrote from."""

    channel: str
    to: str = ""
    account: str = ""
    thread: str = ""
