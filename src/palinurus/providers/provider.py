"""What a turn needs of a model: stream one reply, and fail in words that have a type."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from msgspec import Struct

from palinurus.domain.errors import ProviderError
from palinurus.domain.messages import AssistantMessage, Message
from palinurus.domain.tool import ToolSpec


class ModelRef(Struct, frozen=True):
    """`provider/model`, split at the first slash: model names have slashes of their own."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"

    @classmethod
    def parse(cls, text: str) -> ModelRef:
        provider, _, model = text.partition("/")
        return cls(provider.strip().lower(), model.strip())


class Head(Struct, frozen=True):
    """The part of a request that stays the same for a whole epoch."""

    system: str
    tools: tuple[ToolSpec, ...] = ()


class ModelRequest(Struct, frozen=True):
    """Everything that one call sends. `messages` only ever grows at its end within an epoch."""

    model: str
    head: Head
    messages: tuple[Message, ...]
    thinking: str = "off"
    max_tokens: int | None = None


class TextDelta(Struct, frozen=True):
    text: str


class ThinkingTextDelta(Struct, frozen=True):
    text: str


class Notice(Struct, frozen=True):
    """Something the person should know while the reply is on its way, in one line.

    `discard`: the text streamed so far belongs to an attempt that was given up.
    """

    text: str
    discard: bool = False


class ReplyDone(Struct, frozen=True):
    """The last event of a good stream: the whole reply, with usage and stop reason."""

    message: AssistantMessage


class ReplyFailed(Struct, frozen=True):
    """The last event of a bad stream. `partial` holds the text that had arrived."""

    error: ProviderError
    partial: str = ""


ReplyEvent = TextDelta | ThinkingTextDelta | Notice | ReplyDone | ReplyFailed


class Provider(Protocol):
    """Streams one reply.

    The last event is ReplyDone or ReplyFailed, and exactly one of them; stream() itself raises nothing but
    cancellation. A stream that ends without the wire's own final event is a failure, whatever had arrived.
    """

    @property
    def name(self) -> str: ...

    @property
    def wire(self) -> str:
        """Which format it speaks; a change of wire starts a new epoch."""

    def context_window(self, model: str) -> int: ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]: ...

    async def close(self) -> None: ...
