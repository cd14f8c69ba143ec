"""Writes an index as a database of the form that OpenClaw's documents describe, for other programs to read.

Its tables are files, chunks, embedding_cache, chunks_fts and, if there are vectors, chunks_vec. Our chunks are lines,
or windows with the preset `openclaw`. Vectors are of length one and as exact as the index has them, four bits a number.
"""

from __future__ import annotations

import math
import struct
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import apsw

from palinurus.domain.errors import StorageError
from palinurus.memory.answer import IndexExport
from palinurus.memory.vectors import load_comparison, unpacked
from palinurus.storage.files import translated
from palinurus.storage.transaction import Transaction, declare_queries

declare_queries("memory_export", __file__)


def export_index(index: Path, to: Path) -> IndexExport:
    """Blocks. Raises StorageError, also if the file exists; an incomplete one is removed."""
    try:
        to.touch(mode=0o600, exist_ok=False)
    except OSError as error:
        raise StorageError(f"{to} cannot be made: {error.strerror}", hint="name a new file in a folder") from None
    try:
        with translated(to), closing(apsw.Connection(str(to), flags=_FLAGS)) as connection:
            return IndexExport(str(to), *_written(Transaction(connection), index))
    except BaseException:
        to.unlink(missing_ok=True)
        raise


_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI


def _written(tx: Transaction, index: Path) -> tuple[int, int, int]:
    connection = tx.connection
    connection.pragma("synchronous", "off")  # an incomplete export is removed
    connection.create_scalar_function("floats", cast("Any", _floats), 2, deterministic=True)
    connection.create_scalar_function("hash_of", cast("Any", _hash_of), 1, deterministic=True)
    tx.run("memory_export.open", index=f"{index.absolute().as_uri()}?mode=ro")
    with tx.one_state():
        tx.run("memory_export.make")
        tx.run("memory_export.fill")
        if space := tx.one("memory_export.space"):
            number, name, dimensions = space
            provider, model = name.split("/")[0], "/".join(name.split("/")[1:-2])
            load_comparison(tx)
            tx.execute(tx.sql("memory_export.make_vectors") % dimensions)
            values = {"space": number, "dimensions": dimensions, "provider": provider, "model": model}
            tx.run("memory_export.fill_vectors", **values)
        files, chunks, vectors = tx.one("memory_export.counts")
    return files, chunks, vectors


def _floats(packed: bytes, dimensions: int) -> bytes:
    numbers = struct.unpack(f"{2 * len(packed)}b", unpacked(packed))[:dimensions]
    length = math.hypot(*numbers)
    return struct.pack(f"<{dimensions}f", *(number / length for number in numbers))


def _hash_of(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()
