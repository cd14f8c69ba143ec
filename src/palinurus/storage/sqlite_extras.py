"""SQLite beyond SQL: the stemming of its text index, and sqlite-vec, which compares vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import apsw

from palinurus.domain.errors import StorageError
from palinurus.storage.transaction import Transaction

_TOKENIZER = ("porter", ["unicode61", "remove_diacritics", "2"])


def stemmed(tx: Transaction, words: Sequence[str]) -> list[str]:
    """Words as the index stores them: stemmed, without accents. Empty if the index sees no word."""
    tokenizer = tx.connection.fts5_tokenizer(*_TOKENIZER)
    return [_term(tokenizer, word) for word in words]


def _term(tokenizer: Any, word: str) -> str:
    tokens = tokenizer(
        word.encode("utf-8", "replace"),
        apsw.FTS5_TOKENIZE_QUERY,
        None,
        include_offsets=False,
        include_colocated=False,
    )
    return tokens[0] if tokens else ""


def load_vectors(tx: Transaction, unpack: Callable[[bytes], bytes]) -> None:
    """Loads sqlite-vec and the function `unpacked` into a connection; repeating it costs nothing.

    It is loaded with the first vector: keyword search needs none. Raises StorageError if it cannot be loaded.
    """
    connection = tx.connection
    try:
        connection.execute("SELECT vec_version()")
    except apsw.SQLError:
        _load(connection, unpack)


def _load(connection: apsw.Connection, unpack: Callable[[bytes], bytes]) -> None:
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
    connection.create_scalar_function("unpacked", cast("Any", unpack), 1, deterministic=True)


def _extension() -> str:
    """The path of sqlite-vec. Importing its package would import numpy (20 MB) for nothing."""
    found = find_spec("sqlite_vec")
    if found is None or not found.submodule_search_locations:
        raise ImportError("sqlite-vec is not installed")
    return str(Path(found.submodule_search_locations[0]) / "vec0")
