"""A reply in the making, whatever the wire: what a gatherer owes, and what all gatherers share."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from palinurus.domain.errors import Failure, ProviderError
from palinurus.domain.messages import AssistantMessage, Text, Thinking, ToolCall, Usage
from palinurus.domain.tool import MALFORMED
from palinurus.providers.provider import ReplyEvent
from palinurus.providers.wires.failures import Call, failure

Stop = Literal["stop", "length", "toolUse"]

_decode_any = msgspec.json.Decoder().decode


class Gathered(msgspec.Struct, frozen=True):
    """The whole reply, as far as the wire knows it."""

    content: tuple[Text | Thinking | ToolCall, ...]
    usage: Usage
    stop: Stop


class Gatherer(Protocol):
    """Takes payloads as they come, gives the events they stand for, and in the end the whole reply.

    `add` and `finish` raise ProviderError for whatever makes the reply no reply, and nothing else.
    """

    @property
    def text(self) -> str:
        """What has been said so far."""

    @property
    def done(self) -> bool:
        """Whether the server said that this was all."""

    def add(self, payload: bytes) -> list[ReplyEvent]: ...

    def finish(self, *, now_ms: int) -> Gathered:
        """Called once the body has ended cleanly. `now_ms` starts the ids of calls that came without one."""


def read_json(text: str) -> Any:
    """The value, or None for what is no JSON."""
    try:
        return _decode_any(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


def read_arguments(raw: str, *, cut: bool) -> dict[str, Any]:
    """What the model sent, or the text of it under MALFORMED. `cut`: the reply ran into its length limit,
    so that even no arguments at all may be half of something."""
    if not raw.strip() and not cut:
        return {}
    found = read_json(raw)
    if isinstance(found, str):  # some servers encode twice
        found = read_json(found)
    return found if isinstance(found, dict) else {MALFORMED: raw}


def own_id(wanted: str, taken: set[str], fresh: str) -> str:
    """An id that no call of this reply has yet: the wanted one if it is free. `fresh` is free for sure."""
    found = wanted if wanted and wanted not in taken else fresh
    taken.add(found)
    return found


def stop_of(content: tuple[Text | Thinking | ToolCall, ...], *, cut: bool) -> Stop:
    if cut:
        return "length"
    return "toolUse" if any(isinstance(block, ToolCall) for block in content) else "stop"


def not_this_wire(call: Call, payload: bytes) -> ProviderError:
    start = payload[:80].decode("utf-8", "replace")
    return failure(call, Failure.MALFORMED, f"not a chunk of this wire: {start!r}")


def nothing_came(call: Call) -> ProviderError:
    return failure(call, Failure.MALFORMED, "the answer held no chunk of this wire")


def never_ended(call: Call) -> ProviderError:
    return failure(call, Failure.NETWORK, "the stream ended without saying that it was finished", hint="try again")


def as_message(reply: Gathered, *, provider: str, model: str, wire: str, now_ms: int) -> AssistantMessage:
    return AssistantMessage(
        content=reply.content,
        provider=provider,
        model=model,
        api=wire,
        usage=reply.usage,
        stop_reason=reply.stop,
        timestamp=now_ms,
    )
