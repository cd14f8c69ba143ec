"""Vectors in little room: four bits a number, in the order in which they came.

The first half of a vector lies in the upper halves of the bytes, the second in the lower ones, so that two looks into
a table unpack it. A number becomes the middle of one of sixteen steps of equal width, which is the best width for
numbers that are spread like those of a unit vector; the cosine of two texts is then off by half a hundredth at most
times. Distances are computed by sqlite-vec, which is loaded when the first vector is met: keyword search needs none.
"""

from __future__ import annotations

import math
import struct
from importlib.util import find_spec
from operator import mul
from pathlib import Path
from typing import Any, cast

import apsw

from palinurus.domain.errors import StorageError

_STEP = 0.3352  # of a standard deviation: the width at which sixteen equal steps lose least of a normal distribution
UPPER = bytes((2 * (byte >> 4) - 15) & 0xFF for byte in range(256))
LOWER = bytes((2 * (byte & 15) - 15) & 0xFF for byte in range(256))


def unpacked(packed: bytes) -> bytes:
    """As signed bytes, which is what sqlite-vec compares. Odd numbers only: a middle is never zero."""
    return packed.translate(UPPER) + packed.translate(LOWER)


def pack(vector: bytes, dimensions: int) -> bytes:
    """Of little-endian float32. Raises StorageError for what is no vector of this size."""
    numbers = _numbers(vector, dimensions)
    length = math.sqrt(sum(map(mul, numbers, numbers)))
    if not 0 < length < math.inf:
        raise StorageError("a vector that is not a number, or nothing, cannot be kept", hint="embed the text again")
    per = math.sqrt(dimensions) / length / _STEP
    levels = [0 if at < 0 else 15 if at > 15 else int(at) for at in [number * per + 8 for number in numbers]]
    levels += [8] * (_lanes(dimensions) - dimensions)
    half = len(levels) // 2
    upper, lower = int.from_bytes(bytes(levels[:half])), int.from_bytes(bytes(levels[half:]))
    return (upper << 4 | lower).to_bytes(half)


def query_bytes(vector: bytes, dimensions: int) -> bytes:
    """The other side of a comparison: one signed byte a number, and nothing in the lanes that only fill up."""
    numbers = _numbers(vector, dimensions)
    most = max(map(abs, numbers)) or 1.0
    if not most < math.inf:  # nor not a number
        raise StorageError("the vector of a question is not a number", hint="is the embedder in order?")
    levels = [round(number / most * 127) for number in numbers]
    return struct.pack(f"{dimensions}b", *levels) + bytes(_lanes(dimensions) - dimensions)


def can_compare(connection: apsw.Connection) -> bool:
    """Whether vectors can be compared on this machine. Where not, there is still the search by words."""
    try:
        learn_to_compare(connection)
    except StorageError:
        return False
    return True


def learn_to_compare(connection: apsw.Connection) -> None:
    """Load sqlite-vec into a connection; a second time costs nothing. Raises StorageError where it does not load."""
    try:
        connection.execute("SELECT vec_version()")
    except apsw.SQLError:
        _load(connection)


def _load(connection: apsw.Connection) -> None:
    try:
        connection.enable_load_extension(True)
        try:
            connection.load_extension(_extension())
        finally:
            connection.enable_load_extension(False)
    except (ImportError, AttributeError, apsw.Error) as error:
        raise StorageError(
            f"vectors cannot be compared on this machine: {error}", hint="keyword search works without them"
        ) from error
    connection.create_scalar_function("unpacked", cast("Any", unpacked), 1, deterministic=True)


def _extension() -> str:
    """Where sqlite-vec lies. Importing its package would import numpy, for nothing: 20 MB."""
    found = find_spec("sqlite_vec")
    if found is None or not found.submodule_search_locations:
        raise ImportError("sqlite-vec is not installed")
    return str(Path(found.submodule_search_locations[0]) / "vec0")


def _numbers(vector: bytes, dimensions: int) -> tuple[float, ...]:
    if len(vector) != 4 * dimensions:
        raise StorageError(
            f"a vector of {len(vector) // 4} numbers does not belong in a space of {dimensions}",
            hint="the embedder is another one than the index was made with",
        )
    return struct.unpack(f"<{dimensions}f", vector)


def _lanes(dimensions: int) -> int:
    return -(-dimensions // 16) * 16
