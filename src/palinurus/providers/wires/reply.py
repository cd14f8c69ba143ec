"""Builds a reply: what all wires share, and the limits on a reply."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import structs

from palinurus.domain.errors import Failure
from palinurus.domain.messages import AssistantMessage, Text, Thinking, ToolCall, Usage
from palinurus.domain.tool import MALFORMED
from palinurus.providers.provider import ReplyEvent, TextDelta, ThinkingTextDelta
from palinurus.providers.wires.failures import Call, failure

StopReason = Literal["stop", "length", "toolUse"]
ContentBlock = Text | Thinking | ToolCall
MAX_TEXT = 1_000_000  # characters of text, of thinking, or of the arguments of one call
MAX_HELD = 2 * MAX_TEXT  # of all together: beyond that the reply is cut
MAX_CALLS = 64
MAX_DEPTH = 128  # of lists and objects in the arguments of a call
SHOWN = 2_000  # characters shown of refused arguments
_NEST = re.compile(r"[\[{\]}]|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_decode_any = msgspec.json.Decoder().decode


class Gatherer(ABC):
    """Takes payloads, returns their events, and finally the whole reply.

    `add` and `finish` raise ProviderError for an invalid reply, and nothing else.
    """

    decoder: ClassVar[msgspec.json.Decoder[Any]]  # of a payload
    length_stops: ClassVar[tuple[str, ...]]  # how the wire says that a reply reached its length limit
    done_ends = False  # whether `[DONE]` ends a reply; servers that speak several wires may send it on all of them
    needs_done = False  # whether a reply without a final event is incomplete

    def __init__(self, call: Call) -> None:
        self.held = 0  # characters of text, thinking and arguments so far
        self.done = False  # the server sent its final event
        self._call = call
        self._usage = Usage()
        self._stop = ""  # why the reply ended, in the wire's terms
        self._understood = False  # a chunk of this wire has arrived

    @property
    @abstractmethod
    def text(self) -> str:
        """The text so far."""

    @property
    @abstractmethod
    def calls(self) -> int:
        """The number of calls so far."""

    @abstractmethod
    def take(self, chunk: Any) -> list[TextDelta | ThinkingTextDelta]:
        """The events of a decoded chunk. What else it holds is added to `held`."""

    @abstractmethod
    def check_stop(self) -> None:
        """Raises ProviderError if the reply ended because something failed."""

    @abstractmethod
    def blocks(self, *, cut: bool) -> Iterable[ContentBlock]:
        """The content, its calls with the server's ids, if any."""

    def cut(self) -> None:
        """A limit is reached: the content so far is a reply cut by length."""
        self._stop, self.done = self.length_stops[0], True

    def add(self, payload: bytes) -> Sequence[ReplyEvent]:
        try:
            chunk = self.decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if not payload.startswith(b"[DONE]"):
                start = payload[:80].decode("utf-8", "replace")
                raise failure(self._call, Failure.MALFORMED, f"not a chunk of this wire: {start!r}") from None
            self.done = self.done or self.done_ends
            return []
        events = self.take(chunk)
        self.held += sum(len(event.text) for event in events)
        return events

    def finish(self, *, now_ms: int) -> AssistantMessage:
        """Called after a clean end of the body. `now_ms` is part of the ids of calls that came without one."""
        if not self._understood:
            raise failure(self._call, Failure.MALFORMED, "the answer held no chunk of this wire")
        if not self._stop or (self.needs_done and not self.done):
            remark = "the stream ended without saying that it was finished"
            raise failure(self._call, Failure.NETWORK, remark, hint="try again")
        self.check_stop()
        cut = self._stop in self.length_stops
        content: list[ContentBlock] = []
        taken: set[str] = set()
        for block in self.blocks(cut=cut):
            if isinstance(block, ToolCall):
                known = block.id and block.id not in taken
                call_id = block.id if known else f"{block.id or f'call_{now_ms:x}'}_{len(taken)}"
                taken.add(call_id)
                content.append(structs.replace(block, id=call_id))
            else:
                content.append(block)
        stop_reason: StopReason = "length" if cut else "toolUse" if taken else "stop"
        return AssistantMessage(tuple(content), usage=self._usage, stop_reason=stop_reason, timestamp=now_ms)


def read_json(text: str) -> Any:
    """The value, or None if it is not JSON."""
    try:
        return _decode_any(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def read_arguments(raw: str, *, cut: bool) -> dict[str, Any]:
    """The parsed arguments, or the raw text under MALFORMED. `cut`: the reply reached its length limit, so that even
    empty arguments may be incomplete.
    """
    if not raw.strip() and not cut:
        return {}
    if why := _refused(raw):
        return {MALFORMED: f"({why}) {raw[:SHOWN]} …"}
    found = read_json(raw)
    if isinstance(found, str):  # some servers encode twice
        found = read_json(found)
    return found if isinstance(found, dict) else {MALFORMED: raw}


def _refused(raw: str) -> str:
    """Why arguments are refused; empty if they are accepted."""
    if len(raw) > MAX_TEXT:
        return f"not taken: {len(raw):,} characters, at most {MAX_TEXT:,} are"
    depth = 0
    for match in _NEST.finditer(raw):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match.group(), 0)
        if depth > MAX_DEPTH:
            return f"not taken: nested deeper than {MAX_DEPTH} levels"
    return ""


def bounded(reply: AssistantMessage) -> tuple[AssistantMessage, str]:
    """The reply within the limits, and what was left out, for a person; the model reads it in the reply."""
    content: list[ContentBlock] = []
    text_room, thinking_room = MAX_TEXT, MAX_TEXT
    calls, remark = 0, ""
    for block in reply.content:
        match block:
            case ToolCall():
                calls += 1
                if calls <= MAX_CALLS:
                    content.append(block)
            case Text():
                if len(block.text) > text_room:
                    remark = f"the reply was cut at {MAX_TEXT:,} characters"
                    block = Text(f"{block.text[:text_room]}\n[{remark}]")  # noqa: PLW2901  # a signature is of the whole
                text_room = max(text_room - len(block.text), 0)
                content.append(block)
            case Thinking():
                if len(block.thinking) <= thinking_room:
                    content.append(block)
                else:
                    remark = remark or f"thoughts of more than {MAX_TEXT:,} characters were left out"
                thinking_room = max(thinking_room - len(block.thinking), 0)
    if calls > MAX_CALLS:
        remark = f"the reply asked for {calls:,} tool calls or more; the first {MAX_CALLS} were taken"
        content.insert(0, Text(f"[{remark}]"))
    return (structs.replace(reply, content=tuple(content)), remark) if remark else (reply, "")
