"""Open a foreign SQLite file without touching it.

A file whose write-ahead log holds something is copied together with the log, and the copy is opened: opening it in
place would fold the log into it. A file without a log is opened as one that never changes, which makes SQLite neither
lock it nor leave anything beside it. Texts are asked for as bytes, because a damaged one may be no text any more.

Several transcripts are read side by side, and SQLite answers "busy" or worse to two threads on one connection: each
reader has a connection of its own. What the file could make us compute is bounded: no generated columns, no virtual
tables, no value and no wait without end.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from palinurus.migrate.openclaw.files import open_plain, why
from palinurus.migrate.openclaw.wal import wal_fault
from palinurus.migrate.report import Losses

LOGS = ("-wal", "-journal")
TRIES = 3  # at copying a file that somebody is writing
LONGEST_VALUE = 128 * 1024 * 1024
WAIT_SECONDS = 300.0  # for one row: checking a table of gigabytes is one
STEPS = 100_000  # of SQLite's machine, between two looks at the clock
Damage = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.FormatError,
    apsw.SQLError,
    apsw.IOError,
    apsw.CantOpenError,
    apsw.SchemaChangeError,
    apsw.MismatchError,
    apsw.TooBigError,
    apsw.NoMemError,
    apsw.InterruptError,
    UnicodeDecodeError,
    ValueError,
    OverflowError,
)
"""What reading a row of a damaged or hostile file may raise. That a file is busy, or misused by us, is no damage."""


class ForeignDatabase:
    """One file, open for reading. `tables` are those that are really tables, with their columns; `refused` are not."""

    def __init__(self, connect: Callable[[], apsw.Connection], shown: str) -> None:
        self._connect = connect
        self._guard = threading.Lock()
        self._all: list[apsw.Connection] = []
        self._free: list[apsw.Connection] = []
        self.shown = shown
        self.tables: dict[str, frozenset[str]] = {}
        self.refused: list[str] = []
        try:
            self._look_at_tables()
        except BaseException:
            self.close()
            raise

    def has(self, table: str, *columns: str) -> bool:
        return set(columns) <= self.tables.get(table, frozenset())

    def rows(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """On a connection that nobody else uses until the last row was read. Raises one of `Damage`."""
        with self._guard:
            connection = self._free.pop() if self._free else None
        if connection is None:
            connection = self._connect()
            with self._guard:
                self._all.append(connection)
        watch = _Watch(connection)
        try:
            for row in connection.execute(sql, values):
                yield row
                watch.restart()
        finally:
            watch.end()
            with self._guard:
                self._free.append(connection)

    def close(self) -> None:
        for connection in self._all:
            connection.close()

    def _look_at_tables(self) -> None:
        for name, sql in list(self.rows(_TABLES)):
            columns = list(self.rows(_COLUMNS, (name,)))
            if not str(sql).upper().startswith("CREATE TABLE"):
                continue  # a virtual one: its rows are computed by a module
            if any(hidden for _, hidden in columns):
                self.refused.append(name)
            else:
                self.tables[name] = frozenset(column for column, _ in columns)


class _Watch:
    """Interrupts a statement that gives no row for too long."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.restart()
        connection.set_progress_handler(self._is_late, STEPS)

    def restart(self) -> None:
        self._until = time.monotonic() + WAIT_SECONDS

    def end(self) -> None:
        self._connection.set_progress_handler(None)

    def _is_late(self) -> bool:
        return time.monotonic() > self._until


_TABLES = "SELECT name, sql FROM sqlite_schema WHERE type = 'table'"  # a view could be a trap
_COLUMNS = "SELECT name, hidden FROM pragma_table_xinfo(?)"


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
    try:
        database = ForeignDatabase(lambda: _connect(place, immutable=place is path), shown)
    except Damage as error:
        losses.add(shown, 0, f"the database cannot be read: {error}")
        return None
    for table in database.refused:
        losses.add(shown, 0, f"the table {table[:80]!r} computes its columns, which is not read from a foreign file")
    return database


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
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
    connection.set_busy_timeout(30_000)
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
