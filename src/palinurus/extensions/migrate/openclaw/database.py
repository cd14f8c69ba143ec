"""Open a foreign SQLite file without changing it.

A file with a write-ahead log is copied together with the log, and the copy is opened: opening it in place would move
the log into it. A file without a log is opened as immutable, so that SQLite neither locks it nor writes beside it.
Texts are read as bytes, because damaged ones may be no text.

Several transcripts are read in parallel, and two threads must not use one connection: each query has its own. What a
hostile file could make us compute is limited: no generated columns, no virtual tables, limits for a value and a wait.

SQLite stops reading a log at the first damaged frame and says nothing, so logs are checked here. An incomplete frame at
the end is no damage: it was never committed. A bad frame counts when a later frame of the same log is a commit.
"""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import apsw

from palinurus.extensions.migrate.files import error_text, open_plain
from palinurus.extensions.migrate.report import Losses

HEADER_BYTES, FRAME_BYTES = 32, 24
BYTE_ORDERS = {0x377F0682: "<", 0x377F0683: ">"}  # of checksums, by the magic number of the log
MOST_FRAMES = 250_000
LOGS = ("-wal", "-journal")
TRIES = 3  # at copying a file that is being written
LONGEST_VALUE = 128 * 1024 * 1024
WAIT_SECONDS = 300.0  # for one row: checking a table of gigabytes is one
STEPS = 100_000  # of SQLite's machine, between two looks at the clock
_TABLES = "SELECT name, sql FROM sqlite_schema WHERE type = 'table'"  # no views: one could compute forever
_COLUMNS = "SELECT name, hidden FROM pragma_table_xinfo(?)"

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
"""What reading a damaged or hostile file may raise. A busy file, or misuse by our own code, is no damage."""


def wal_fault(path: Path) -> str:
    """What is wrong with a log; empty when nothing is. Raises OSError."""
    with open_plain(path) as file:
        header = file.read(HEADER_BYTES)
        if not header:
            return ""
        if len(header) < HEADER_BYTES or (order := BYTE_ORDERS.get(int.from_bytes(header[:4], "big"))) is None:
            return "it begins with no header of a log: what was written last is lost"
        size = int.from_bytes(header[8:12], "big")
        sums = _checksum(header[:24], (0, 0), order)
        if sums != struct.unpack(">II", header[24:32]) or size < 512 or size & (size - 1):
            return "its header is damaged: what was written last is lost"
        return _frame_fault(file, header[16:24], size, sums, order)


def _frame_fault(file: BinaryIO, salts: bytes, size: int, sums: tuple[int, int], order: str) -> str:
    number = broken = lost = 0
    while number < MOST_FRAMES and len(frame := file.read(FRAME_BYTES + size)) == FRAME_BYTES + size:
        number += 1
        if frame[8:16] != salts:  # left from an earlier use of the log
            break
        if not broken:
            sums = _checksum(frame[FRAME_BYTES:], _checksum(frame[:8], sums, order), order)
            if sums != struct.unpack(">II", frame[16:24]):
                broken = number
        if broken and frame[4:8] != b"\0\0\0\0":  # a commit
            lost = number
    return f"it is damaged at page {broken} of {lost}: what was written from there on is lost" if lost else ""


