"""The provider protocol: stream one reply, with typed failures."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from msgspec import Struct

from palinurus.domain.errors import ProviderError
from palinurus.domain.messages import AssistantMessage, Message, ReplyFormat
from palinurus.domain.tool import ToolSpec


class ModelRef(Struct, frozen=True):
    """`provider/model`, split at the first slash: model names may contain slashes."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"

    @classmethod
    def parse(cls, text: str) -> ModelRef:
        provider, _, model = text.partition("/")
        return cls(provider.strip().lower(), model.strip())


EMBEDDED = "embedded"  # the provider of the embedded models
SCOUT = ModelRef(EMBEDDED, "scout")
SCOUT_WINDOW = 32_000
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
TALKER = ModelRef(EMBEDDED, "smollm2")  # chats for Scout, if installed


class Head(Struct, frozen=True):
    """The part of a request that stays the same for a whole epoch."""

    system: str
    tools: tuple[ToolSpec, ...] = ()


ANY_TOOL = "*"


class ModelRequest(Struct, frozen=True):
    """Everything that one call sends. Within an epoch, `messages` only grows at its end."""

    model: str
    head: Head
    messages: tuple[Message, ...]
    thinking: str = "off"
    max_tokens: int | None = None
    tool_choice: str = ""  # a tool that the reply must call; ANY_TOOL: one or more of them; empty: as the model likes
    reply_format: ReplyFormat | None = None  # the wires of OpenAI enforce it


class TextDelta(Struct, frozen=True):
    text: str


class ThinkingTextDelta(Struct, frozen=True):
    text: str


class ReplyNotice(Struct, frozen=True):
    """A notice to the person while the reply is streamed, in one line.

    `discard`: the text streamed so far belongs to a failed attempt.
    """

    text: str
    discard: bool = False


class ReplyDone(Struct, frozen=True):
    """The last event of a successful stream: the whole reply, with usage and stop reason."""

    message: AssistantMessage


class ReplyFailed(Struct, frozen=True):
    """The last event of a failed stream. `partial` holds the text that had arrived."""

    error: ProviderError
    partial: str = ""


ReplyEvent = TextDelta | ThinkingTextDelta | ReplyNotice | ReplyDone | ReplyFailed


class Provider(Protocol):
    """Streams one reply.

    The last event is ReplyDone or ReplyFailed, and exactly one of them; stream() itself raises nothing but
    cancellation. A stream that ends without the wire's own final event is a failure, whatever had arrived.
    """

    @property
    def name(self) -> str: ...

    @property
    def wire(self) -> str:
        """The wire format; a change of wire starts a new epoch."""

    def context_window(self, model: str) -> int: ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]: ...

    async def close(self) -> None: ...


class Unavailable(Struct, frozen=True, eq=False):
    """Implements Provider: fails each request with a fixed reason.

    It replaces a wrongly configured one: the message is accepted and stored, and the reason is the reply. `wire` and
    `window` are those of the real provider, so that nothing changes once it works.
    """

    name: str
    error: ProviderError
    wire: str = "unavailable"
    window: int = 32_000

    def context_window(self, model: str) -> int:
        return self.window

    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        yield ReplyFailed(self.error)

    async def close(self) -> None:
        pass
