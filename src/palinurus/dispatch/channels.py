"""The contract of channels: what an adapter of a chat network implements, and what it is given.

One `Channel` is one account on one network. It translates: updates of the network become `ChannelMessage`s, parts of
replies become messages of the network. Everything else (admission, sessions, queues, retries over restarts, chunking,
previews, approvals) happens outside, once for all networks. What a network can do is data: `ChannelCapabilities`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import ClassVar, Literal, Protocol, TypeVar

from msgspec import Struct

from palinurus.config.load import Config
from palinurus.config.section import Secret, Section, build
from palinurus.dispatch.settings import account_layers
from palinurus.domain.clock import Clock
from palinurus.domain.envelope import Button, Peer
from palinurus.domain.errors import JobFailed, NotOffered
from palinurus.text.markdown import Dialect, TextLimits

T = TypeVar("T")
S = TypeVar("S", bound=Section)
FileKind = Literal["image", "voice", "audio", "video", "document"]


class ChannelCapabilities(Struct, frozen=True, rename="camel"):
    """What a network can do."""

    limits: TextLimits  # of one message
    dialect: Dialect = "plain"
    edits: bool = False  # whether sent messages can be changed: needed for previews
    buttons: bool = False
    reactions: bool = False
    typing: bool = False
    threads: bool = False
    media: bool = False  # whether files can be sent
    commands: bool = False  # whether slash commands can be registered with the network
    repeatable: bool = False  # whether sending a message twice under its idempotency key delivers it once


class ChatTarget(Struct, frozen=True):
    """A chat of the network, in the network's own ids."""

    to: str
    thread: str = ""


class OutgoingFile(Struct, frozen=True):
    name: str
    mime_type: str
    data: bytes


class OutgoingPart(Struct, frozen=True):
    """One message of the network, within its limits."""

    text: str  # in the dialect of the network; a file has none, and text and file are two parts
    plain: str = ""  # the same without markup: sent instead when the network cannot parse `text`
    idempotency_key: str = ""
    reply_to: str = ""  # the id of the message that it answers
    silent: bool = False  # nobody's phone rings for it
    buttons: tuple[Button, ...] = ()
    file: OutgoingFile | None = None


class ReceivedFile(Struct, frozen=True):
    """A file of a received message that has not been fetched. `name` and `mime_type` are claims of the sender."""

    kind: FileKind
    ref: str  # by which the channel fetches it
    name: str = ""
    mime_type: str = ""
    size: int = 0  # 0: unknown


class QuotedMessage(Struct, frozen=True):
    """The message that a received one answers."""

    id: str
    sender: str = ""
    sender_name: str = ""
    text: str = ""
    is_own: bool = False  # the agent wrote it


class ChannelMessage(Struct, frozen=True):
    """A received message. `peer.mentioned` is set if it names the account or answers one of its messages."""

    id: str  # of the message, in its chat
    update: str  # of this delivery: the same for a repeated one; an edit has another
    sender: str
    peer: Peer
    text: str = ""
    files: tuple[ReceivedFile, ...] = ()
    quoted: QuotedMessage | None = None
    is_edit: bool = False
    forwarded_from: str = ""  # the sender only passes its text on: the name of who wrote it, or "somebody"
    sent_at: int = 0  # milliseconds since the epoch; 0: unknown


class ButtonPress(Struct, frozen=True):
    value: str
    sender: str
    peer: Peer
    message: str  # id of the message with the button


class ChannelCommand(Struct, frozen=True):
    """A slash command to be registered with the network."""

    name: str
    about: str


class ChannelCheck(Struct, frozen=True, rename="camel"):
    """One thing that was tried on the network: token, permissions, intents."""

    name: str
    ok: bool
    about: str = ""  # what was found
    hint: str = ""  # what to do: what to click where


class ChannelRequest(Struct, frozen=True):
    """A request of the network to a webhook of ours. Nothing in it has been verified."""

    method: str
    path: str
    headers: Mapping[str, str]  # names in lower case
    query: Mapping[str, str]
    body: bytes


class ChannelResponse(Struct, frozen=True):
    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"


