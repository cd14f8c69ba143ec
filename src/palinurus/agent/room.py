"""The room that one turn has in its window: watched before each call, and made when it is short.

The turn is cut like any other part of the story, so a conversation that outgrows its window goes on in the same turn:
notes, summary, a new epoch, and the smaller request in place of the one that was too long.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from palinurus.config.compacting import CompactionSettings
from palinurus.context.beside import beside_many
from palinurus.context.budget import messages_tokens
from palinurus.context.compact import Compacted, Compaction, Order, Trigger
from palinurus.context.cut import Room, divide
from palinurus.context.opening import Opening
from palinurus.context.view import View, last_usage
from palinurus.domain.messages import AssistantMessage, UserMessage
from palinurus.providers.provider import ModelRequest
from palinurus.sessions.journal import Journal
from palinurus.sessions.transcript import MessageEntry

log = logging.getLogger(__name__)


class TurnRoom:
    """Implements agent.relief.Relief for one turn."""

    def __init__(
        self,
        compaction: Compaction,
        journal: Journal,
        settings: CompactionSettings,
        window: int,
        view: View,
        opening: Opening,
        *,
        order: Callable[[Room, Trigger], Order],
        reopen: Callable[[], Awaitable[tuple[View, Opening]]],
        take_notes: Callable[[], Awaitable[None]],
        tell: Callable[[Compacted], None],
    ) -> None:
        self.opening = opening
        self._compaction = compaction
        self._journal = journal
        self._settings = settings
        self._window = window
        self._view = view
        self._order = order
        self._reopen = reopen
        self._take_notes = take_notes
        self._tell = tell
        self._head: int | None = None
        self._base: int | None = None
        self.tokens = 0  # of the last request that was looked at

    async def before(self, request: ModelRequest) -> ModelRequest | str | None:
        self.tokens = await beside_many(self._view.lines, lambda: self.filled(request))
        if self.tokens <= self.room().threshold:
            return None
        if too_long := self._too_long(request):
            return too_long
        return await self._cut("threshold") if self._settings.enabled else None

    async def after(self, request: ModelRequest) -> ModelRequest | None:
        return await self._cut("overflow")

    def room(self) -> Room:
        if self._head is None:
            self._head = self._compaction.head_tokens(self.opening.request.head)
        return divide(self._window, self._head, self._settings)

    def filled(self, request: ModelRequest) -> int:
        """How many tokens the request has: what the provider has counted, and an estimate of what came since."""
        known = len(self.opening.request.messages)
        for index in range(len(request.messages) - 1, known - 1, -1):
            message = request.messages[index]
            if isinstance(message, AssistantMessage) and message.usage.total:
                return message.usage.total + messages_tokens(request.messages[index + 1 :])
        if self._base is None:
            self._base = self._opened()
        return self._base + messages_tokens(request.messages[known:])

    def _opened(self) -> int:
        """Of the request that the turn opened with."""
        came = messages_tokens(entry.message for entry in self.opening.entries if isinstance(entry, MessageEntry))
        lines = self._view.lines
        counted, after = last_usage(self._view) if self.opening.epoch is self._view.epoch else (0, 0)
        if counted:
            return counted + sum(self._compaction.weigh(lines[after:])) + came
        return self.room().head + sum(self._compaction.weigh(lines)) + came

    def _too_long(self, request: ModelRequest) -> str:
        """Why no cut would help: the message that is to be answered does not fit by itself."""
        last = request.messages[-1]
        size = messages_tokens((last,)) if isinstance(last, UserMessage) else 0
        # A small one is not what makes it too long: then the provider may say what it thinks of it.
        if size + self.room().head <= self._window or size < self._window // 4:
            return ""
        return (
            f"the message has about {size:,} tokens, and the window of {request.model} holds {self._window:,} "
            "(send it in parts, or put it into a file of the workspace and name that)"
        )

    async def _cut(self, trigger: Trigger) -> ModelRequest | None:
        if trigger == "threshold":  # what the provider refused would be refused with a question behind it, too
            await self._take_notes()
        done = await self._compaction.compact(self._journal, self._order(self.room(), trigger))
        if done is None:
            return None
        log.info("%s: %d messages summed up by %s", self._journal.session.key, done.messages, done.made_by)
        self._tell(done)
        self._view, self.opening = await self._reopen()
        self._head = self._base = None
        return self.opening.request
