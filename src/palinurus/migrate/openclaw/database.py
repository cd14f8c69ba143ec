"""Open a foreign SQLite file without touching it.

A file whose write-ahead log holds something is copied together with the log, and the copy is opened: opening it in
place would fold the log into it. A file without a log is opened as one that never changes, which makes SQLite neither
lock it nor leave anything beside it. Texts are asked for as bytes, because a damaged one may be no text any more.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from palinurus.migrate.openclaw.files import open_plain, why
from palinurus.migrate.openclaw.wal import wal_fault
from palinurus.migrate.report import Losses

LOGS = ("-wal", "-journal")
TRIES = 3  # at copying a file that somebody is writing
Damage = (apsw.Error, UnicodeDecodeError, ValueError, OverflowError)
"""What reading a row of a damaged file may raise."""


class ForeignDatabase:
    """One file, open for reading. `tables` are those that are really tables, with their columns."""

    def __init__(self, connection: apsw.Connection, shown: str) -> None:
        self._connection = connection
        self.shown = shown
        self.tables = {name: self._columns(name) for (name,) in connection.execute(_TABLES)}

    def has(self, table: str, *columns: str) -> bool:
        return set(columns) <= self.tables.get(table, frozenset())

    def rows(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Raises one of `Damage`."""
        return self._connection.execute(sql, values)

    def close(self) -> None:
        self._connection.close()

    def _columns(self, table: str) -> frozenset[str]:
        return frozenset(name for (name,) in self._connection.execute(_COLUMNS, (table,)))


_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table'"  # a view could be a trap
_COLUMNS = "SELECT name FROM pragma_table_xinfo(?)"


def open_database(path: Path, shown: str, scratch: Path, losses: Losses) -> ForeignDatabase | None:
    """None when there is no such file, or when it is of no use, which is then told. `scratch` holds copies."""
    try:
        if not path.is_file() or path.is_symlink():
            return None
        place = _copied(path, scratch) if _has_log(path) else path
        if place is not path:
            _examine_log(place, shown, losses)
    except OSError as error:
        losses.add(shown, 0, f"it cannot be read: {why(error)}")
        return None
    connection = None
    try:
        connection = _connect(place, immutable=place is path)
        return ForeignDatabase(connection, shown)
    except Damage as error:
        losses.add(shown, 0, f"the database cannot be read: {error}")
        if connection is not None:
            connection.close()
        return None


@contextmanager
def told(shown: str, losses: Losses, what: str) -> Iterator[None]:
    """Damage met inside ends the block and is told."""
    try:
        yield
    except Damage as error:
        losses.add(shown, 0, f"{what} cannot be read: {str(error)[:200]}")


def _connect(place: Path, *, immutable: bool) -> apsw.Connection:
    if immutable:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(f"{place.absolute().as_uri()}?immutable=1", flags=flags)
    else:
        connection = apsw.Connection(str(place))
    connection.pragma("trusted_schema", 0)
    connection.pragma("cell_size_check", 1)
    connection.pragma("mmap_size", 0)
    connection.pragma("query_only", 1)
    return connection


def _examine_log(place: Path, shown: str, losses: Losses) -> None:
    """Before it is opened, which folds the log into it."""
    with suppress(FileNotFoundError):
        if fault := wal_fault(Path(f"{place}-wal")):
            losses.add(f"{shown}-wal", 0, fault)


def _has_log(path: Path) -> bool:
    return any(_size(Path(f"{path}{log}")) for log in LOGS)


def _copied(path: Path, scratch: Path) -> Path:
    """Both files as they were at one moment: copied again when one of them changed meanwhile."""
    target = scratch / f"{len(list(scratch.iterdir()))}-{path.name}"
    for _ in range(TRIES):
        before = _state(path)
        for suffix in ("", *LOGS):
            with suppress(FileNotFoundError):
                _copy(Path(f"{path}{suffix}"), Path(f"{target}{suffix}"))
        if _state(path) == before:
            break
    return target


def _copy(source: Path, target: Path) -> None:
    with open_plain(source) as file, target.open("wb") as copy:
        target.chmod(0o600)
        shutil.copyfileobj(file, copy, 1024 * 1024)


def _state(path: Path) -> list[tuple[int, int]]:
    found = []
    for suffix in ("", *LOGS):
        with suppress(FileNotFoundError):
            stat = Path(f"{path}{suffix}").stat()
            found.append((stat.st_size, stat.st_mtime_ns))
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
