"""What every fake network of these tests offers: a server on loopback which the network's own library cannot tell from
the real one, with a person's view of it. One class per network in `networks/`."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from msgspec import Struct

Fault = Literal[
    "rate-limit",  # 429 with a pause of 0.01 s, nothing sent
    "long-rate-limit",  # 429 with a pause of 120 s, nothing sent
    "server-error",  # 503, nothing sent
    "cut-before",  # the connection is closed before the request is read to its end: nothing sent
    "cut-after",  # the message is sent, then the connection is closed without an answer
    "no-parse",  # the markup is refused with the network's own error, nothing sent
    "gone",  # the chat does not exist or has blocked the bot, with the network's own error
    "malformed",  # the message is sent, and the answer is no valid answer
]


class SentFile(Struct, frozen=True):
    name: str
    data: bytes
    mime_type: str = ""


class SentMessage(Struct):
    """What the account sent, as a person sees it in the chat."""

    id: str
    chat: str  # as ChatTarget.to
    text: str  # as the network got it, in its dialect
    thread: str = ""
    reply_to: str = ""
    buttons: tuple[tuple[str, str], ...] = ()  # label and value
    files: tuple[SentFile, ...] = ()
    edits: list[str] = []  # earlier texts, oldest first
    reactions: list[str] = []
    deleted: bool = False
    raw: Any = None  # the request


Feature = Literal[
    "groups", "threads", "edits", "deletes", "buttons", "reactions", "typing", "commands", "media", "received-edits",
    "redelivery",  # what was not acknowledged is delivered again
]  # fmt: skip


class FakeNetwork(Protocol):
    channel: str  # its name in the config
    features: frozenset[Feature]  # what the network, and so the adapter, can do
    self_id: str  # the id of the account itself on the network
    sent: list[SentMessage]  # in the order of their arrival; deleted ones stay, marked
    typing: list[str]  # chats in which the account showed that it writes
    commands: list[str]  # names of slash commands that were registered
    requests: int  # how many requests it has got

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def config(self) -> dict[str, Any]:
        """What stands under channels.<channel>: token, addresses of this server. Tokens are plain text here."""

    async def write(
        self,
        text: str,
        *,
        sender: str = "42",
        sender_name: str = "Ada",
        chat: str = "",  # empty: the direct chat with the sender
        thread: str = "",
        mention: bool = False,
        reply_to: str = "",  # id of a message of this chat
        files: tuple[SentFile, ...] = (),
        kind: Literal["image", "voice", "document"] = "document",
    ) -> str:
        """A person writes; returns the id of the message. It is delivered as soon as the account is connected.
        What a network does not have (threads, mentions) is ignored. A chat that is not the sender's own is a group."""

    async def rewrite(self, message_id: str, text: str) -> None:
        """A person edits a message."""

    async def repeat(self) -> None:
        """Delivers the last update once more, under the same id."""

    async def press(self, message: SentMessage, label: str, *, sender: str = "42") -> str:
        """A person presses a button; returns what the network shows them."""

    async def garble(self) -> None:
        """Delivers an update that no library can make sense of, or that lacks what it should have."""

    def fail(self, *faults: Fault) -> None:
        """The next requests that send a message end so, one fault each."""

    async def disconnect(self) -> None:
        """Closes what connections to the account there are: polls, sockets. It may connect again at once."""

    def refuse_token(self, refused: bool = True) -> None:
        """From now on the token is wrong."""
