"""The embedder protocol: texts to vectors. Each vector carries the id of its space, because only vectors of one model
can be compared.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from palinurus.domain.errors import EmbedderError

TOKENS = "tokens:"  # begins the part of a space's preparation that says which codes its words have


class Space(Struct, frozen=True):
    """Vectors of one space can be compared with each other, and with no others (promise 12)."""

    provider: str
    model: str
    dimensions: int
    preparation: str = ""  # how texts and vectors are normalised, and whether words have codes (`has_tokens`)

    @property
    def id(self) -> str:
        return f"{self.provider}/{self.model}/{self.dimensions}/{self.preparation}"

    @property
    def has_tokens(self) -> bool:
        """Whether token states stand behind each vector (late.py)."""
        return f",{TOKENS}" in self.preparation


class Embedder(Protocol):
    """Implemented by the embedded model and by remote ones.

    Vectors are little-endian float32, of length one, `space.dimensions` of them; token states may follow them. Failures
    are EmbedderErrors; the implementation has its own time limit. Calls may overlap.
    """

    @property
    def space(self) -> Space: ...

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector for each text, in order. At most a few hundred texts at once."""

    async def embed_query(self, text: str) -> bytes:
        """The vector of a question, with priority over other work."""

    async def close(self) -> None: ...


_SLACK = 1e-3


def check_vectors(space: Space, vectors: Sequence[bytes], wanted: int) -> None:
    """Raises EmbedderError unless the number of vectors, their dimensions and their length of one are right."""
    who = f"the embedder {space.model}"
    if len(vectors) != wanted:
        raise EmbedderError(f"{who} gave {len(vectors)} vectors for {wanted} texts", hint=_HINT)
    floats = struct.Struct(f"<{space.dimensions}f")
    for vector in vectors:
        if len(vector) != floats.size and not (space.has_tokens and len(vector) > floats.size):
            raise EmbedderError(
                f"{who} gave a vector of {len(vector) / 4:g} dimensions instead of {space.dimensions}", hint=_HINT
            )
        length = math.hypot(*floats.unpack_from(vector))
        if not abs(length - 1) < _SLACK:  # so that NaN is refused too
            raise EmbedderError(f"{who} gave a vector of length {length:g} instead of 1", hint=_HINT)


_HINT = "none of them was kept"
