"""Texts to vectors. What a vector means depends on who made it, so each carries the id of its space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class Space(Struct, frozen=True):
    """Vectors of one space can be compared with each other, and with no others (promise 12)."""

    provider: str
    model: str
    dimensions: int
    preparation: str = ""  # what is done to a text before it is embedded, and to a vector afterwards

    @property
    def id(self) -> str:
        return f"{self.provider}/{self.model}/{self.dimensions}/{self.preparation}"


class Embedder(Protocol):
    """Implemented by the embedded model and by remote ones.

    Vectors are little-endian float32, of length one, `space.dimensions` of them. Failures are EmbedderErrors; one that
    hangs is the business of the implementation, which gives up after its own limit. Calls may overlap.
    """

    @property
    def space(self) -> Space: ...

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector for each text, in order. At most a few hundred texts at once."""

    async def embed_query(self, text: str) -> bytes:
        """The vector of a question, before whatever else waits."""

    async def close(self) -> None: ...
