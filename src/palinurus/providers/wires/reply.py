"""A reply in the making, whatever the wire: what a gatherer owes, what all gatherers share, and how much is taken."""

from __future__ import annotations

import re
from typing import Any, Literal, Protocol

import msgspec

from palinurus.domain.errors import Failure, ProviderError
from palinurus.domain.messages import AssistantMessage, Text, Thinking, ToolCall, Usage
from palinurus.domain.tool import MALFORMED
from palinurus.providers.provider import ReplyEvent
from palinurus.providers.wires.failures import Call, failure

Stop = Literal["stop", "length", "toolUse"]

MAX_TEXT = 1_000_000  # characters of text, of thoughts, or of the arguments of one call
MAX_HELD = 2 * MAX_TEXT  # of all of them together: whoever says more is not listened to any longer
MAX_CALLS = 64
MAX_DEPTH = 128  # of lists and objects in the arguments of a call
SHOWN = 2_000  # characters of arguments that were not taken
_NEST = re.compile(r"[\[{\]}]|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)

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

    @property
    def held(self) -> int:
        """How many characters of text, thoughts and arguments have come."""

    @property
    def calls(self) -> int:
        """How many calls have begun."""

    def add(self, payload: bytes) -> list[ReplyEvent]: ...

    def cut(self) -> None:
        """No more is wanted: what has come is a reply that ran into a limit of length."""

    def finish(self, *, now_ms: int) -> Gathered:
        """Called once the body has ended cleanly. `now_ms` starts the ids of calls that came without one."""


def read_json(text: str) -> Any:
    """The value, or None for what is no JSON."""
    try:
        return _decode_any(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def read_arguments(raw: str, *, cut: bool) -> dict[str, Any]:
    """What the model sent, or the text of it under MALFORMED. `cut`: the reply ran into its length limit,
    so that even no arguments at all may be half of something."""
    if not raw.strip() and not cut:
        return {}
    if why := _refused(raw):
        return {MALFORMED: f"({why}) {raw[:SHOWN]} …"}
    found = read_json(raw)
    if isinstance(found, str):  # some servers encode twice
        found = read_json(found)
    return found if isinstance(found, dict) else {MALFORMED: raw}


def _refused(raw: str) -> str:
    """Why arguments are not taken; empty when they may be."""
    if len(raw) > MAX_TEXT:
        return f"not taken: {len(raw):,} characters, at most {MAX_TEXT:,} are"
    depth = 0
    for match in _NEST.finditer(raw):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match.group(), 0)
        if depth > MAX_DEPTH:
            return f"not taken: nested deeper than {MAX_DEPTH} levels"
    return ""


def bounded(reply: Gathered) -> tuple[Gathered, str]:
    """The reply as far as it is taken, and what was left out, for a person; the model reads it in the reply."""
    content: list[Text | Thinking | ToolCall] = []
    text_room, thinking_room = MAX_TEXT, MAX_TEXT
    calls, told = 0, ""
    for block in reply.content:
        match block:
            case ToolCall():
                calls += 1
                if calls <= MAX_CALLS:
                    content.append(block)
            case Text():
                if len(block.text) > text_room:
                    told = f"the reply was cut at {MAX_TEXT:,} characters"
                    block = Text(f"{block.text[:text_room]}\n[{told}]")  # noqa: PLW2901  # a signature is of the whole
                text_room = max(text_room - len(block.text), 0)
                content.append(block)
            case Thinking():
                if len(block.thinking) <= thinking_room:
                    content.append(block)
                else:
                    told = told or f"thoughts of more than {MAX_TEXT:,} characters were left out"
                thinking_room = max(thinking_room - len(block.thinking), 0)
    if calls > MAX_CALLS:
        told = f"the reply asked for {calls:,} tool calls or more; the first {MAX_CALLS} were taken"
        content.insert(0, Text(f"[{told}]"))
    return (msgspec.structs.replace(reply, content=tuple(content)), told) if told else (reply, "")


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
