"""What a vector must be before it is believed. Whoever made it, a wrong one would spoil the space it is put into."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from palinurus.domain.errors import EmbedderError
from palinurus.memory.embedder import Space

_SLACK = 1e-3


def check_vectors(space: Space, vectors: Sequence[bytes], wanted: int) -> None:
    """Raises EmbedderError unless there are as many as wanted, each of the space's dimensions and of length one."""
    who = f"the embedder {space.model}"
    if len(vectors) != wanted:
        raise EmbedderError(f"{who} gave {len(vectors)} vectors for {wanted} texts", hint=_HINT)
    floats = struct.Struct(f"<{space.dimensions}f")
    for vector in vectors:
        if len(vector) != floats.size:
            raise EmbedderError(
                f"{who} gave a vector of {len(vector) / 4:g} dimensions instead of {space.dimensions}", hint=_HINT
            )
        length = math.hypot(*floats.unpack(vector))
        if not abs(length - 1) < _SLACK:  # so that NaN is refused too
            raise EmbedderError(f"{who} gave a vector of length {length:g} instead of 1", hint=_HINT)


_HINT = "none of them was kept"
