"""The adapter of Telegram: a bot that polls, or gets its updates at a webhook."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

import msgspec
from telegram import BotCommand, ReactionTypeEmoji, User
from telegram.error import TelegramError

from palinurus.config.section import Secret
from palinurus.dispatch.channels import (
    Channel,
    ChannelCapabilities,
    ChannelCheck,
    ChannelCommand,
    ChannelContext,
    ChannelInbox,
    ChannelRequest,
    ChannelResponse,
    ChatTarget,
    OutgoingPart,
    ReceivedFile,
    retry_request,
)
from palinurus.domain.errors import ConfigError, JobFailed, JobRefused, PalinurusError
from palinurus.extensions.channels.intake import ChatOrder, PostIntake, is_same, refusal
from palinurus.extensions.channels.settings import TelegramSettings, required_secret
from palinurus.extensions.channels.telegram.client import (
    TOKEN_HINT,
    UPDATE_KINDS,
    BotApiError,
    BotClient,
    edit_part,
    mapped_errors,
    send_part,
)
from palinurus.extensions.channels.telegram.polling import UpdatePoller, describe_trouble
from palinurus.extensions.channels.telegram.updates import UpdateContent, read_update
from palinurus.text.markdown import TextLimits

T = TypeVar("T")
NOTICE_SIZE = 200  # of what is shown to the one who pressed a button
MOST_COMMANDS = 100
MOST_FETCHED = 20 * 1024 * 1024
MOST_SENT = 50 * 1024 * 1024
SECRET_HEADER = "x-telegram-bot-api-secret-token"  # noqa: S105
WEBHOOK_HINT = "channels.telegram.webhookUrl is a public https address on port 443, 80, 88 or 8443"

log = logging.getLogger(__name__)


class TelegramChannel(Channel):
    """One bot."""

    capabilities: ClassVar = ChannelCapabilities(
        TextLimits(4096, "utf16"),
        dialect="telegram",
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
        self._settings = context.settings(TelegramSettings)
        self._policy = self._settings.retry.policy(400)
        self._token = find_token(context, self._settings)
        self._webhook_secret = ""
        if self._settings.webhook_url:
            self._webhook_secret = find_webhook_secret(context, self._settings.webhook_secret)
            self.webhook_paths = (self._settings.webhook_path,)
        self._moved: dict[str, str] = {}  # groups that have become supergroups: their new ids
        self._posts = PostIntake(log)
        self._bot: BotClient | None = None  # this and the next: while it is running
        self._own: User | None = None

    async def run(self, inbox: ChannelInbox) -> None:
        bot = await self._make_bot()
        order = ChatOrder()
        async with bot.connections():
            try:
                own = await retry_request(self.context, self._policy, lambda: self._introduce(bot))
                self._bot, self._posts.inbox, self._own = bot, inbox, own
                inbox.connected(own.name)
                order.start(partial(self._register, bot, inbox.commands))
                if self._webhook_secret:
                    await asyncio.Event().wait()  # `handle` receives what arrives
                take = partial(self._take, inbox=inbox)
                poller = UpdatePoller(bot, partial(read_update, own=own), take, self.context, self._policy)
                await poller.run(inbox, own.name)
            finally:
                self._bot = self._posts.inbox = self._own = None
                await order.finish()

    async def _introduce(self, bot: BotClient) -> User:
        """Raises ConfigError for a token or a webhook that Telegram does not accept."""
        with mapped_errors(repeatable=True):
            try:
                own = await bot.get_me()
                if self._webhook_secret:
                    address, secret = self._settings.webhook_url, self._webhook_secret
                    await bot.set_webhook(address, secret_token=secret, allowed_updates=UPDATE_KINDS)
                else:
                    await bot.delete_webhook()  # with one, Telegram refuses polls
            except BotApiError as error:
                describe_trouble(error)
                if error.code == 400:
                    about = f"Telegram does not accept the webhook: {error.message}"
                    raise ConfigError(about, hint=WEBHOOK_HINT) from error
                raise
        return own

    async def _register(self, bot: BotClient, commands: tuple[ChannelCommand, ...]) -> None:
        named = {_command_name(each.name): each.about[:256] for each in commands if each.about}
        listed = [BotCommand(name, about) for name, about in named.items() if name][:MOST_COMMANDS]

        async def register() -> None:
            with mapped_errors(repeatable=True):
                await bot.set_my_commands(listed)

        try:
            await retry_request(self.context, self._policy, register)
        except PalinurusError as error:
            log.warning("Telegram does not offer the slash commands: %s", error)

    async def handle(self, request: ChannelRequest) -> ChannelResponse:
        if not is_same(request.headers.get(SECRET_HEADER, ""), self._webhook_secret):
            return refusal(401, "the secret is wrong")
        if self._own is None:
            return refusal(503, "try again later")
        try:
            update = read_update(msgspec.json.decode(request.body), self._own)
        except (ValueError, RecursionError) as error:
            log.warning("An update of Telegram cannot be read and is left out: %s", error)
            return ChannelResponse()
        return await self._posts.take({str(update.chat): partial(self._take, update)})

    async def _take(self, update: UpdateContent, inbox: ChannelInbox) -> None:
        if update.moved_to:
            self._moved[str(update.chat)] = update.moved_to
            log.warning("A Telegram group is a supergroup now: its id %s is %s", update.chat, update.moved_to)
        if update.press:
            notice = await inbox.press(update.press)
            await self._show_notice(update.query, notice)
        if update.message:
            await inbox.receive(update.message)

    async def _show_notice(self, query: str, notice: str) -> None:
        try:
            with mapped_errors():
                await self._running.answer_callback_query(query, notice[:NOTICE_SIZE] or None)
        except PalinurusError as error:  # the press counts nevertheless
            log.info("Who pressed a button was not shown the answer: %s", error)

    @property
    def _running(self) -> BotClient:
        if self._bot is None:
            raise JobFailed("Telegram is not connected")
        return self._bot

    async def send(self, target: ChatTarget, part: OutgoingPart) -> str:
        if part.file and len(part.file.data) > MOST_SENT:
            raise JobRefused(f"Telegram takes files up to {MOST_SENT >> 20} MB, and {part.file.name} is larger")
        return await self._ask(target, lambda bot, chat: send_part(bot, chat, target, part))

    async def edit(self, target: ChatTarget, message_id: str, part: OutgoingPart) -> None:
        await self._ask(target, lambda bot, chat: edit_part(bot, chat, int(message_id), part), repeatable=True)

    async def delete(self, target: ChatTarget, message_id: str) -> None:
        async def delete(bot: BotClient, chat: str) -> None:
            try:
                await bot.delete_message(chat, int(message_id))
            except BotApiError as error:
                if not error.says("message to delete not found"):
                    raise

        await self._ask(target, delete, repeatable=True)

    async def react(self, target: ChatTarget, message_id: str, emoji: str) -> None:
        # Telegram lists its reactions without the selector that asks for a coloured picture.
        shown = [ReactionTypeEmoji(emoji.replace("\ufe0f", ""))] if emoji else []
        await self._ask(
            target, lambda bot, chat: bot.set_message_reaction(chat, int(message_id), shown), repeatable=True
        )

    async def typing(self, target: ChatTarget) -> None:
        thread = int(target.thread) if target.thread else None  # here General is named, too
        with mapped_errors(repeatable=True):
            await self._running.send_chat_action(self._moved.get(target.to, target.to), "typing", thread)

    async def fetch(self, file: ReceivedFile) -> AsyncIterator[bytes]:
        if file.size > MOST_FETCHED:
            raise JobRefused(f"Telegram gives bots files up to {MOST_FETCHED >> 20} MB, and this one is larger")
        with mapped_errors(repeatable=True):
            async for piece in self._running.download(file.ref):
                yield piece

    async def _ask(
        self, target: ChatTarget, request: Callable[[BotClient, str], Awaitable[T]], *, repeatable: bool = False
    ) -> T:
        """Makes a request about a chat, where that is now; `repeatable` as in mapped_errors."""

        async def attempt() -> T:
            bot, chat = self._running, self._moved.get(target.to, target.to)
            with mapped_errors(repeatable=repeatable):
                try:
                    return await request(bot, chat)
                except BotApiError as error:
                    if not error.moved_to:
                        raise
                    self._moved[target.to] = error.moved_to
                    return await request(bot, error.moved_to)

        return await retry_request(self.context, self._policy, attempt)

    async def check(self) -> tuple[ChannelCheck, ...]:
        bot = await self._make_bot()
        try:
            async with bot.connections():
                own = await bot.get_me()
                webhook = await bot.get_webhook_info()
        except TelegramError as error:
            about = f"Telegram does not say who the bot is: {error}"
            if isinstance(error, BotApiError) and error.is_about_token:
                return (ChannelCheck("token", ok=False, about=about, hint=TOKEN_HINT),)
            hint = "can this machine reach channels.telegram.apiRoot?"
            return (ChannelCheck("connection", ok=False, about=about, hint=hint),)
        checks = (ChannelCheck("token", ok=True, about=f"the bot is {own.name}"), _check_groups(own))
        if not self._webhook_secret:
            return checks
        right = webhook.url == self._settings.webhook_url
        trouble = webhook.last_error_message or ""
        about = trouble or f"Telegram posts updates to {webhook.url or 'nobody'}"
        hint = WEBHOOK_HINT if right else "start the gateway: it registers channels.telegram.webhookUrl"
        return (*checks, ChannelCheck("webhook", ok=right and not trouble, about=about, hint=hint))

    async def _make_bot(self) -> BotClient:
        return await asyncio.to_thread(BotClient, self._token, self._settings.api_root.rstrip("/"))


def find_token(context: ChannelContext, settings: TelegramSettings) -> str:
    """Raises ConfigError when there is none."""
    token: Secret | None = settings.bot_token
    if not context.secret(token) and settings.token_file:
        try:
            token = Path(settings.token_file).expanduser().read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ConfigError(f"channels.telegram.tokenFile cannot be read: {error}") from error
    found = required_secret(context, token, "botToken", TOKEN_HINT, "TELEGRAM_BOT_TOKEN")
    if not re.fullmatch(r"\d+:[\w-]+", found, re.ASCII):
        raise ConfigError(f"The Telegram token of the account {context.account} is not one of a bot", hint=TOKEN_HINT)
    return found


def find_webhook_secret(context: ChannelContext, secret: Secret | None) -> str:
    """Raises ConfigError: without one anybody could write in anybody's name."""
    hint = "set it to 1 to 256 letters, digits, _ or -, such as the output of: openssl rand -hex 32"
    found = required_secret(context, secret, "webhookSecret", hint)
    if not re.fullmatch(r"[\w-]{1,256}", found, re.ASCII):
        raise ConfigError("channels.telegram.webhookSecret has letters that Telegram does not take", hint=hint)
    return found


def _check_groups(own: User) -> ChannelCheck:
    if not own.can_join_groups:
        return ChannelCheck("groups", True, "it cannot be added to groups", "to allow it: @BotFather, /setjoingroups")
    if own.can_read_all_group_messages:
        return ChannelCheck("groups", True, "in groups it receives all messages")
    return ChannelCheck(
        "groups",
        ok=True,
        about="in groups it receives only commands, mentions and answers to it",
        hint="for all messages: @BotFather, /setprivacy, Disable; then add it to the group again",
    )


def _command_name(name: str) -> str:
    """The name as Telegram allows it: small letters, digits and underscores, at most 32."""
    return re.sub(r"[^a-z0-9_]", "", name.lower().replace("-", "_"))[:32]
