"""From the events of Discord's gateway to the inbox, in the records that all channels share."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import quote

import discord
import msgspec
from msgspec import Struct

from palinurus.dispatch.channels import (
    ButtonPress,
    ChannelInbox,
    ChannelMessage,
    FileKind,
    QuotedMessage,
    ReceivedFile,
)
from palinurus.domain.envelope import Peer
from palinurus.domain.errors import NotFound, PalinurusError
from palinurus.extensions.channels.discord.rest import DiscordApi
from palinurus.extensions.channels.intake import BoundedDict, ChatOrder, file_kind

log = logging.getLogger(__name__)

NOT_TAKEN = "⚠️ That was not taken. Please try again in a moment."
LONGEST_ANSWER = 2000
ONLY_FOR_ONE = 64  # the flag of a message that only the person who pressed or typed sees
DEFERRED = 5  # the type of an answer that says: the answer follows
WRITTEN = (discord.MessageType.default, discord.MessageType.reply)  # the others are notices such as "Ada joined"
MISSED = timedelta(days=1)  # what is older is not answered any more
MISSED_PAGE, MISSED_PAGES = 100, 5
MOST_FOLLOWED = 100  # chats whose last message is stored
READERS = 4  # of histories at the same time
LOADING_TRIES, LOADING_SECONDS = 100, 0.1
_MARK = re.compile(r"<(@[!&]?|#)(\d{1,20})>")
_EMOJI = re.compile(r"<a?(:\w{1,32}:)\d{1,20}>")


class LastMessage(Struct, frozen=True):
    id: str
    is_direct: bool


class EventReceiver:
    """One connection's events. Discord never delivers one again: who wrote what was not taken gets to see that.

    Messages written while nobody was connected are in the history of their chat. So the last message of each chat is
    stored, and a new session begins by reading on from there. Chats in which nobody had written before, edits and
    commands are not found that way.
    """

    def __init__(
        self, api: DiscordApi, inbox: ChannelInbox, me: int, name: str, chats: MutableMapping[str, str]
    ) -> None:
        self.order = ChatOrder()
        self.client: discord.Client | None = None
        self._reading = asyncio.Semaphore(READERS)
        self._last: BoundedDict[str, LastMessage] = BoundedDict(MOST_FOLLOWED)  # of each chat
        self._api = api
        self._inbox = inbox
        self._me = me
        self._name = name
        self._chats = chats  # of a person or channel: where it is written to
        self.events: Mapping[str, Callable[..., None]] = {
            "connect": self._begin,
            "resumed": self._connected,
            "lost": inbox.disconnected,
            "message": self._message,
            "raw_message_edit": self._edit,
            "interaction": self._interaction,
        }

    async def load(self) -> None:
        stored = await self._inbox.load_cursor()
        self._last.update(msgspec.json.decode(stored, type=dict[str, LastMessage]) if stored else {})

    def _connected(self) -> None:
        self._inbox.connected(self._name)

    def _begin(self) -> None:
        """Called before anything of the new session is: the missed messages of a chat come before its next one."""
        self._connected()
        for chat, last in tuple(self._last.items()):
            self.order.start(partial(self._catch_up, chat, last), chat)

    async def _catch_up(self, chat: str, last: LastMessage) -> None:
        oldest = discord.utils.time_snowflake(discord.utils.utcnow() - MISSED)
        try:
            channel = await self._find_channel(chat, is_direct=last.is_direct)
            for _ in range(MISSED_PAGES):
                after = max(int(self._last[chat].id), oldest) if chat in self._last else oldest
                query = f"after={after}&limit={MISSED_PAGE}"
                async with self._reading:
                    page = await self._api.request("GET", f"/channels/{chat}/messages?{query}")
                for data in sorted(page, key=lambda each: int(each["id"])):
                    message = discord.Message(state=channel._state, channel=channel, data=data)  # noqa: SLF001
                    received = chat_message(message, self._me)
                    if received is not None:
                        self._chats[received.peer.id] = chat
                        await self._receive(chat, received)
                    await self._note(chat, data["id"], is_direct=last.is_direct)
                if len(page) < MISSED_PAGE:
                    return
            log.warning("more than %d messages were missed in the chat %s of Discord", MISSED_PAGE * MISSED_PAGES, chat)
        except Exception as error:  # noqa: BLE001  the edge of the adapter: what comes now is passed on
            log.warning("what was written in the chat %s of Discord meanwhile is not known: %s", chat, error)

    async def _find_channel(self, chat: str, *, is_direct: bool) -> Any:
        """Its server may be loaded only after the session has begun. Raises NotFound."""
        assert self.client is not None  # noqa: S101  it has called us
        state = self.client._connection  # noqa: SLF001  as the library finds the channel of a message
        if is_direct:
            return discord.DMChannel._from_message(state, int(chat))  # noqa: SLF001
        for _ in range(LOADING_TRIES):
            if (found := state.get_channel(int(chat))) is not None:
                return found
            await asyncio.sleep(LOADING_SECONDS)
        raise NotFound("the bot does not see it any more")

    async def _note(self, chat: str, id: str, *, is_direct: bool) -> None:  # noqa: A002  Discord's word
        known = self._last.get(chat)  # an event may come twice
        self._last[chat] = known if known and int(known.id) > int(id) else LastMessage(id, is_direct)
        await self._inbox.save_cursor(msgspec.json.encode(self._last).decode())

    def _message(self, message: discord.Message) -> None:
        self._pass_on(message, chat_message(message, self._me))

    def _edit(self, event: discord.RawMessageUpdateEvent) -> None:
        self._pass_on(event.message, changed_message(event, self._me))

    def _pass_on(self, message: discord.Message, received: ChannelMessage | None) -> None:
        if received is not None:
            chat = str(message.channel.id)
            self._chats[received.peer.id] = chat
            self.order.start(partial(self._take_next, chat, received), chat)

    def _interaction(self, interaction: discord.Interaction) -> None:
        """A slash command or a button. Discord waits 3 seconds for a sign, whatever the chat is busy with."""
        kinds = discord.InteractionType
        if interaction.channel is None or interaction.type not in (kinds.application_command, kinds.component):
            return
        chat = str(interaction.channel.id)
        if interaction.type is kinds.component:
            work = partial(self._inbox.press, button_press(interaction))
        else:
            received = command_message(interaction)
            self._chats[received.peer.id] = chat
            work = partial(self._take, received)
        path = f"/interactions/{interaction.id}/{interaction.token}/callback"
        sign = {"type": DEFERRED, "data": {"flags": ONLY_FOR_ONE}}
        deferral = self.order.start(partial(self._request, "POST", path, sign))
        self.order.start(partial(self._answer, interaction, deferral, work), chat)

    async def _take(self, received: ChannelMessage) -> str:
        await self._inbox.receive(received)
        return ""

    async def _attempt(self, work: Callable[[], Awaitable[str]], id: int | str) -> str:  # noqa: A002  Discord's word
        """What to show to the person, if anything."""
        try:
            return await work()
        except Exception as error:  # noqa: BLE001  the edge of the adapter: the next message is passed on
            log.warning("what came from Discord under the id %s was not taken and is lost: %s", id, error)
            return NOT_TAKEN

    async def _take_next(self, chat: str, received: ChannelMessage) -> None:
        await self._receive(chat, received)
        if not received.is_edit:
            await self._note(chat, received.id, is_direct=received.peer.kind == "direct")

    async def _receive(self, chat: str, received: ChannelMessage) -> None:
        if await self._attempt(partial(self._take, received), received.id):
            warning_sign = quote("⚠️", safe="")
            await self._request("PUT", f"/channels/{chat}/messages/{received.id}/reactions/{warning_sign}/@me")

    async def _answer(
        self, interaction: discord.Interaction, deferral: asyncio.Task[None], work: Callable[[], Awaitable[str]]
    ) -> None:
        """The reply to a command comes as a message of its own, so the promise of an answer is taken back."""
        text = await self._attempt(work, interaction.id)
        await asyncio.wait((deferral,))
        path = f"/webhooks/{interaction.application_id}/{interaction.token}/messages/@original"
        body = {"content": text[:LONGEST_ANSWER], "allowed_mentions": {"parse": []}}
        await (self._request("PATCH", path, body) if text else self._request("DELETE", path))

    async def _request(self, method: str, path: str, body: Any = None) -> None:
        try:
            await self._api.request(method, path, body)
        except PalinurusError as error:
            log.warning("somebody on Discord gets no sign of what became of their message: %s", error)


def peer_of(channel: Any, user: discord.User | discord.Member, *, mentioned: bool) -> Peer:
    """Only a channel that is known to be a direct one counts as one. Of a thread `id` is the thread's own: bindings
    and groups that name the channel above it are found by `parent`."""
    if isinstance(channel, discord.DMChannel):
        return Peer(str(user.id), mentioned=mentioned, sender_name=user.display_name)
    is_thread = isinstance(channel, discord.Thread)
    guild = getattr(channel, "guild", None)
    return Peer(
        str(channel.id),
        "channel",
        thread=str(channel.id) if is_thread else "",
        parent=str(channel.parent_id) if is_thread else "",
        guild=str(guild.id if guild else getattr(channel, "guild_id", None) or ""),
        roles=tuple(str(role.id) for role in getattr(user, "roles", ()) if not role.is_default()),
        mentioned=mentioned,
        sender_name=user.display_name,
    )


def chat_message(message: discord.Message, me: int, *, is_edit: bool = False) -> ChannelMessage | None:
    """None: nobody's words, or those of a bot."""
    if message.author.bot or message.webhook_id or message.type not in WRITTEN:
        return None
    quoted = _quoted(message, me)
    roles = _own_roles(message)
    mentioned = any(user.id == me for user in message.mentions) or any(role in roles for role in message.role_mentions)
    if quoted is not None and quoted.is_own:
        mentioned = True
    edited = f":{_milliseconds(message.edited_at)}" if is_edit else ""
    return ChannelMessage(
        str(message.id),
        f"{message.id}{edited}",
        str(message.author.id),
        peer_of(message.channel, message.author, mentioned=mentioned),
        "\n".join(_texts(message, me, roles)),
        tuple(_files(message)),
        quoted,
        is_edit,
        "somebody" if message.message_snapshots else "",
        _milliseconds(message.created_at),
    )


