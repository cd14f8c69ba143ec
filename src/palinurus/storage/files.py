"""Opens database files for writers and readers, and translates SQLite's errors into ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from palinurus.domain.errors import StorageDamaged, StorageError, StorageFull, StorageReadOnly
from palinurus.storage.migrations import migrate
from palinurus.storage.transaction import Transaction

WRITE_CACHE = 32 * 1024
LITTLE_SPACE = 64 * 1024  # with less free space the disk counts as full
MARKER = "home.id"  # created beside the database of a home
SIGNS_OF_USE = (MARKER, "derived/transcripts.sqlite", "chat-history.jsonl")


def open_writer(path: Path, file: str, derived: bool) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    path.chmod(0o600)
    connection.set_busy_timeout(5_000)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "normal" if derived else "full")
    connection.pragma("fullfsync", 1)  # macOS: a plain fsync there does not reach the disk
    connection.pragma("foreign_keys", 1)
    if derived:  # written in large pieces: fewer checkpoints, larger cache
        connection.pragma("wal_autocheckpoint", 4_000)
        connection.pragma("journal_size_limit", 4 * 1024 * 1024)
        connection.pragma("cache_size", -WRITE_CACHE)
    if migrate(connection, path, file) and not derived:
        # Until then a new file exists only in its log and would be empty without it.
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    return connection


def check_kind(path: Path, error: type[StorageError] = StorageDamaged) -> None:
    if path.exists() and not path.is_file():  # opening a pipe would block forever
        raise error(f"{path} is not a regular file", hint="move it away; a database, or a backup of it, belongs there")


def check_not_emptied(path: Path) -> None:
    """Raises StorageDamaged if the database of a used home is empty or missing.

    Opening it would create a new, empty database.
    """
    check_kind(path)
    sign = next((name for name in SIGNS_OF_USE if (path.parent / name).exists()), "")
    if sign and _holds_nothing(path):
        raise StorageDamaged(
            f"{path} {'is empty' if path.exists() else 'is missing'}, but {sign} shows that this home has been used",
            hint=f"put the file back, or a backup (`pal backup restore`); to start over, move {path.parent} away",
        )


def _holds_nothing(path: Path) -> bool:
    if not path.exists():
        return True
    with path.open("rb") as file:
        header = file.read(64)
    if not header:  # SQLite would remove the log, which may hold the only data left
        return True
    if header[60:].strip(b"\0"):  # user_version in the header: the schema version set by migrations
        return False
    connection = apsw.Connection(str(path))  # the log may hold a newer version
    try:
        return not connection.pragma("user_version")
    finally:
        connection.close()


def leave_marker(path: Path) -> None:
    marker = path.with_name(MARKER)
    if not marker.exists():
        marker.touch(mode=0o600)


def open_reader(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(5_000)
    return connection


def open_reader_alone(path: Path) -> apsw.Connection:
    """Opens a file for a process that cannot write there: SQLite opens no log if it cannot create its files."""
    connection = open_reader(path)
    try:
        connection.pragma("schema_version")
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.FullError, apsw.IOError):
        connection.close()
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:  # without the log the file is out of date
            raise
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(f"{path.as_uri()}?immutable=1", flags=flags)
    return connection


@contextmanager
def looking_into(path: Path) -> Iterator[Transaction]:
    """A transaction on a separate connection, in any thread: a long read blocks no other.

    Blocks. Raises StorageError.
    """
    with translated(path):
        connection = open_reader(path)
        try:
            yield Transaction(connection)
        finally:
            connection.close()


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Re-raises SQLite's errors as ours."""
    try:
        yield
    except (apsw.Error, PermissionError) as error:
        raise translate_error(error, path) from (error if type(error) is apsw.SQLError else None)


def translate_error(error: Exception, path: Path) -> Exception:
    """The matching PalinurusError; an error that is not from SQLite is returned unchanged."""
    match error:
        case apsw.IOError() if not _is_full(path):
            return StorageError(f"{path}: {error}", hint="check the disk")
        case apsw.FullError() | apsw.IOError():  # without space for the log's shared memory it is an I/O error
            return StorageFull(f"the disk is full: {path} cannot grow", hint="free some space and try again")
        case apsw.ReadOnlyError() | apsw.PermissionsError() | PermissionError():
            return StorageReadOnly(f"{path} cannot be written: {error}", hint="check who owns the home")
        case apsw.CantOpenError():
            return StorageReadOnly(f"{path} cannot be opened: {error}", hint="check who owns the home")
        case apsw.CorruptError() | apsw.NotADBError():
            return StorageDamaged(f"{path} is damaged: {error}", hint="restore a backup; keep the file")
        case apsw.Error():
            return StorageError(f"{path}: {error}")
        case _:
            return error


def _is_full(path: Path) -> bool:
    try:
        space = os.statvfs(path.parent)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize < LITTLE_SPACE
