"""Late interaction: how near the words of a line are to those of a question, in meaning, word by word.

A vector is the mean of a text's word pieces, in which a single telling word is lost. So each word piece of a line is
kept too, as the signs of 64 numbers. For each word piece of the question the most similar one of the line counts, or of
the line beside it a little less; rare words weigh more. It is done for the candidates of a search only, at once.

An embedder whose space has token states (`Space.has_tokens`) gives them behind the vector, in the same bytes: for a
line its codes, for a question what `QueryTokens` reads.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from palinurus.text.words import folded

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, np.dtype[Any]]

DIMENSIONS = 64
CODE_BYTES = DIMENSIONS // 8
BESIDE = 0.8  # of a similarity in the line before or after
FLOOR = 0.3  # what a quarter of all candidates stay below


class QueryTokens(Struct, frozen=True):
    """The word pieces of a question."""

    words: tuple[str, ...]  # the words that they are part of
    states: bytes  # unit vectors, little-endian float32

    @classmethod
    def read(cls, told: bytes) -> QueryTokens | None:
        """None if there are none."""
        count = struct.unpack_from("<H", told)[0] if len(told) > 2 else 0
        end = 2 + count * DIMENSIONS * 4
        words = tuple(folded(told[end:].decode("utf-8", "replace")).split("\n"))
        return cls(words, told[2:end]) if count and len(words) == count else None


def late_scores(
    asked: QueryTokens,
    frequencies: Mapping[str, int],
    pieces: int,
    codes: Mapping[int, bytes],
    files: Mapping[int, int],
) -> dict[int, float]:
    """0 to 1 for each piece that has codes: `codes` and `files` by its id, which is one more than that before it.

    `frequencies`: the pieces that have a word, by the folded word; one that is not among them may be in all.
    """
    import numpy as np

    known = sorted(codes)
    if not known:
        return {}
    weights = np.array([log(1 + pieces / (1 + frequencies.get(word, pieces))) for word in asked.words])
    nearest = _similarities([codes[piece] for piece in known], asked.states)
    best = nearest.copy()
    # Those of one file that follow each other: of each the one after it, and of that the one before.
    here = np.array([at for at in range(len(known) - 1) if _follows(known[at], known[at + 1], files)], np.intp)
    best[here] = np.maximum(best[here], BESIDE * nearest[here + 1])
    best[here + 1] = np.maximum(best[here + 1], BESIDE * nearest[here])
    late = (best @ (weights / weights.sum()) - FLOOR) / (1 - FLOOR)
    return {piece: max(0.0, float(value)) for piece, value in zip(known, late, strict=True)}


def _follows(piece: int, other: int, files: Mapping[int, int]) -> bool:
    return other == piece + 1 and files[piece] == files[other]


def _similarities(codes: Sequence[bytes], states: bytes) -> Numbers:
    """For each line and each word piece of the question, the largest cosine."""
    import numpy as np

    counts = np.array([len(each) // CODE_BYTES for each in codes])
    signs = np.unpackbits(np.frombuffer(b"".join(codes), np.uint8)).reshape(-1, DIMENSIONS).astype(np.float32)
    question = np.frombuffer(states, "<f4").reshape(-1, DIMENSIONS)
    # A sign is 1 or -1, and not 1 or 0, over the length of so many of them.
    cosines = (signs @ (2 * question.T) - question.sum(axis=1)) / DIMENSIONS**0.5
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    return np.maximum.reduceat(cosines, starts, axis=0)