def changed_message(event: discord.RawMessageUpdateEvent, me: int) -> ChannelMessage | None:
    """None unless a person changed the words: a preview of a link or a pin comes as a change, too."""
    before, after = event.cached_message, event.message
    if after.edited_at is None or (before is not None and before.content == after.content):
        return None
    return chat_message(after, me, is_edit=True)


def command_message(interaction: discord.Interaction) -> ChannelMessage:
    """A slash command as if its text had been written to the bot."""
    data: Any = interaction.data
    words = [str(each["value"]) for each in data.get("options", ()) if each["name"] == "text"]
    return ChannelMessage(
        str(interaction.id),
        f"interaction:{interaction.id}",
        str(interaction.user.id),
        peer_of(interaction.channel, interaction.user, mentioned=True),
        " ".join((f"/{data['name']}", *words)).strip(),
        sent_at=_milliseconds(interaction.created_at),
    )


def button_press(interaction: discord.Interaction) -> ButtonPress:
    data: Any = interaction.data
    peer = peer_of(interaction.channel, interaction.user, mentioned=True)
    message = str(interaction.message.id) if interaction.message else ""
    return ButtonPress(data["custom_id"], str(interaction.user.id), peer, message)


def _own_roles(message: discord.Message) -> list[discord.Role]:
    me: discord.Member | None = message.guild.me if message.guild else None  # None in a server that is not loaded yet
    return me.roles if me else []


