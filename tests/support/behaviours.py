"""What a model server may do to its client: well-behaved replies, and the misbehaviour seen in the field.

Behaviours are the same on every wire; dialects.py puts them in the words of each. Usage and ways to finish are written
as OpenAI writes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import msgspec

Json = dict[str, Any]
USAGE: Json = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}


@dataclass(frozen=True)
class Says:
    """A good reply in so many chunks, with so many seconds before each."""

    text: str
    chunks: int = 1
    delay: float = 0.0
    thinking: str = ""
    signature: str = ""  # of the thoughts, on wires that sign them
    redacted: str = ""  # thoughts that nobody can read, on Anthropic's wire
    usage: Json | None = field(default_factory=lambda: USAGE)
    finish: str = "stop"
    done: bool = True  # whether the wire's last event closes the stream

    def pieces(self) -> list[str]:
        step = max(1, -(-len(self.text) // max(1, self.chunks)))
        return [self.text[start : start + step] for start in range(0, len(self.text), step)]


@dataclass(frozen=True)
class SentCall:
    """One call as the server will send it."""

    id: str
    name: str
    arguments: Json | str

    @property
    def raw(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else msgspec.json.encode(self.arguments).decode()

    @property
    def parsed(self) -> Any:
        """For wires whose arguments are JSON and not the text of it. What is no JSON stays text."""
        if not isinstance(self.arguments, str):
            return self.arguments
        try:
            return msgspec.json.decode(self.arguments)
        except msgspec.DecodeError:
            return self.arguments


@dataclass(frozen=True, init=False)
class Calls:
    """Tool calls. By default their arguments come in pieces, the pieces of parallel calls interleaved by index."""

    calls: tuple[tuple[str, Json | str], ...]
    text: str
    whole: bool  # each call in one delta, on OpenAI's wire without an index
    nameless: bool  # without ids, on Google's wire
    signature: str  # of the thoughts behind the calls, on Google's wire
    delay: ClassVar[float] = 0.0
    usage: ClassVar[Json | None] = USAGE
    finish: ClassVar[str] = "tool_calls"
    done: ClassVar[bool] = True

    def __init__(
        self,
        *calls: tuple[str, Json | str],
        text: str = "",
        whole: bool = False,
        nameless: bool = False,
        signature: str = "",
    ) -> None:
        object.__setattr__(self, "calls", calls)
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "whole", whole)
        object.__setattr__(self, "nameless", nameless)
        object.__setattr__(self, "signature", signature)

    def listed(self) -> list[SentCall]:
        return [SentCall(f"call_{number}", name, arguments) for number, (name, arguments) in enumerate(self.calls)]

    def interleaved(self) -> Iterator[tuple[int, str]]:
        """The arguments in small pieces, those of parallel calls by turns, each with the number of its call."""
        rest = [[call.raw[at : at + 4] for at in range(0, len(call.raw), 4)] for call in self.listed()]
        while any(rest):
            for number, pieces in enumerate(rest):
                if pieces:
                    yield number, pieces.pop(0)


@dataclass(frozen=True)
class Cuts:
    """Says a part and tears the connection."""

    after: str = ""


@dataclass(frozen=True)
class CutsWithoutFinish:
    """Says a part and ends the body cleanly, without a finish reason."""

    after: str = ""
    done: bool = False


@dataclass(frozen=True)
class Answers:
    """One plain HTTP answer: 429 with Retry-After, 529, an overflow, a refused key."""

    status: int
    body: Json | str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Garbage:
    """A 200 whose body is these bytes."""

    body: bytes = b"data: {not json\n\n"


@dataclass(frozen=True)
class ErrorInStream:
    """A stream that began well and holds an error object."""

    after: str = ""
    error: Json | str = field(default_factory=lambda: {"message": "the server had an accident", "type": "server_error"})


@dataclass(frozen=True)
class PlainJson:
    """Plain JSON although a stream was asked for."""

    reply: Says | Calls


@dataclass(frozen=True)
class Hangs:
    """Says a part, then nothing, until the client goes away or the server closes."""

    after: str = ""


@dataclass(frozen=True)
class Waits:
    """Says nothing until it is let go, however long that takes; then what it has to say."""

    let_go: asyncio.Event
    then: Says | Calls


Behaviour = Says | Calls | Cuts | CutsWithoutFinish | Answers | Garbage | ErrorInStream | PlainJson | Hangs | Waits
Otherwise = Behaviour | Callable[[Json], Behaviour]
"""A callable must not raise; it runs once a request, on the event loop."""


@dataclass(frozen=True)
class Word:
    """What was said last in a request, and by whom."""

    role: Literal["user", "tool"]
    text: str


def echo(body: Json) -> Behaviour:
    """Says what the last user message said, on whichever wire it came."""
    sent: list[Json] = body.get("messages") or body.get("contents") or []
    said = [message for message in sent if message.get("role") == "user"]
    text = _words(said[-1].get("content", said[-1].get("parts"))) if said else ""
    return Says(text or "hello")


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    last = content[-1] if content else {}
    return str(last.get("text") or "")
