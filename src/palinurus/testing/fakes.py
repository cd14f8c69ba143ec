"""What a test controls: the clock, ids, a model with scripted replies, and embedders without a model."""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
import re
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Any

from msgspec import Struct

from palinurus.domain.errors import EmbedderError, Failure, ProviderError
from palinurus.domain.messages import AssistantMessage, Text, ToolCall, Usage
from palinurus.memory.embedder import TOKENS, Space
from palinurus.memory.late import DIMENSIONS
from palinurus.providers.provider import ModelRequest, ReplyDone, ReplyEvent, ReplyFailed, TextDelta

START = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)


class FakeClock:
    """Stands still until it is advanced."""

    def __init__(self, start: datetime = START, zone: tzinfo = UTC) -> None:
        self.now = start
        self.zone = zone

    def now_ms(self) -> int:
        return int(self.now.timestamp() * 1000)

    def advance(self, **time: float) -> None:
        """Moves the time: `clock.advance(minutes=30)`."""
        self.now += timedelta(**time)


class SeededIds:
    """Returns the same ids for the same seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311  # ids of a simulation must repeat

    def __call__(self) -> str:
        return f"{self._random.getrandbits(64):016x}"


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


_WORD = re.compile(r"\w+")


class HashingEmbedder:
    """Implements Embedder: each word has a direction, a text the sum of its words. Always the same result."""

    def __init__(self, dimensions: int = 64, model: str = "hashing") -> None:
        self._space = Space("testing", model, dimensions, "words,unit")
        self.asked: list[list[str]] = []  # texts of each call
        self.queries: list[str] = []
        self.closed = 0

    @property
    def space(self) -> Space:
        return self._space

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.asked.append(list(texts))
        return [vector_of(text, self._space.dimensions) for text in texts]

    async def embed_query(self, text: str) -> bytes:
        self.queries.append(text)
        return vector_of(text, self._space.dimensions)

    async def close(self) -> None:
        self.closed += 1


class TokenEmbedder(HashingEmbedder):
    """Gives token states behind the vectors: each word is its own, and those in `synonyms` are another's."""

    def __init__(self, synonyms: dict[str, str] | None = None, *, dimensions: int = 64) -> None:
        super().__init__(dimensions)
        self._space = Space("testing", "hashing", dimensions, f"words,unit,{TOKENS}hashed")
        self._synonyms = synonyms or {}

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        vectors = await super().embed(texts)
        codes = (b"".join(map(self._code, _words(text))) for text in texts)
        return [vector + code for vector, code in zip(vectors, codes, strict=True)]

    async def embed_query(self, text: str) -> bytes:
        words = _words(text)
        signs = [bit for word in words for byte in self._code(word) for bit in f"{byte:08b}"]
        states = struct.pack(f"<{len(signs)}f", *((2 * int(bit) - 1) / math.sqrt(DIMENSIONS) for bit in signs))
        return await super().embed_query(text) + struct.pack("<H", len(words)) + states + "\n".join(words).encode()

    def _code(self, word: str) -> bytes:
        return hashlib.sha256(self._synonyms.get(word, word).encode()).digest()[: DIMENSIONS // 8]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())[:256]  # models read no further


class Mood(StrEnum):
    WELL = "well"
    FAILS = "fails"
    HANGS = "hangs"
    SLOW = "slow"
    WRONG_DIMENSION = "wrong dimension"
    NOT_A_NUMBER = "not a number"
    TOO_LONG = "too long"  # vectors of length two
    TOO_FEW = "too few"


class MoodyEmbedder(HashingEmbedder):
    """Works for `good_for` texts (None: always), then fails as `mood` says. Both may be set at any time."""

    def __init__(
        self,
        mood: Mood = Mood.WELL,
        *,
        good_for: int | None = 0,
        seconds: float = 1.0,
        dimensions: int = 64,
        model: str = "hashing",
    ) -> None:
        super().__init__(dimensions, model)
        self.mood = mood
        self.good_for = good_for
        self.seconds = seconds  # how long a slow call takes

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        vectors = await super().embed(texts)
        return await self._spoil(vectors)

    async def embed_query(self, text: str) -> bytes:
        return (await self._spoil([await super().embed_query(text)]))[0]

    async def _spoil(self, vectors: list[bytes]) -> list[bytes]:
        if self.good_for is None or self.good_for >= len(vectors):
            self.good_for = None if self.good_for is None else self.good_for - len(vectors)
            return vectors
        match self.mood:
            case Mood.FAILS:
                raise EmbedderError("the embedder failed", hint="wait a little")
            case Mood.HANGS:
                await asyncio.get_running_loop().create_future()
            case Mood.SLOW:
                await asyncio.sleep(self.seconds)
            case Mood.WRONG_DIMENSION:
                return [vector + vector for vector in vectors]
            case Mood.NOT_A_NUMBER:
                return [struct.pack("<f", math.nan) + vector[4:] for vector in vectors]
            case Mood.TOO_LONG:
                return [_scaled(vector, 2.0) for vector in vectors]
            case Mood.TOO_FEW:
                return vectors[:-1] if len(vectors) > 1 else [vectors[0][:-4]]
            case Mood.WELL:
                pass
        return vectors


def vector_of(text: str, dimensions: int) -> bytes:
    floats = [0.0] * dimensions
    for word in _WORD.findall(text.lower()) or [""]:
        seed = hashlib.sha256(word.encode("utf-8", "replace")).digest()
        for at in range(0, 12, 3):
            floats[int.from_bytes(seed[at : at + 2], "big") % dimensions] += 1.0 if seed[at + 2] % 2 else -1.0
    length = math.hypot(*floats)
    if not length:  # its words cancel each other out
        floats[0] = length = 1.0
    return struct.pack(f"<{dimensions}f", *(value / length for value in floats))


def _scaled(vector: bytes, factor: float) -> bytes:
    form = f"<{len(vector) // 4}f"
    return struct.pack(form, *(value * factor for value in struct.unpack(form, vector)))
