"""Long polling: chats are served side by side, each in its order, and Telegram forgets an update only after it and all
before it were taken.

Telegram keeps what is not confirmed, so nothing is stored here: after a crash the same updates come again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal

from telegram.error import TelegramError

from palinurus.dispatch.channels import ChannelContext, ChannelInbox, RequestRetry
from palinurus.domain.errors import ConfigError
from palinurus.extensions.channels.intake import NOT_TAKEN, ChatOrder
from palinurus.extensions.channels.telegram.client import TOKEN_HINT, BotApiError, BotClient
from palinurus.extensions.channels.telegram.updates import UpdateContent

POLL_SECONDS = 30
BUSY_SECONDS = 1.0  # between polls while a slow chat holds the confirmation back
CONFLICT_SECONDS = 10.0

UpdateState = Literal["waiting", "taken", "refused"]

log = logging.getLogger(__name__)


class UpdatePoller:
    """Polls until it is cancelled. At most UPDATES_PER_POLL updates are out at a time: those that Telegram returns
    from the first one on that is not confirmed."""

    def __init__(
        self,
        bot: BotClient,
        read: Callable[[Any], UpdateContent],
        take: Callable[[UpdateContent], Awaitable[None]],
        context: ChannelContext,
        policy: RequestRetry,
    ) -> None:
        """`read` raises ValueError for what is no update; `take` returns when it is taken, or raises of NOT_TAKEN."""
        self._bot = bot
        self._read = read
        self._take = take
        self._context = context
        self._policy = policy
        self._offset = 0  # Telegram forgets what is before it; 0: there is nothing to confirm
        self._states: dict[int, UpdateState] = {}  # of updates that are not confirmed
        self._refused: set[str] = set()  # chats whose next updates wait for one that was refused
        self._order = ChatOrder()

    async def run(self, inbox: ChannelInbox, identity: str) -> None:
        """Raises ConfigError when the token is wrong."""
        trouble, failures, refusals = "", 0, 0
        try:
            while True:
                try:
                    updates = await self._bot.poll(self._offset, 0 if self._order.is_busy() else POLL_SECONDS)
                except TelegramError as error:
                    failures += 1
                    if trouble != (trouble := describe_trouble(error)):
                        inbox.disconnected(trouble)
                    await self._pause(failures, error)
                    continue
                if trouble:
                    trouble, failures = "", 0
                    inbox.connected(identity)
                refusals = refusals + 1 if await self._pass_on(updates) else 0
                if refusals:
                    await self._pause(refusals)
        finally:
            await self._order.finish()

    async def _pause(self, times: int, error: TelegramError | None = None) -> None:
        least = error.retry_after or 0.0 if isinstance(error, BotApiError) else 0.0
        if isinstance(error, BotApiError) and error.code == 409:
            least = CONFLICT_SECONDS
        pause = min(self._policy.min_delay * 2 ** min(times - 1, 16), self._policy.max_delay)
        await self._context.sleep(max(pause * (1 + self._policy.jitter * self._context.dice()), least))

    async def _pass_on(self, updates: list[Any]) -> bool:
        """Returns whether an update was refused, so that it has to be polled again."""
        if not updates and not self._states:
            self._offset = 0  # it is confirmed; after a quiet week Telegram starts with lower numbers
        self._refused = {chat for chat in self._refused if self._order.is_busy(chat)}
        for raw in updates:
            self._queue(raw)
            await asyncio.sleep(0)  # a hundred in a row must not hold the loop
        await self._order.settle(BUSY_SECONDS)
        self._confirm()
        return "refused" in self._states.values()

    def _queue(self, raw: Any) -> None:
        update_id = raw.get("update_id") if isinstance(raw, dict) else None
        if isinstance(update_id, int) and self._states.get(update_id) in ("waiting", "taken"):
            return  # it is here already
        try:
            update = self._read(raw)
        except ValueError as error:
            log.warning("An update of Telegram cannot be read and is left out: %s", error)
            if isinstance(update_id, int):
                self._states[update_id] = "taken"
            return
        self._states[update.id] = "waiting"
        self._order.start(partial(self._take_next, update), str(update.chat))

    async def _take_next(self, update: UpdateContent) -> None:
        """After a refusal the rest of a chat waits too, so that its order stays."""
        chat = str(update.chat)
        if chat in self._refused:
            self._states[update.id] = "refused"
            return
        try:
            await self._take(update)
        except NOT_TAKEN as error:
            log.warning("A message of Telegram was not taken, and is asked for again: %s", error)
            self._states[update.id] = "refused"
            self._refused.add(chat)
        else:
            self._states[update.id] = "taken"

    def _confirm(self) -> None:
        for update_id in sorted(self._states):
            if self._states[update_id] != "taken":
                return
            del self._states[update_id]
            self._offset = max(self._offset, update_id + 1)


def describe_trouble(error: TelegramError) -> str:
    """Raises ConfigError when only another token can help."""
    if isinstance(error, BotApiError) and error.is_about_token:
        raise ConfigError(f"Telegram does not accept the token of the bot: {error.message}", hint=TOKEN_HINT) from error
    if isinstance(error, BotApiError) and error.code == 409:
        return f"another program receives the updates of this bot ({error.message}): stop it, or take a new token"
    return f"Telegram is not reached: {error.message or type(error).__name__}"
