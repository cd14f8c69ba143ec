"""What comes in from a door and what goes out again, whatever network carried it."""

from __future__ import annotations

from msgspec import Struct

from palinurus.domain.messages import ContextNote, Image, Origin, ToolResult
from palinurus.domain.tool import ToolSpec


class Inbound(Struct, frozen=True, omit_defaults=True):
    """One message on its way to an agent. `idempotency_key` makes sending it twice harmless."""

    text: str
    idempotency_key: str
    images: tuple[Image, ...] = ()
    session_key: str = ""  # when the sender says where; else bindings decide
    agent: str = ""
    channel: str = "cli"
    sender: str = "owner"
    origin: Origin = Origin.OWNER
    attended: bool = True  # whether somebody may be there when the agent has to ask
    notes: tuple[ContextNote, ...] = ()  # what the model is told beside the words
    model: str = ""  # provider/model, for this message only
    plain: bool = False  # a program speaks: no command is read in its words, and its turn is shared with nobody
    client_tools: tuple[ToolSpec, ...] = ()  # which the sender does itself, when the model asks for one
    results: tuple[ToolResult, ...] = ()  # of calls that the model has asked the sender for: its turn goes on
    reply_to: Delivery | None = None  # where the reply is carried, if it has to be

    @property
    def place(self) -> Delivery:
        """Where it came from, and where a reply goes."""
        return self.reply_to or Delivery(self.channel, self.sender)


class Delivery(Struct, frozen=True, omit_defaults=True):
    """Where replies of a session go: the last place its owner spoke from."""

    channel: str
    to: str = ""
    account: str = ""
    thread: str = ""
