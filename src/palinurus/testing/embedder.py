"""Embedders without a model: one that works, and one that fails on request."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import struct
from collections.abc import Sequence
from enum import StrEnum

from palinurus.domain.errors import EmbedderError
from palinurus.memory.embedder import Space

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
