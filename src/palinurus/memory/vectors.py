"""Compact vectors: four bits per number.

The first half of a vector is in the upper halves of the bytes, the second in the lower ones, so that two table lookups
unpack it. A number becomes the middle of one of sixteen steps of equal width, which is the best width for the
distribution of a unit vector; the cosine of two texts is then off by half a hundredth in most cases. Distances in a
small index are computed by sqlite-vec, which is loaded with the first vector: keyword search needs none.

In a large one an SQL call per vector takes longer than the comparison. There the signs of all vectors (48 bytes each)
are held in memory and scanned by numpy, and only the nearest are compared exactly. Small indexes need neither that
memory nor the import.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from functools import cache
from operator import mul
from typing import TYPE_CHECKING, Any

from palinurus.domain.errors import StorageError
from palinurus.storage.sqlite_extras import load_vectors
from palinurus.storage.transaction import Transaction

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, np.dtype[Any]]

_STEP = 0.3352  # of a standard deviation: the width at which sixteen equal steps lose least of a normal distribution
UPPER = bytes((2 * (byte >> 4) - 15) & 0xFF for byte in range(256))
LOWER = bytes((2 * (byte & 15) - 15) & 0xFF for byte in range(256))


def unpacked(packed: bytes) -> bytes:
    """As signed bytes for sqlite-vec. Odd numbers only: a middle is never zero."""
    return packed.translate(UPPER) + packed.translate(LOWER)


def pack(vector: bytes, dimensions: int) -> bytes:
    """Packs little-endian float32. Raises StorageError if it is not a vector of this size."""
    numbers = _numbers(vector, dimensions)
    length = math.sqrt(sum(map(mul, numbers, numbers)))
    if not 0 < length < math.inf:
        raise StorageError("a vector that is not a number, or nothing, cannot be stored", hint="embed the text again")
    per = math.sqrt(dimensions) / length / _STEP
    levels = [0 if at < 0 else 15 if at > 15 else int(at) for at in [number * per + 8 for number in numbers]]
    levels += [8] * (_lanes(dimensions) - dimensions)
    half = len(levels) // 2
    upper, lower = int.from_bytes(bytes(levels[:half])), int.from_bytes(bytes(levels[half:]))
    return (upper << 4 | lower).to_bytes(half)


def query_bytes(vector: bytes, dimensions: int) -> bytes:
    """The query side of a comparison: one signed byte per number, and zero in padding lanes."""
    numbers = _numbers(vector, dimensions)
    most = max(map(abs, numbers)) or 1.0
    if not most < math.inf:  # nor not a number
        raise StorageError("the vector of a question is not a number", hint="check the embedder")
    levels = [round(number / most * 127) for number in numbers]
    return struct.pack(f"{dimensions}b", *levels) + bytes(_lanes(dimensions) - dimensions)


def load_comparison(tx: Transaction) -> None:
    """Loads vector comparison into a connection; repeating it costs nothing. Raises StorageError if it cannot."""
    load_vectors(tx, unpacked)


def _numbers(vector: bytes, dimensions: int) -> tuple[float, ...]:
    if len(vector) != 4 * dimensions:
        said = f"a vector of {len(vector) // 4} numbers does not belong in a space of {dimensions}"
        raise StorageError(said, hint="the embedder is another one than the index was made with")
    return struct.unpack(f"<{dimensions}f", vector)


def _lanes(dimensions: int) -> int:
    return -(-dimensions // 16) * 16


# -- many at once ------------------------------------------------------------------------------------------------------


MANY = 8  # blocks above which they are merged into one


class Signs:
    """The signs of one space's vectors. Deleted vectors may still be included: looking one up finds nothing."""

    def __init__(self) -> None:
        self._space = 0
        self._ids: list[Numbers] = []
        self._bits: list[Numbers] = []  # transposed: one row per eight bytes of all vectors
        self._last = 0

    def nearest(self, tx: Transaction, space: int, query: bytes, limit: int) -> list[int]:
        """The vectors whose signs differ least from those of the query, unordered."""
        import numpy as np

        self._catch_up(tx, space)
        if not self._ids:
            return []
        asked = _words(np.packbits(np.frombuffer(query, np.int8) > 0, bitorder="little").tobytes(), 1)
        distances = np.concatenate([_distances(bits, asked) for bits in self._bits])
        ids = np.concatenate(self._ids) if len(self._ids) > 1 else self._ids[0]
        if limit < len(ids):
            ids = ids[np.argpartition(distances, limit)[:limit]]
        return [int(each) for each in ids]

    def _catch_up(self, tx: Transaction, space: int) -> None:
        import numpy as np

        if space != self._space:
            self._space, self._last, self._ids, self._bits = space, 0, [], []
        rows = tx.all("memory.signs_after", last=self._last)
        if rows:
            self._last = rows[-1][0]
            self._ids.append(np.fromiter((row[0] for row in rows), np.int64, len(rows)))
            self._bits.append(_words(b"".join(row[1] for row in rows), len(rows)))
        if len(self._ids) > MANY:
            self._ids = [np.concatenate(self._ids)]
            self._bits = [np.concatenate(self._bits, axis=1)]


def cosines(packed: Sequence[bytes], query: bytes) -> Numbers:
    """Cosines of four-bit vectors (`pack`) with an eight-bit query."""
    import numpy as np

    upper, lower, squares = _tables()
    bytes_ = np.frombuffer(b"".join(packed), np.uint8).reshape(len(packed), -1)
    asked = np.frombuffer(query, np.int8).astype(np.float32)
    half = len(asked) // 2
    products = upper[bytes_] @ asked[:half] + lower[bytes_] @ asked[half:]
    found: Numbers = products / np.sqrt(squares[bytes_].sum(axis=1) * (asked @ asked))
    return found


@cache
def _tables() -> tuple[Numbers, Numbers, Numbers]:
    """Tables by byte: the number in its upper half, the one in its lower, and both squared."""
    import numpy as np

    upper, lower = (np.frombuffer(table, np.int8).astype(np.float32) for table in (UPPER, LOWER))
    return upper, lower, upper * upper + lower * lower


def nearest_of(tx: Transaction, ids: Sequence[int], query: bytes, limit: int) -> list[int]:
    """The nearest of these vectors, the best first."""
    import numpy as np

    rows = tx.all("memory.vectors_by_id", ids=json.dumps(ids))
    if not rows:
        return []
    order = np.argsort(-cosines([row[1] for row in rows], query), kind="stable")[:limit]
    return [rows[int(at)][0] for at in order]


def cosines_of(
    tx: Transaction, space: int, pieces: Sequence[int], query: bytes
) -> tuple[dict[int, float], dict[int, bytes]]:
    """The cosines, and the codes of the words (late.py), of those that have them."""
    rows = tx.all("memory.vectors_of_pieces", space=space, ids=json.dumps(pieces))
    if not rows:
        return {}, {}
    found = cosines([row[1] for row in rows], query).tolist()
    return dict(zip([row[0] for row in rows], found, strict=True)), {row[0]: row[2] for row in rows if row[2]}


def _words(bits: bytes, vectors: int) -> Numbers:
    """As integers, as wide as possible."""
    import numpy as np

    size = len(bits) // vectors
    kind = np.uint64 if size % 8 == 0 else np.uint16
    return np.ascontiguousarray(np.frombuffer(bits, kind).reshape(vectors, -1).T)


def _distances(bits: Numbers, asked: Numbers) -> Numbers:
    import numpy as np

    differ = np.zeros(bits.shape[1], np.uint16)
    for row, word in zip(bits, asked[:, 0], strict=True):
        differ += np.bitwise_count(row ^ word)
    return differ