def _checksum(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    one, two = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


class ForeignDatabase:
    """One file, open for reading. `tables` has the columns of real tables; `refused` names tables that compute."""

    def __init__(self, path: Path, shown: str, losses: Losses, *, immutable: bool) -> None:
        self._path = path
        self._immutable = immutable
        self.shown = shown
        self.losses = losses
        self.tables: dict[str, frozenset[str]] = {}
        self.refused: list[str] = []
        for name, sql in list(self.rows(_TABLES)):
            columns = list(self.rows(_COLUMNS, (name,)))
            if not str(sql).upper().startswith("CREATE TABLE"):
                continue  # a virtual table: a module computes its rows
            if any(hidden for _, hidden in columns):
                self.refused.append(name)
            else:
                self.tables[name] = frozenset(column for column, _ in columns)

    def has(self, table: str, *columns: str) -> bool:
        return set(columns) <= self.tables.get(table, frozenset())

    def read(
        self, sql: str, what: str, values: Sequence[Any] = (), *, needs: Sequence[str] = (), shown: str = ""
    ) -> Iterator[tuple[Any, ...]]:
        """Rows; none when the file lacks what it `needs`, a table and its columns. Damage ends them and is a loss."""
        if needs and (needs[0] not in self.tables or not self.has(*needs)):
            return
        try:
            yield from self.rows(sql, values)
        except Damage as error:
            self.losses.add(shown or self.shown, 0, f"{what} cannot be read: {str(error)[:200]}")

    def rows(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Rows, read on a connection of their own. Raises one of `Damage`, also when a row takes too long."""
        connection = self._connect()
        until = time.monotonic() + WAIT_SECONDS
        connection.set_progress_handler(lambda: time.monotonic() > until, STEPS)
        try:
            for row in connection.execute(sql, values):
                yield row
                until = time.monotonic() + WAIT_SECONDS
        finally:
            connection.close()

    def _connect(self) -> apsw.Connection:
        if self._immutable:
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            connection = apsw.Connection(f"{self._path.absolute().as_uri()}?immutable=1", flags=flags)
        else:
            connection = apsw.Connection(str(self._path))
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
        connection.set_busy_timeout(30_000)
        for pragma, value in (("trusted_schema", 0), ("cell_size_check", 1), ("mmap_size", 0), ("query_only", 1)):
            connection.pragma(pragma, value)
        return connection


def open_database(path: Path, shown: str, scratch: Path, losses: Losses) -> ForeignDatabase | None:
    """None when there is no such file, or when it cannot be used, which is a loss. `scratch` holds copies."""
    try:
        if not path.is_file() or path.is_symlink():
            return None
        has_log = any(size for size, _ in _file_states(path)[1:])
        place = _copy_with_log(path, scratch) if has_log else path
        with suppress(FileNotFoundError):
            if has_log and (fault := wal_fault(Path(f"{place}-wal"))):  # before it is opened, which removes the log
                losses.add(f"{shown}-wal", 0, fault)
    except OSError as error:
        losses.add(shown, 0, f"it cannot be read: {error_text(error)}")
        return None
    try:
        database = ForeignDatabase(place, shown, losses, immutable=not has_log)
    except Damage as error:
        losses.add(shown, 0, f"the database cannot be read: {error}")
        return None
    for table in database.refused:
        losses.add(shown, 0, f"the table {table[:80]!r} computes its columns, which is not read from a foreign file")
    return database


def _copy_with_log(path: Path, scratch: Path) -> Path:
    """All files as they were at one moment: copied again when one of them changed meanwhile."""
    target = scratch / f"{len(list(scratch.iterdir()))}-{path.name}"
    for _ in range(TRIES):
        before = _file_states(path)
        for suffix in ("", *LOGS):
            with suppress(FileNotFoundError):
                _copy(Path(f"{path}{suffix}"), Path(f"{target}{suffix}"))
        if _file_states(path) == before:
            break
    return target


def _copy(source: Path, target: Path) -> None:
    with open_plain(source) as file, target.open("wb") as copy:
        target.chmod(0o600)
        shutil.copyfileobj(file, copy, 1024 * 1024)


def _file_states(path: Path) -> list[tuple[int, int]]:
    """Size and time of the file and of its logs; zeros for one that is not there."""
    states = dict.fromkeys(("", *LOGS), (0, 0))
    for suffix in states:
        with suppress(FileNotFoundError):
            stat = Path(f"{path}{suffix}").stat()
            states[suffix] = (stat.st_size, stat.st_mtime_ns)
    return list(states.values())


def text_of(value: Any) -> str:
    """A column that was read as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else ""
