"""The space that one turn has in its context window: checked before each call, and freed if it is short.

The running turn is cut like any other part of the session, so a session that outgrows its window continues in the same
turn: notes, summary, a new epoch, and the smaller request in place of the one that was too long.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from palinurus.agent.agent import TurnContext
from palinurus.agent.maintenance import ContextMaintenance
from palinurus.context.assemble import TurnOpening
from palinurus.context.budget import (
    MANY,
    WindowDivision,
    divide,
    message_tokens,
    messages_tokens,
    most_message_tokens,
    run_off_loop_if_many,
)
from palinurus.context.view import View, last_usage
from palinurus.domain.messages import AssistantMessage, Message, UserMessage
from palinurus.providers.provider import ModelRequest
from palinurus.sessions.transcript import MessageEntry

if TYPE_CHECKING:
    from palinurus.context.compact import Trigger

Count = Callable[[Message], int]
Reopen = Callable[[], Awaitable[tuple[View, TurnOpening]]]
"""Opens the turn again from the store, and stores the epoch that begins with it."""


class WindowBudget:
    """Implements agent.loop.RequestBudget."""

    def __init__(
        self, maintenance: ContextMaintenance, turn: TurnContext, view: View, opening: TurnOpening, reopen: Reopen
    ) -> None:
        self.opening = opening
        self._request = opening.request  # the last one that was checked
        self._maintenance = maintenance
        self._turn = turn
        self._view = view
        self._reopen = reopen
        self._head: int | None = None
        self._bases: dict[Count, int] = {}  # of the request that the turn opened with

    async def before_call(self, request: ModelRequest) -> ModelRequest | str | None:
        self._request = request
        if not await self._exceeds(self._division().threshold):
            return None
        if too_long := self._too_long(request):
            return too_long
        return await self._cut("threshold") if self._turn.agent.compaction.enabled else None

    async def after_overflow(self) -> ModelRequest | None:
        return await self._cut("overflow")

    async def is_nearly_full(self, answer: Sequence[Message]) -> bool:
        """Whether the turn, with this answer at its end, has left little space for the next one."""
        limit = self._division().threshold - self._turn.agent.compaction.flush.tokens_ahead(self._turn.window)
        counted = next((each.usage.total for each in answer if isinstance(each, AssistantMessage)), 0)
        return counted > limit or (not counted and await self._exceeds(limit, answer))

    def _division(self) -> WindowDivision:
        if self._head is None:
            self._head = self._maintenance.counts.head(self.opening.request.head)
        return divide(self._turn.window, self._head, self._turn.agent.compaction)

    async def _exceeds(self, limit: int, answer: Sequence[Message] = ()) -> bool:
        """Whether the last request, with this answer after it, has more tokens. Text is counted only if necessary."""
        if len(self._view.lines) <= MANY and self._filled(most_message_tokens, answer) <= limit:
            return False
        return await run_off_loop_if_many(self._view.lines, lambda: self._filled(message_tokens, answer)) > limit

    def _filled(self, count: Count, answer: Sequence[Message]) -> int:
        """The provider's count, and an estimate of what came since."""
        messages, known = (*self._request.messages, *answer), len(self.opening.request.messages)
        for index in range(len(messages) - 1, known - 1, -1):
            message = messages[index]
            if isinstance(message, AssistantMessage) and message.usage.total:
                return message.usage.total + sum(map(count, messages[index + 1 :]))
        if count not in self._bases:
            self._bases[count] = self._opening_tokens(count)
        return self._bases[count] + sum(map(count, messages[known:]))

    def _opening_tokens(self, count: Count) -> int:
        added = sum(count(entry.message) for entry in self.opening.entries if isinstance(entry, MessageEntry))
        counted, after = last_usage(self._view) if self.opening.epoch is self._view.epoch else (0, 0)
        lines = self._view.lines[after:] if counted else self._view.lines
        exact = count is message_tokens  # counts are cached
        earlier = sum(self._maintenance.counts.of(lines)) if exact else sum(count(line.message) for line in lines)
        return (counted or self._division().head) + earlier + added

    def _too_long(self, request: ModelRequest) -> str:
        """Why no cut would help: the message itself does not fit."""
        last, window = request.messages[-1], self._turn.window
        size = messages_tokens((last,)) if isinstance(last, UserMessage) else 0
        # A small one does not make it too long: then let the provider decide.
        if size + self._division().head <= window or size < window // 4:
            return ""
        return (
            f"the message has about {size:,} tokens, and the window of {request.model} holds {window:,} "
            "(send it in parts, or put it into a file of the workspace and name that)"
        )

    async def _cut(self, trigger: Trigger) -> ModelRequest | None:
        if not await self._maintenance.cut(self._turn, self._division(), trigger):
            return None
        self._view, opening = await self._reopen()
        self.opening = await self._maintenance.assembled(self._turn, opening)
        self._request, self._head, self._bases = self.opening.request, None, {}
        return self._request
