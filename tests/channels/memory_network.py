"""A chat network in memory with its adapter: for tests of what happens around adapters, for all networks alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any, Literal

from msgspec import Struct

from palinurus.dispatch.channels import (
    ButtonPress,
    Channel,
    ChannelCapabilities,
    ChannelCheck,
    ChannelContext,
    ChannelInbox,
    ChannelMessage,
    ChatTarget,
    OutgoingPart,
    QuotedMessage,
    ReceivedFile,
)
from palinurus.domain.envelope import Peer
from palinurus.domain.errors import ConfigError, JobFailed
from palinurus.text.markdown import TextLimits

ALL = ChannelCapabilities(
    TextLimits(400),
    edits=True,
    buttons=True,
    reactions=True,
    typing=True,
    threads=True,
    media=True,
)


class ShownMessage(Struct):
    """A message of the account, as people in the chat see it."""

    id: str
    to: str
    part: OutgoingPart
    thread: str = ""
    earlier: list[str] = []
    deleted: bool = False

    @property
    def text(self) -> str:
        return self.part.text


class MemoryNetwork:
    """One account of it: what people write, and what they see."""

    def __init__(self) -> None:
        self.capabilities = ALL
        self.shown: list[ShownMessage] = []
        self.reactions: list[tuple[str, str]] = []
        self.typing = 0
        self.files: dict[str, bytes] = {}
        self.fetched: list[str] = []
        self.inbox: ChannelInbox | None = None
        self.troubles: list[Exception] = []  # raised by the next sends, one each, before anything is sent
        self.after: list[Exception] = []  # the same, after the message was sent
        self.runs = 0  # how often the account connected
        self.broken: Exception | None = None  # raised while it connects
        self.changed = asyncio.Condition()
        self._numbers = count(1)
        self._gone = asyncio.Event()

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.shown if not message.deleted]

    async def writes(
        self,
        text: str,
        *,
        sender: str = "42",
        chat: str = "",
        kind: Literal["direct", "group", "channel"] = "direct",
        update: str = "",
        name: str = "Ada",
        mention: bool = False,
        thread: str = "",
        files: tuple[ReceivedFile, ...] = (),
        quoted: QuotedMessage | None = None,
        edit: bool = False,
        forwarded: str = "",
    ) -> str:
        number = str(next(self._numbers))
        peer = Peer(chat or sender, kind if not chat or kind != "direct" else "group", thread, mentioned=mention)
        peer = Peer(peer.id, peer.kind, thread, mentioned=mention, sender_name=name)
        assert self.inbox is not None
        message = ChannelMessage(number, update or f"u{number}", sender, peer, text, files, quoted, edit, forwarded)
        await self.inbox.receive(message)
        return number

    async def presses(self, message: ShownMessage, label: str, *, sender: str = "42") -> str:
        assert self.inbox is not None
        value = next(button.value for button in message.part.buttons if button.label == label)
        return await self.inbox.press(ButtonPress(value, sender, Peer(message.to), message.id))

    async def until(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(holds)

    def disconnect(self) -> None:
        self._gone.set()

    async def run(self, inbox: ChannelInbox) -> None:
        self.runs += 1
        if self.broken is not None:
            raise self.broken
        self.inbox = inbox
        self._gone.clear()
        inbox.connected("@pilot")
        await self.told()
        await self._gone.wait()
        raise ConnectionError("the network is gone")

    async def send(self, target: ChatTarget, part: OutgoingPart) -> str:
        if self.troubles:
            raise self.troubles.pop(0)
        number = f"m{next(self._numbers)}"
        self.shown.append(ShownMessage(number, target.to, part, target.thread))
        await self.told()
        if self.after:
            raise self.after.pop(0)
        return number

    async def told(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    def find(self, message_id: str) -> ShownMessage:
        return next(message for message in self.shown if message.id == message_id)


class MemoryChannel(Channel):
    """The adapter. Its network is in the table, by the account's token."""

    networks: dict[str, MemoryNetwork] = {}  # noqa: RUF012  emptied by the fixture

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        own = context.config.data["channels"]["memory"]
        token = (own.get("accounts") or {}).get(context.account, own).get("token", "")
        if token not in self.networks:
            raise ConfigError("the token of memory is wrong", hint="take another one")
        self.network = self.networks[token]
        self.capabilities = self.network.capabilities  # type: ignore[misc]

    async def run(self, inbox: ChannelInbox) -> None:
        await self.network.run(inbox)

    async def send(self, target: ChatTarget, part: OutgoingPart) -> str:
        return await self.network.send(target, part)

    async def edit(self, target: ChatTarget, message_id: str, part: OutgoingPart) -> None:
        message = self.network.find(message_id)
        message.earlier.append(message.text)
        message.part = part
        await self.network.told()

    async def delete(self, target: ChatTarget, message_id: str) -> None:
        self.network.find(message_id).deleted = True
        await self.network.told()

    async def react(self, target: ChatTarget, message_id: str, emoji: str) -> None:
        self.network.reactions.append((message_id, emoji))
        await self.network.told()

    async def typing(self, target: ChatTarget) -> None:
        self.network.typing += 1
        await self.network.told()

    async def fetch(self, file: ReceivedFile) -> AsyncIterator[bytes]:  # type: ignore[override]
        self.network.fetched.append(file.ref)
        if file.ref not in self.network.files:
            raise JobFailed("no such file")
        data = self.network.files[file.ref]
        for start in range(0, len(data), 1000):
            yield data[start : start + 1000]

    async def check(self) -> tuple[ChannelCheck, ...]:
        return (ChannelCheck("token", True, "@pilot"),)
