"""One Discord account: it stays connected, sends, and checks its own set-up."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Any
from urllib.parse import quote

import discord

from palinurus.dispatch.channels import (
    Channel,
    ChannelCapabilities,
    ChannelCheck,
    ChannelContext,
    ChannelInbox,
    ChatTarget,
    OutgoingPart,
    ReceivedFile,
)
from palinurus.domain.errors import ConfigError, JobError, JobFailed, JobRefused, PalinurusError
from palinurus.extensions.channels.discord.gateway import INTENT_HINT, GatewayClient
from palinurus.extensions.channels.discord.receive import EventReceiver
from palinurus.extensions.channels.discord.rest import LOGIN_HINT, BotTokenRefused, DiscordApi
from palinurus.extensions.channels.intake import BoundedDict
from palinurus.extensions.channels.settings import DiscordSettings, required_secret
from palinurus.text.markdown import TextLimits

log = logging.getLogger(__name__)

ME, APP = "/users/@me", "/applications/@me"
NOBODY = {"parse": [], "replied_user": False}  # what the model writes calls nobody: no @everyone, no roles, no people
SILENT = 1 << 12
BUTTONS_OF_A_ROW = 5
MOST_ROWS = 5
LONGEST_NONCE = 25
MAY_READ_CONTENT = (1 << 18) | (1 << 19)  # flags of an app: of a verified one, of any other
FINISH_SECONDS = 5
COMMAND_NAME = re.compile(r"[-_a-z0-9]{1,32}")
MOST_COMMANDS = 100
NEEDED = discord.Permissions(
    view_channel=True,
    send_messages=True,
    send_messages_in_threads=True,
    read_message_history=True,
    add_reactions=True,
    attach_files=True,
)


class DiscordChannel(Channel):
    """Discord counts code points (discord-api-docs issue 1315). 17 lines are OpenClaw's: longer ones fill a screen.

    `repeatable` is False although every message carries a nonce: Discord forgets it after "a few minutes", and a reply
    that waits as a job may be repeated hours later. The nonce covers repetitions that come sooner.
    """

    capabilities = ChannelCapabilities(
        TextLimits(2000, "characters", lines=17),
        "discord",
        edits=True,
        buttons=True,
        reactions=True,
        typing=True,
        threads=True,
        media=True,
        commands=True,
    )

    def __init__(self, context: ChannelContext) -> None:
        super().__init__(context)
        self._settings = context.settings(DiscordSettings)
        self._token = required_secret(context, self._settings.token, "token", LOGIN_HINT, "DISCORD_BOT_TOKEN")
        self._api = DiscordApi(context, self._settings.api_root, self._token, self._settings.retry.policy())
        self._chats: BoundedDict[str, str] = BoundedDict(10_000)  # of a person or channel: where it is written to

    async def run(self, inbox: ChannelInbox) -> None:
        logging.getLogger("discord").setLevel(logging.ERROR)  # reconnections are told to the inbox
        async with self._api.opened():
            try:
                me = await self._api.request("GET", ME)
                gateway = self._settings.gateway_url or (await self._api.request("GET", "/gateway/bot"))["url"]
                app = await self._api.request("GET", APP)
            except BotTokenRefused as error:
                raise ConfigError(error.message, hint=error.hint) from error
            receiver = EventReceiver(self._api, inbox, int(me["id"]), f"@{me['username']}", self._chats)
            await receiver.load()
            receiver.order.start(partial(self._register_commands, app["id"], inbox))
            client = GatewayClient(self._api, self._token, gateway, self.context, receiver.events, receiver.order.room)
            receiver.client = client
            try:
                async with client:
                    await client.connect()
            finally:
                await receiver.order.finish(FINISH_SECONDS)

    async def _register_commands(self, app: str, inbox: ChannelInbox) -> None:
        """All at once, in servers and direct chats with the bot. Those that have not changed cost Discord nothing."""
        words = {"type": 3, "name": "text", "description": "What follows the command", "required": False}
        commands = [
            {
                "name": each.name,
                "description": each.about[:100] or each.name,
                "options": [words],
                "contexts": [0, 1],
                "integration_types": [0],
            }
            for each in inbox.commands
            if COMMAND_NAME.fullmatch(each.name)  # one that Discord refuses would take the others with it
        ]
        try:
            await self._api.request("PUT", f"/applications/{app}/commands", commands[:MOST_COMMANDS])
        except PalinurusError as error:
            log.warning("the slash commands could not be registered with Discord: %s", error)

    async def send(self, target: ChatTarget, part: OutgoingPart) -> str:
        body: dict[str, Any] = _content(part)
        if part.idempotency_key:
            digest = hashlib.sha256(part.idempotency_key.encode()).hexdigest()
            body |= {"nonce": digest[:LONGEST_NONCE], "enforce_nonce": True}
        if _is_id(part.reply_to):
            body["message_reference"] = {"message_id": part.reply_to, "fail_if_not_exists": False}
        if part.silent:
            body["flags"] = SILENT
        path = f"/channels/{await self._chat(target)}/messages"
        sent = await self._api.request("POST", path, body, part.file)
        if not isinstance(sent, dict) or not _is_id(str(sent.get("id"))):
            raise PalinurusError("Discord's answer has no id; the message may have been sent")
        return str(sent["id"])

    async def edit(self, target: ChatTarget, message_id: str, part: OutgoingPart) -> None:
        await self._api.request("PATCH", await self._message(target, message_id), _content(part))

    async def delete(self, target: ChatTarget, message_id: str) -> None:
        await self._api.request("DELETE", await self._message(target, message_id))

    async def react(self, target: ChatTarget, message_id: str, emoji: str) -> None:
        message = await self._message(target, message_id)
        if emoji:
            await self._api.request("PUT", f"{message}/reactions/{quote(emoji, safe='')}/@me")
            return
        shown = await self._api.request("GET", message)
        for each in shown.get("reactions", ()):
            if each.get("me"):
                own = f"{each['emoji']['name']}:{each['emoji']['id']}" if each["emoji"]["id"] else each["emoji"]["name"]
                await self._api.request("DELETE", f"{message}/reactions/{quote(own, safe='')}/@me")

    async def typing(self, target: ChatTarget) -> None:
        await self._api.request("POST", f"/channels/{await self._chat(target)}/typing")

    def fetch(self, file: ReceivedFile) -> AsyncIterator[bytes]:
        return self._api.pieces(file.ref)

    async def _message(self, target: ChatTarget, message_id: str) -> str:
        if not _is_id(message_id):
            raise JobRefused(f"{message_id[:40]!r} is not the id of a message on Discord")
        return f"/channels/{await self._chat(target)}/messages/{message_id}"

    async def _chat(self, target: ChatTarget) -> str:
        """The channel to write to. A plain id may be a channel's or a person's: Discord knows which."""
        kind, _, name = target.to.rpartition(":")
        place = target.thread or name
        if not _is_id(place) or kind not in ("", "channel", "user"):
            raise JobRefused(f"{target.to[:40]!r} is not a chat on Discord", hint="channel:<id> or user:<id>")
        if target.thread or kind == "channel":
            return place
        if name not in self._chats:
            try:
                self._chats[name] = await self._find_chat(kind, name)
            except JobError:
                raise
            except PalinurusError as error:  # nothing has been sent yet
                raise JobFailed(error.message) from error
        return self._chats[name]

    async def _find_chat(self, kind: str, name: str) -> str:
        if not kind:
            try:
                await self._api.request("GET", f"/channels/{name}")
            except JobRefused:
                log.debug("%s is no channel of Discord, so it is a person", name)
            else:
                return name
        opened = await self._api.request("POST", "/users/@me/channels", {"recipient_id": name})
        return str(opened["id"])

    async def check(self) -> tuple[ChannelCheck, ...]:
        try:
            async with self._api.opened():
                me, app, guilds = [await self._api.request("GET", each) for each in (ME, APP, f"{ME}/guilds")]
        except PalinurusError as error:
            hint = error.hint or "try again; discordstatus.com says whether Discord is in trouble"
            return (ChannelCheck("token", ok=False, about=error.message, hint=hint),)
        may_read = bool(app.get("flags", 0) & MAY_READ_CONTENT)
        endpoint = app.get("interactions_endpoint_url")
        return (
            ChannelCheck("token", ok=True, about=f"@{me['username']}"),
            ChannelCheck("message content intent", ok=may_read, hint="" if may_read else INTENT_HINT),
            ChannelCheck(
                "interactions",
                ok=not endpoint,
                about="buttons and slash commands go to another address" if endpoint else "",
                hint="in the developer portal choose the app, General Information; empty Interactions Endpoint URL"
                if endpoint
                else "",
            ),
            *_check_guilds(guilds, app["id"]),
        )


def _check_guilds(guilds: list[dict[str, Any]], app: str) -> list[ChannelCheck]:
    invite = (
        f"https://discord.com/oauth2/authorize?client_id={app}"
        f"&scope=bot+applications.commands&permissions={NEEDED.value}"
    )
    if not guilds:
        return [ChannelCheck("servers", ok=False, about="the bot is in no server", hint=f"invite it: {invite}")]
    found = []
    for guild in guilds:
        has = discord.Permissions(int(guild["permissions"]))
        missing = [] if has.administrator else [name for name, on in NEEDED if on and not getattr(has, name)]
        about = f"lacks {', '.join(missing)}" if missing else "has all permissions that it needs"
        hint = f"server settings, Roles, the bot's role; or invite it again: {invite}" if missing else ""
        found.append(ChannelCheck(f"server {guild['name']}", ok=not missing, about=about, hint=hint))
    return found


def _content(part: OutgoingPart) -> dict[str, Any]:
    return {"content": part.text, "allowed_mentions": NOBODY, "components": _rows(part)}


def _rows(part: OutgoingPart) -> list[dict[str, Any]]:
    drawn = [{"type": 2, "style": 2, "label": each.label[:80], "custom_id": each.value} for each in part.buttons]
    starts = range(0, min(len(drawn), BUTTONS_OF_A_ROW * MOST_ROWS), BUTTONS_OF_A_ROW)
    return [{"type": 1, "components": drawn[start : start + BUTTONS_OF_A_ROW]} for start in starts]


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20
