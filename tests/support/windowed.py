"""A scripted model with a small window that counts honestly, refuses what is too long, and can sum up."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import msgspec

from palinurus.context.budget import message_tokens
from palinurus.context.flush import QUESTION
from palinurus.context.summary import HEADINGS, SYSTEM
from palinurus.domain.errors import Failure
from palinurus.domain.messages import Message, Usage
from palinurus.providers.provider import Head, ModelRequest, ReplyEvent
from palinurus.testing.fakes import Reply, Script, ScriptedProvider, fails
from palinurus.text.tokens import estimate_tokens

_EXACT = re.compile(r"^Identifiers to keep exactly: (.*)$", re.MULTILINE)


def is_summary(request: ModelRequest) -> bool:
    """Whether it asks for a summary and is no part of the conversation."""
    return request.head.system == SYSTEM


def is_flush(request: ModelRequest) -> bool:
    """Whether it asks for notes behind a copy of the conversation."""
    return request.messages[-1].text.startswith(QUESTION)


def good_summary(request: ModelRequest) -> Reply:
    """One that passes the check, and says how long the text was."""
    asked = request.messages[0].text
    exact = _EXACT.search(asked)
    bodies = [
        f"- {len(asked)} characters were summed up",
        "- none",
        "- none",
        "- none",
        f"- {exact[1] if exact else 'none'}",
    ]
    return Reply("\n".join(f"{heading}\n{body}" for heading, body in zip(HEADINGS, bodies, strict=True)))


class WindowedProvider(ScriptedProvider):
    """Implements providers.Provider. `requests` are those of the conversation, `summaries` and `flushes` the others."""

    def __init__(
        self, *replies: Reply | str, window: int = 8_000, otherwise: Script | None = None, sums: Script = good_summary
    ) -> None:
        super().__init__(*replies, otherwise=otherwise)
        self.window = window
        self.sums = sums
        self.summaries: list[ModelRequest] = []
        self.flushes: list[ModelRequest] = []
        self.notes: Script = lambda _: Reply("NO_REPLY")
        self.counts: list[int] = []  # tokens of each request of the conversation
        self._heads: dict[int, tuple[Head, int]] = {}
        self._counted: dict[int, tuple[Message, int]] = {}  # by identity: the same message is counted once

    def context_window(self, model: str) -> int:
        return self.window

    def tokens(self, request: ModelRequest) -> int:
        head = request.head
        if id(head.system) not in self._heads:
            schemas = msgspec.json.encode(head.tools).decode() if head.tools else ""
            self._heads[id(head.system)] = head, estimate_tokens(head.system) + estimate_tokens(schemas)
        return self._heads[id(head.system)][1] + sum(map(self._count, request.messages))

    def _count(self, message: Message) -> int:
        if id(message) not in self._counted:
            self._counted[id(message)] = message, message_tokens(message)
        return self._counted[id(message)][1]

    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        tokens = self.tokens(request)
        if is_summary(request):
            self.summaries.append(request)
            reply = self.sums(request)
        elif is_flush(request):
            self.flushes.append(request)
            reply = self.notes(request)
        else:
            self.requests.append(request)
            self.counts.append(tokens)
            reply = self.replies.pop(0) if self.replies else self._otherwise(request)
        if tokens > self.window:
            reply = fails(Failure.CONTEXT_OVERFLOW, f"{tokens} tokens are more than {self.window}")
        if reply.error is None:
            usage = Usage(input=tokens, output=estimate_tokens(reply.text))
            reply = msgspec.structs.replace(reply, usage=usage)
        for event in reply.events(request.model):
            yield event
