"""What people, models and tools say to each other.

The JSON form of these records is the one OpenClaw writes into its transcripts (`role`, typed content blocks, camel
case), so a stored row needs no translation. They are msgspec structs: decoding a row is parsing and checking in one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct


class Origin(StrEnum):
    """Who is behind a text. It survives into transcripts and memory, and the tool gate sees it."""

    OWNER = "owner"
    AGENT = "agent"
    OUTSIDE = "outside"
    SYSTEM = "system"


OUTSIDE_MARK = "from outside)"  # in every line of memory whose words are not the owner's
NOTED_OUTSIDE = f" (noted in a turn that had read text {OUTSIDE_MARK}"


class Text(Struct, frozen=True, tag_field="type", tag="text", rename="camel", omit_defaults=True):
    text: str
    text_signature: str | None = None  # a provider's own; only the model that made it is shown it again


class Thinking(Struct, frozen=True, tag_field="type", tag="thinking", rename="camel", omit_defaults=True):
    thinking: str
    thinking_signature: str | None = None
    redacted: bool = False  # thoughts that only the provider can read: they are in the signature


class ToolCall(Struct, frozen=True, tag_field="type", tag="toolCall", rename="camel", omit_defaults=True):
    id: str
    name: str
    arguments: dict[str, Any]
    thought_signature: str | None = None


class Image(Struct, frozen=True, tag_field="type", tag="image", rename="camel"):
    data: str  # base64
    mime_type: str


class Usage(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Tokens of one model call, as the provider counted them. `input` excludes what the cache served."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
        )


class ContextNote(Struct, frozen=True, omit_defaults=True):
    """What rides in the newest message beside the words of the sender: the time, an edited file, a notice.

    Stored with the message, so that the same bytes are sent again next time; never indexed as memory.
    """

    kind: str  # time | file | heartbeat | notice | history | recall | startup
    text: str
    name: str = ""
    digest: str = ""  # of what may change: what the model has been shown
    origin: Origin = Origin.OWNER
    sources: tuple[str, ...] = ()  # where words from outside came from: see provenance.py


class UserMessage(Struct, frozen=True, tag_field="role", tag="user", omit_defaults=True):
    content: str | tuple[Text | Image, ...]
    timestamp: int = 0
    origin: Origin = Origin.OWNER
    context: tuple[ContextNote, ...] = ()
    also: tuple[str, ...] = ()  # ids of further runs whose words it holds: they came while a turn went on
    sources: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return text_of(self.content)


class AssistantMessage(Struct, frozen=True, tag_field="role", tag="assistant", rename="camel", omit_defaults=True):
    content: tuple[Text | Thinking | ToolCall, ...]
    provider: str = ""
    model: str = ""
    api: str = ""
    usage: Usage = Usage()
    stop_reason: Literal["stop", "length", "toolUse", "error", "aborted"] = "stop"
    error_message: str | None = None
    timestamp: int = 0
    sources: tuple[str, ...] = ()  # of words that a run elsewhere has sent here after it had read text from outside

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(block for block in self.content if isinstance(block, ToolCall))


class ToolResult(Struct, frozen=True, tag_field="role", tag="toolResult", rename="camel", omit_defaults=True):
    tool_call_id: str
    tool_name: str
    content: str | tuple[Text | Image, ...]
    is_error: bool = False
    timestamp: int = 0
    origin: Origin = Origin.OWNER
    details: dict[str, Any] | None = None
    sources: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return text_of(self.content)


Message = UserMessage | AssistantMessage | ToolResult


def text_of(content: str | tuple[Text | Image, ...]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block.text for block in content if isinstance(block, Text))
