"""A context engine without summaries: the first message, and then the newest ones that fit.

The window slides in steps: it grows to `mostTokens` and is then cut to `keepTokens`, so that between two cuts each
request begins with the one before and the provider's cache hits. Where it begins follows from the messages alone, so a
restart changes nothing. Nothing is removed from the transcript: a line says how many messages are not shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palinurus.context.budget import rough_tokens
from palinurus.domain.messages import AssistantMessage, Text, UserMessage
from palinurus.plugin import Assembly, LegacyEngine, Message, PluginApp, Services

NOT_SHOWN = "[{} messages between the first one and the next are not shown. The transcript has them.]"


class SlidingWindow(LegacyEngine):
    """Implements ContextEngine. Summaries, when the model's own window is full, are the built-in ones."""

    name = "window"

    def __init__(self, most: int, keep: int) -> None:
        self._most = most
        self._keep = min(keep, most)

    async def assemble(self, session: Any, assembly: Assembly) -> Sequence[Message]:
        messages = assembly.messages
        start = begin_of_window(messages, min(self._most, assembly.window), self._keep)
        if start <= 1:
            return messages
        hidden = AssistantMessage((Text(NOT_SHOWN.format(start - 1)),))
        return (messages[0], hidden, *messages[start:])


def begin_of_window(messages: Sequence[Message], most: int, keep: int) -> int:
    """The index of the first message after the pinned one: always a person's, so that every result has its call."""
    start, total = 0, 0
    turns: list[tuple[int, int]] = []  # where a person has spoken inside the window, and how many tokens were before
    for index, message in enumerate(messages):
        if isinstance(message, UserMessage):
            turns.append((index, total))
        total += rough_tokens(message)
        if total > most:
            inside = [turn for turn in turns if total - turn[1] <= keep]
            start, before = inside[0] if inside else turns[-1]  # at least the newest turn, whatever it takes
            total -= before
            turns = [(at, tokens - before) for at, tokens in turns if at >= start]
    return start


def register(app: PluginApp) -> None:
    def make(services: Services) -> SlidingWindow:
        return SlidingWindow(app.config["mostTokens"], app.config["keepTokens"])

    app.context_engine(make)
