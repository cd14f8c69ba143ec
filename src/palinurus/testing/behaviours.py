"""What a model server may do to its client: well-behaved replies, and the misbehaviour seen in the field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

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
    usage: Json | None = field(default_factory=lambda: USAGE)
    finish: str = "stop"
    done: bool = True  # whether `[DONE]` closes the stream

    def deltas(self) -> Iterator[Json]:
        if self.thinking:
            yield {"reasoning_content": self.thinking}
        step = max(1, -(-len(self.text) // max(1, self.chunks)))
        for start in range(0, len(self.text), step):
            yield {"content": self.text[start : start + step]}


@dataclass(frozen=True, init=False)
class Calls:
    """Tool calls. By default their arguments come in pieces, the pieces of parallel calls interleaved by index."""

    calls: tuple[tuple[str, Json | str], ...]
    text: str
    whole: bool  # each call in one delta, without an index
    delay: ClassVar[float] = 0.0
    usage: ClassVar[Json | None] = USAGE
    finish: ClassVar[str] = "tool_calls"
    done: ClassVar[bool] = True

    def __init__(self, *calls: tuple[str, Json | str], text: str = "", whole: bool = False) -> None:
        object.__setattr__(self, "calls", calls)
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "whole", whole)

    def listed(self) -> list[Json]:
        return [
            {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": _arguments(arguments)}}
            for number, (name, arguments) in enumerate(self.calls)
        ]

    def deltas(self) -> Iterator[Json]:
        if self.text:
            yield {"content": self.text}
        if self.whole:
            yield from ({"tool_calls": [call]} for call in self.listed())
            return
        rest = []
        for index, call in enumerate(self.listed()):
            arguments = call["function"]["arguments"]
            rest.append([arguments[at : at + 4] for at in range(0, len(arguments), 4)])
            opening = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
            yield {"tool_calls": [opening]}
        while any(rest):
            for index, pieces in enumerate(rest):
                if pieces:
                    yield {"tool_calls": [{"index": index, "function": {"arguments": pieces.pop(0)}}]}


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


Behaviour = Says | Calls | Cuts | CutsWithoutFinish | Answers | Garbage | ErrorInStream | PlainJson | Hangs
Otherwise = Behaviour | Callable[[Json], Behaviour]
"""A callable must not raise; it runs once a request, on the event loop."""


def echo(body: Json) -> Behaviour:
    """Says what the last user message said."""
    said = [message.get("content") for message in body.get("messages", []) if message.get("role") == "user"]
    return Says(said[-1] if said and isinstance(said[-1], str) else "hello")


def _arguments(arguments: Json | str) -> str:
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
