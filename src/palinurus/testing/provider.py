"""A model with scripted replies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from msgspec import Struct

from palinurus.domain.errors import Failure, ProviderError
from palinurus.domain.messages import AssistantMessage, Text, ToolCall, Usage
from palinurus.providers.provider import ModelRequest, ReplyDone, ReplyEvent, ReplyFailed, TextDelta


class Reply(Struct, frozen=True):
    """One scripted reply: text, tool calls, or a failure."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    error: ProviderError | None = None
    usage: Usage = Usage(input=100, output=10)

    def events(self, model: str) -> list[ReplyEvent]:
        deltas: list[ReplyEvent] = [TextDelta(word) for word in _pieces(self.text)]
        if self.error is not None:
            return [*deltas, ReplyFailed(self.error, self.text)]
        content = (*((Text(self.text),) if self.text else ()), *self.calls)
        reason = "toolUse" if self.calls else "stop"
        message = AssistantMessage(content, "scripted", model, "scripted", self.usage, reason)  # type: ignore[arg-type]
        return [*deltas, ReplyDone(message)]


def says(text: str) -> Reply:
    return Reply(text)


def call(name: str, /, call_id: str = "", **arguments: Any) -> ToolCall:
    return ToolCall(call_id or f"call_{name}", name, arguments)


def calls(*wanted: ToolCall, text: str = "") -> Reply:
    return Reply(text, wanted)


def fails(kind: Failure, message: str = "no") -> Reply:
    return Reply(error=ProviderError(message, kind=kind))


Script = Callable[[ModelRequest], Reply]

AT_ONCE = 400  # events that come in one piece from the network, about


class ScriptedProvider:
    """Implements providers.Provider. Gives the replies in order, then echoes; stores every request."""

    name = "scripted"
    wire = "scripted"

    def __init__(self, *replies: Reply | str, otherwise: Script | None = None) -> None:
        self.replies: list[Reply] = [Reply(reply) if isinstance(reply, str) else reply for reply in replies]
        self.requests: list[ModelRequest] = []
        self.window = 32_000
        self._otherwise = otherwise or _echo

    def says(self, *replies: Reply | str) -> None:
        self.replies += [Reply(reply) if isinstance(reply, str) else reply for reply in replies]

    def context_window(self, model: str) -> int:
        return self.window

    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        self.requests.append(request)
        reply = self.replies.pop(0) if self.replies else self._otherwise(request)
        for number, event in enumerate(reply.events(request.model), 1):
            yield event
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)

    async def close(self) -> None:
        pass


def _echo(request: ModelRequest) -> Reply:
    return Reply(f"you said: {request.messages[-1].text}")


def _pieces(text: str) -> Sequence[str]:
    words = text.split(" ")
    return [word if index == len(words) - 1 else f"{word} " for index, word in enumerate(words)] if text else []
