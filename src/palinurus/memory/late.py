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
from functools import cache
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
ONE = 16_384  # a cosine of one, of which no sum is more than a little
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

    question = np.frombuffer(states, "<f4").reshape(-1, CODE_BYTES, 8)
    # What each byte adds to a cosine. Small whole numbers from a table are faster than a product of matrices, which
    # would also start threads of its own.
    exact = (_signs()[None, :, None, :] * question[:, None, :, :].transpose(2, 1, 0, 3)).sum(axis=3)
    adds = np.round(exact * ONE).astype(np.int16)
    places = np.frombuffer(b"".join(codes), np.uint8).reshape(-1, CODE_BYTES).T.astype(np.intp)
    cosines = adds[0].take(places[0], axis=0)
    more = np.empty_like(cosines)
    for table, place in zip(adds[1:], places[1:], strict=True):
        np.take(table, place, axis=0, out=more, mode="clip")  # the mode that needs no copy; no place is outside
        cosines += more
    lengths = np.array([len(each) // CODE_BYTES for each in codes])
    best = np.maximum.reduceat(cosines, np.cumsum(lengths) - lengths, axis=0)
    return best.astype(np.float32) / ONE


@cache
def _signs() -> Numbers:
    """The signs in each byte, of a vector of length one."""
    import numpy as np

    bits = np.unpackbits(np.arange(256, dtype=np.uint8)).reshape(256, 8)
    signs: Numbers = ((2.0 * bits - 1) / DIMENSIONS**0.5).astype(np.float32)
    return signs