def _quoted(message: discord.Message, me: int) -> QuotedMessage | None:
    reference = message.reference
    if message.type is not discord.MessageType.reply or reference is None or reference.message_id is None:
        return None
    answered = reference.resolved
    if not isinstance(answered, discord.Message):  # deleted, or not sent along
        return QuotedMessage(str(reference.message_id))
    author = answered.author
    text = "\n".join(_texts(answered, 0, []))
    return QuotedMessage(str(answered.id), str(author.id), author.display_name, text, author.id == me)


def _texts(message: discord.Message, me: int, own_roles: list[discord.Role]) -> Iterator[str]:
    """Ids become names, and the mention of the bot itself goes. A forwarded message has its text in a snapshot."""
    names = {f"@{user.id}": f"@{user.display_name}" for user in message.mentions}
    names |= {f"@&{role.id}": f"@{role.name}" for role in message.role_mentions}
    names |= {f"@{me}": "", **{f"@&{role.id}": "" for role in own_roles}}

    def name(mark: re.Match[str]) -> str:
        if mark[1] == "#":
            channel = message.guild and message.guild.get_channel_or_thread(int(mark[2]))
            return f"#{channel.name}" if channel else mark[0]
        return names.get(mark[1].rstrip("!") + mark[2], mark[0])

    yield _EMOJI.sub(r"\1", _MARK.sub(name, message.content)).strip()
    for snapshot in message.message_snapshots:
        yield snapshot.content
    for sticker in message.stickers:
        yield f"[sticker: {sticker.name}]"


def _files(message: discord.Message) -> Iterator[ReceivedFile]:
    for each in (*message.attachments, *(file for one in message.message_snapshots for file in one.attachments)):
        mime_type = (each.content_type or "").partition(";")[0]
        kind: FileKind = "voice" if message.flags.voice else file_kind(mime_type)
        yield ReceivedFile(kind, each.url, each.filename, mime_type, each.size)


def _milliseconds(moment: Any) -> int:
    return int(moment.timestamp() * 1000) if moment else 0
