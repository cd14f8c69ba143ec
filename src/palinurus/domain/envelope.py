"""A message on its way to an agent, and where its replies go, whatever channel it uses."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from palinurus.domain.messages import ContextNote, Image, Message, Origin, ReplyFormat, ToolResult
from palinurus.domain.tool import Restriction, ToolSpec

PROGRAMS = ("heartbeat", "cron", "subagent", "session", "boot", "webhook")  # of runs that nobody started by a message
SURFACES = ("cli", "webchat", "openai", "mcp", "http")  # where people read replies themselves: nothing is delivered


class Peer(Struct, frozen=True, omit_defaults=True):
    """Where on a network a message was written: routing and admission read it. `id` is a person, group or channel."""

    id: str
    kind: Literal["direct", "group", "channel"] = "direct"
    thread: str = ""
    parent: str = ""  # of a thread: the peer in which it was opened
    guild: str = ""
    roles: tuple[str, ...] = ()  # of the sender, in the guild
    team: str = ""
    mentioned: bool = False  # whether the message names the agent, or replies to it
    sender_name: str = ""  # as people see it; proves nothing


class Spawn(Struct, frozen=True, omit_defaults=True):
    """Set for runs of a subagent: who gets the result, and when."""

    lineage: tuple[str, ...]  # session keys, the parent's first, then its parent's
    label: str = ""
    run: str = ""  # of the parent that started it
    group: tuple[str, ...] = ()  # subagents that were started together: they report once, when all have ended
    deadline: int = 0  # of the group, in milliseconds since the epoch; 0: none
    cleanup: Literal["keep", "delete"] = "keep"
    for_owner: bool = True  # whether the parent's run was the owner's
    reply_to: Delivery | None = None  # of the parent's run

    @property
    def parent(self) -> str:
        return self.lineage[0]


class Inbound(Struct, frozen=True, omit_defaults=True):
    """One message to an agent. `idempotency_key` makes sending it twice harmless."""

    text: str
    idempotency_key: str
    images: tuple[Image, ...] = ()
    session_key: str = ""  # set if the sender names the agent; otherwise bindings decide
    agent: str = ""
    channel: str = "cli"
    account: str = ""  # of the channel; empty: its default account
    peer: Peer | None = None  # set by channels
    message_id: str = ""  # the network's id of it, which a reply may quote
    sender: str = "owner"
    origin: Origin = Origin.OWNER
    sources: tuple[str, ...] = ()  # of the outside text that it repeats; empty: its sender
    for_owner: bool = False  # a run of the owner's caused it, whoever wrote its text
    attended: bool = True  # whether a person may be present to answer an approval
    notes: tuple[ContextNote, ...] = ()  # extra context for the model besides the message
    model: str = ""  # provider/model, for this message only
    thinking: str = ""  # for this message only
    timeout_seconds: float | None = None  # for this run; 0: no limit; None: as the agent's settings say
    restrictions: tuple[Restriction, ...] = ()  # narrow the tools of this run
    light: bool = False  # the prompt of its run is without the files of the workspace
    plain: bool = False  # sent by a program: commands in the text are ignored, and the run is not joined with others
    steers: bool = False  # a plain message that joins the running turn of its session, after the tool calls in it
    hops: int = 0  # how many messages between sessions led to it, itself included
    spawn: Spawn | None = None  # of a subagent's run
    client_tools: tuple[ToolSpec, ...] = ()  # tools that the sender itself runs when the model calls them
    tool_choice: str = ""  # which tool the first reply must call: see ModelRequest
    reply_format: ReplyFormat | None = None  # of the text of the reply, where the sender is a program
    earlier: tuple[Message, ...] = ()  # what was said before it where its sender was: entries before its own
    results: tuple[ToolResult, ...] = ()  # results of tool calls that the sender ran; the run continues with them
    reply_to: Delivery | None = None  # where to deliver the reply, if it must be delivered

    @property
    def place(self) -> Delivery:
        """Where the message came from and where a reply goes."""
        return self.reply_to or Delivery(self.channel, self.sender)

    @property
    def by_owner(self) -> bool:
        return self.origin == Origin.OWNER or self.for_owner

    @property
    def by_person(self) -> bool:
        """Whether somebody wrote it just now; programs of ours start runs too."""
        return self.channel not in PROGRAMS

    @property
    def by_guest(self) -> bool:
        """Whether somebody else wrote it, and no run of the owner's is behind it."""
        return self.origin == Origin.OUTSIDE and not self.for_owner


class Button(Struct, frozen=True):
    """Below a message, on networks that have buttons."""

    label: str
    value: str  # at most 64 bytes; comes back when it is pressed


class Delivery(Struct, frozen=True, omit_defaults=True):
    """Where replies of a session go: the last channel, account and peer its owner wrote from."""

    channel: str
    to: str = ""
    account: str = ""
    thread: str = ""
