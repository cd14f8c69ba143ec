"""A model that says far too much. It speaks through a real wire, because what is too much is left out there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from itertools import chain, repeat
from typing import TYPE_CHECKING

import msgspec

from palinurus.domain.clock import Clock
from palinurus.providers.provider import ModelRequest, ReplyEvent
from palinurus.providers.wires.http import Post
from palinurus.providers.wires.openai import OpenAIProvider, OpenAIReply

from .behaviours import Json

if TYPE_CHECKING:
    import httpx2

PIECE = 60_000  # characters that come at once, about as a socket gives them
MEGABYTES = 6
PIECES = MEGABYTES * 1_000_000 // PIECE
DEEP = 100_000


def _words(piece: str) -> Json:
    return {"content": piece * (PIECE // len(piece))}


def _calls(*arguments: str, first: int = 0, name: str = "memory_write") -> Json:
    """The calls with these numbers begin, or go on when there is no name."""
    numbered = enumerate(arguments, first)
    function: Json = {"name": name} if name else {}
    return {
        "tool_calls": [
            {"index": index, "id": f"call_{index}", "type": "function", "function": function | {"arguments": each}}
            for index, each in numbered
        ]
    }


SAID: dict[str, Callable[[], Iterable[Json]]] = {
    "many megabytes": lambda: repeat(_words("many words "), PIECES),
    "many scripts": lambda: repeat(_words("Привет, мир. 赵钱孙 "), PIECES),
    "abbreviations": lambda: [{"content": "Mr. " * 15_000}],
    "endless words": lambda: repeat(_words("on and on ")),
    "endless thoughts": lambda: repeat({"reasoning_content": "hm hm hm " * 500}),
    "endless silence": lambda: repeat({"padding": "x" * PIECE}),
    "thousands of calls": lambda: (_calls(*["{}"] * 200, first=first) for first in range(0, 10_000, 200)),
    "a long argument": lambda: chain([_calls('{"text": "')], repeat(_calls("y" * PIECE, name=""), PIECES)),
    "a deep argument": lambda: [_calls('{"text": ' + "[" * DEEP + "]" * DEEP + "}")],
}
"""What each kind of too much consists of, piece by piece."""


class VerboseServer(OpenAIProvider):
    """Answers every request with one kind of too much, and reaches no network."""

    def __init__(self, name: str, clock: Clock, dice: random.Random) -> None:
        super().__init__(name, "http://127.0.0.1:9", None, windows={}, clock=clock)
        self.kind = dice.choice(list(SAID))

    def reply(self, request: ModelRequest, wire: str) -> AsyncGenerator[ReplyEvent]:
        self.wire = wire
        return self.stream(request)

    def post(self, request: ModelRequest) -> Post:
        return Post("/chat/completions", b"", OpenAIReply)

    def _open(self) -> httpx2.AsyncClient:
        import httpx2

        if self._client is None:
            self._client = httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))
        return self._client

    async def _answer(self, _: httpx2.Request) -> httpx2.Response:
        import httpx2

        return httpx2.Response(200, headers={"Content-Type": "text/event-stream"}, content=self._body())

    async def _body(self) -> AsyncIterator[bytes]:
        for said in SAID[self.kind]():
            await asyncio.sleep(0)  # as whoever waits for the network
            yield b"data: " + msgspec.json.encode({"choices": [{"index": 0, "delta": said}]}) + b"\n\n"
        yield b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
