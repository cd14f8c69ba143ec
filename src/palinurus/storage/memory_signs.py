"""Many vectors compared at once: their signs in memory, gone through by numpy, and the nearest of them exactly.

A call for each vector, as SQL makes it, takes longer than the comparison. The signs are 48 bytes a vector; they are
read when the first question comes, and what was added since is read behind them. Small indexes never get here, so
they cost neither the room nor the import.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import apsw

from palinurus.storage.memory_rows import rows_of
from palinurus.storage.memory_vectors import LOWER, UPPER

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, np.dtype[Any]]

MANY = 8  # blocks, from which on they are made one


class Signs:
    """Of one space. Those of vectors that have been deleted since may still be here: whoever looks one up misses it."""

    def __init__(self) -> None:
        self._space = 0
        self._ids: list[Numbers] = []
        self._bits: list[Numbers] = []  # turned: a row for each eight bytes of all vectors, which are added up at once
        self._last = 0

    def nearest(self, connection: apsw.Connection, space: int, query: bytes, limit: int) -> list[int]:
        """The vectors whose signs differ least from those of the query, in no order."""
        import numpy as np

        self._catch_up(connection, space)
        if not self._ids:
            return []
        asked = _words(np.packbits(np.frombuffer(query, np.int8) > 0, bitorder="little").tobytes(), 1)
        distances = np.concatenate([_distances(bits, asked) for bits in self._bits])
        ids = np.concatenate(self._ids) if len(self._ids) > 1 else self._ids[0]
        if limit < len(ids):
            ids = ids[np.argpartition(distances, limit)[:limit]]
        return [int(each) for each in ids]

    def _catch_up(self, connection: apsw.Connection, space: int) -> None:
        import numpy as np

        if space != self._space:
            self._space, self._last, self._ids, self._bits = space, 0, [], []
        rows = rows_of(connection, "signs_after", (self._last,))
        if rows:
            self._last = rows[-1][0]
            self._ids.append(np.fromiter((row[0] for row in rows), np.int64, len(rows)))
            self._bits.append(_words(b"".join(row[1] for row in rows), len(rows)))
        if len(self._ids) > MANY:
            self._ids = [np.concatenate(self._ids)]
            self._bits = [np.concatenate(self._bits, axis=1)]


def cosines(packed: Sequence[bytes], query: bytes) -> Numbers:
    """Of vectors of four bits a number (memory_vectors.pack) with a query of eight."""
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
    """What a byte stands for: the number in its upper half, the one in its lower, and both squared."""
    import numpy as np

    upper, lower = (np.frombuffer(table, np.int8).astype(np.float32) for table in (UPPER, LOWER))
    return upper, lower, upper * upper + lower * lower


def nearest_of(connection: apsw.Connection, ids: Sequence[int], query: bytes, limit: int) -> list[int]:
    """The nearest of these vectors, the best first."""
    import numpy as np

    rows = rows_of(connection, "vectors_by_id", (json.dumps(ids),))
    if not rows:
        return []
    order = np.argsort(-cosines([row[1] for row in rows], query), kind="stable")[:limit]
    return [rows[int(at)][0] for at in order]


def cosines_of(connection: apsw.Connection, space: int, pieces: Sequence[int], query: bytes) -> dict[int, float]:
    rows = rows_of(connection, "vectors_of_pieces", {"space": space, "ids": json.dumps(pieces)})
    if not rows:
        return {}
    return {row[0]: float(value) for row, value in zip(rows, cosines([row[1] for row in rows], query), strict=True)}


def _words(bits: bytes, vectors: int) -> Numbers:
    """As whole numbers, as large as go into a vector."""
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