class ChannelInbox(Protocol):
    """What a running channel is given."""

    commands: tuple[ChannelCommand, ...]

    def connected(self, identity: str) -> None:
        """The channel is ready; `identity` is the account's name on the network, such as @name."""

    def disconnected(self, why: str) -> None:
        """The network is gone for a while, and the channel itself tries again."""

    async def receive(self, message: ChannelMessage) -> None:
        """When this returns, the message is stored, or refused for good: the channel may acknowledge it. Raises
        StorageError, HolderLost or QueueFull when it was not taken: it must not be acknowledged."""

    async def press(self, press: ButtonPress) -> str:
        """Returns what to show to the one who pressed a button."""

    async def report_failure(self, to: str, message_id: str, why: str) -> None:
        """The network says that a message which it had taken did not arrive. Raises as `receive`."""

    async def load_cursor(self) -> str:
        """What `save_cursor` stored last; empty: nothing."""

    async def save_cursor(self, cursor: str) -> None: ...


class RequestRetry(Struct, frozen=True):
    """How often one request is tried, as the documents say: `retry` in the config of the channel."""

    attempts: int = 3
    min_delay: float = 0.4  # seconds; doubles
    max_delay: float = 30.0
    jitter: float = 0.1


class ChannelContext(Struct, frozen=True):
    """What a channel is made with."""

    channel: str
    account: str
    config: Config
    secret: Callable[[Secret | None], str | None]
    """Resolves a secret of the config. None: there is none. Raises ConfigError."""
    env: Mapping[str, str]
    clock: Clock
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    dice: Callable[[], float] = lambda: 0.5  # numbers from 0 to 1

    def settings(self, model: type[S]) -> S:
        """The settings of this account: its own, then the channel's, then those of all channels."""
        return build(model, account_layers(self.config, self.channel, self.account))


class Channel:
    """One account on one network. Adapters override what their network can do.

    The methods that send raise JobFailed if the message certainly did not arrive and a retry may work (`retry_after`),
    JobRefused if a retry cannot help (the chat is gone, the bot was blocked); any other exception means that it may
    have arrived.
    """

    capabilities: ClassVar[ChannelCapabilities]
    webhook_paths: tuple[str, ...] = ()  # paths of the gateway whose requests `handle` gets

    def __init__(self, context: ChannelContext) -> None:
        """Raises ConfigError when a setting or a secret is missing. Does not connect."""
        self.context = context

    async def run(self, inbox: ChannelInbox) -> None:
        """Connects, says so, and passes on what arrives until it is cancelled; cleans up then.

        Raises ConfigError when only a change of the config can help (a wrong token); after any other exception it is
        called again, with growing pauses.
        """
        raise NotImplementedError

    async def send(self, target: ChatTarget, part: OutgoingPart) -> str:
        """Returns the network's id of the message."""
        raise NotImplementedError

    async def edit(self, target: ChatTarget, message_id: str, part: OutgoingPart) -> None:
        raise NotOffered(f"{self.context.channel} cannot change messages")

    async def delete(self, target: ChatTarget, message_id: str) -> None:
        raise NotOffered(f"{self.context.channel} cannot delete messages")

    async def react(self, target: ChatTarget, message_id: str, emoji: str) -> None:
        """With an empty emoji the reaction is taken back."""
        raise NotOffered(f"{self.context.channel} has no reactions")

    async def typing(self, target: ChatTarget) -> None:
        """Shows for some seconds that a reply is being written."""

    def fetch(self, file: ReceivedFile) -> AsyncIterator[bytes]:
        """The content of a file in pieces; whoever reads it stops when it is too large."""
        raise NotOffered(f"{self.context.channel} has no files")

    async def check(self) -> tuple[ChannelCheck, ...]:
        """Tries token, permissions and intents on the network. Does not raise for what it finds wrong."""
        return ()

    async def handle(self, request: ChannelRequest) -> ChannelResponse:
        """Answers a request of the network; verifies it first. Called only while `run` is running."""
        raise NotOffered(f"{self.context.channel} has no webhook")


async def retry_request(
    context: ChannelContext, policy: RequestRetry, request: Callable[[], Awaitable[T]], *, most: float | None = None
) -> T:
    """Makes one request, again after JobFailed, which says that nothing arrived. A longer `retry_after` than the
    policy's longest pause ends it: then the delivery waits as a job."""
    tried = 0
    while True:
        try:
            return await request()
        except JobFailed as error:
            tried += 1
            pause = min(policy.min_delay * 2 ** (tried - 1), policy.max_delay)
            pause = max(pause * (1 + policy.jitter * (2 * context.dice() - 1)), error.retry_after or 0)
            if tried >= policy.attempts or pause > (policy.max_delay if most is None else most):
                raise
            await context.sleep(pause)


ChannelFactory = Callable[[ChannelContext], Channel]
