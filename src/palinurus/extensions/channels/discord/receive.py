"""From the events of Discord's gateway to the inbox."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

import discord

from palinurus.dispatch.channels import ChannelInbox, ChannelMessage
from palinurus.domain.errors import PalinurusError
from palinurus.extensions.channels.discord.gateway import ChatOrder
from palinurus.extensions.channels.discord.rest import DiscordApi
from palinurus.extensions.channels.discord.translate import (
    button_press,
    changed_message,
    chat_message,
    command_message,
)

log = logging.getLogger(__name__)

NOT_TAKEN = "⚠️ That was not taken. Please try again in a moment."
LONGEST_ANSWER = 2000
ONLY_FOR_ONE = 64  # the flag of a message that only the person who pressed or typed sees
DEFERRED = 5  # the type of an answer that says: the answer follows


class EventReceiver:
    """One connection's events. Discord never delivers one again: who wrote what was not taken gets to see that."""

    def __init__(
        self, api: DiscordApi, inbox: ChannelInbox, me: int, name: str, know_chat: Callable[[str, str], None]
    ) -> None:
        self.order = ChatOrder()
        self._api = api
        self._inbox = inbox
        self._me = me
        self._name = name
        self._know_chat = know_chat
        self.events: Mapping[str, Callable[..., None]] = {
            "connect": self._connected,
            "resumed": self._connected,
            "lost": inbox.disconnected,
            "message": self._message,
            "raw_message_edit": self._edit,
            "interaction": self._interaction,
        }

    def _connected(self) -> None:
        self._inbox.connected(self._name)

    def _message(self, message: discord.Message) -> None:
        self._pass_on(message, chat_message(message, self._me))

    def _edit(self, event: discord.RawMessageUpdateEvent) -> None:
        self._pass_on(event.message, changed_message(event, self._me))

    def _pass_on(self, message: discord.Message, received: ChannelMessage | None) -> None:
        if received is not None:
            chat = str(message.channel.id)
            self._know_chat(received.peer.id, chat)
            self.order.start(partial(self._receive, chat, received), chat)

    async def _receive(self, chat: str, received: ChannelMessage) -> None:
        if await self._is_taken(received):
            return
        mark = f"/channels/{chat}/messages/{received.id}/reactions/%E2%9A%A0%EF%B8%8F/@me"  # ⚠️
        try:
            await self._api.request("PUT", mark)
        except PalinurusError as error:
            log.warning("nor could Discord be told so: %s", error)

    async def _is_taken(self, received: ChannelMessage) -> bool:
        try:
            await self._inbox.receive(received)
        except Exception as error:  # noqa: BLE001  the edge of the adapter: the next message is passed on
            log.warning("message %s of Discord was not taken and is lost: %s", received.id, error)
            return False
        return True

    def _interaction(self, interaction: discord.Interaction) -> None:
        kinds = discord.InteractionType
        if interaction.channel is None or interaction.type not in (kinds.application_command, kinds.component):
            return
        chat = str(interaction.channel.id)
        deferral = self.order.start(partial(self._defer, interaction))  # within 3 seconds, whatever the chat is at
        if interaction.type is kinds.component:
            self.order.start(partial(self._press, interaction, deferral), chat)
            return
        received = command_message(interaction)
        self._know_chat(received.peer.id, chat)
        self.order.start(partial(self._command, interaction, deferral, received), chat)

    async def _defer(self, interaction: discord.Interaction) -> None:
        path = f"/interactions/{interaction.id}/{interaction.token}/callback"
        try:
            await self._api.request("POST", path, {"type": DEFERRED, "data": {"flags": ONLY_FOR_ONE}})
        except PalinurusError as error:
            log.warning("a command or button on Discord could not be confirmed: %s", error)

    async def _command(
        self, interaction: discord.Interaction, deferral: asyncio.Task[None], received: ChannelMessage
    ) -> None:
        """The reply comes as a message of its own, so the promise of an answer is taken back."""
        taken = await self._is_taken(received)
        await self._answer(interaction, deferral, "" if taken else NOT_TAKEN)

    async def _press(self, interaction: discord.Interaction, deferral: asyncio.Task[None]) -> None:
        try:
            text = await self._inbox.press(button_press(interaction))
        except Exception as error:  # noqa: BLE001  the edge of the adapter: the next press is passed on
            log.warning("a press of a button on Discord was not taken: %s", error)
            text = NOT_TAKEN
        await self._answer(interaction, deferral, text)

    async def _answer(self, interaction: discord.Interaction, deferral: asyncio.Task[None], text: str) -> None:
        await asyncio.wait((deferral,))
        path = f"/webhooks/{interaction.application_id}/{interaction.token}/messages/@original"
        body = {"content": text[:LONGEST_ANSWER], "allowed_mentions": {"parse": []}}
        try:
            await (self._api.request("PATCH", path, body) if text else self._api.request("DELETE", path))
        except PalinurusError as error:
            log.warning("a command or button on Discord could not be answered: %s", error)
