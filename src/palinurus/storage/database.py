"""One SQLite file: one writer off the event loop with group commit, one reader beside it.

Whoever writes hands a function to `write` and gets its value back when the transaction that holds it is on the disk
(WAL with full sync: a power cut loses nothing that was acknowledged). Functions that arrive while a commit is under
way share the next one, so a hundred writers cost a handful of syncs. A function that fails takes only itself out of
the transaction; a commit that fails fails for all who were in it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw

from palinurus.domain.errors import PalinurusError, StorageDamaged, StorageError, StorageFull, StorageReadOnly
from palinurus.storage.migrations import migrate

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]
"""Runs inside a transaction, on the writer's thread. What it raises reaches the caller and undoes its own writes."""

BATCH = 256  # functions that one commit may hold


class Database:
    def __init__(self, path: Path, folder: str, *, readonly: bool = False) -> None:
        self.path = path
        with translated(path):
            self._writer = None if readonly else _open_writer(path, folder)
            self._reader = _open_reader(path)
        self._write_thread = ThreadPoolExecutor(1, "pal-writer")
        self._read_thread = ThreadPoolExecutor(1, "pal-reader")
        # Filled on the event loop, emptied on the writer's thread: a deque's two ends need no lock.
        self._jobs: deque[tuple[Work[Any], asyncio.Future[Any]]] = deque()
        self._flushing = False

    async def write(self, work: Work[T]) -> T:
        """The value of `work`, once what it wrote is on the disk."""
        if self._writer is None:
            raise StorageReadOnly(f"{self.path} is open for reading only", hint="another process holds this home")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.append((work, future))
        if not self._flushing:
            self._flushing = True
            loop.run_in_executor(self._write_thread, self._flush, loop)
        # A caller that is cancelled must not take its write out of the batch: it may be on the disk already.
        return await asyncio.shield(future)

    async def read(self, work: Work[T]) -> T:
        loop = asyncio.get_running_loop()
        with translated(self.path):
            return await loop.run_in_executor(self._read_thread, work, self._reader)

    async def close(self) -> None:
        """After the last write has ended."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._write_thread, self._close)
        self._write_thread.shutdown()
        self._read_thread.shutdown()

    def _close(self) -> None:
        self._reader.close()
        if self._writer is not None:
            self._writer.close()

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        """On the writer's thread: commit what waits, until nothing waits."""
        while True:
            batch = [self._jobs.popleft() for _ in range(min(BATCH, len(self._jobs)))]
            if batch:
                outcomes = self._commit([work for work, _ in batch])
                _call(loop, _settle, [future for _, future in batch], outcomes)
            else:
                _call(loop, self._rest, loop)
                return

    def _rest(self, loop: asyncio.AbstractEventLoop) -> None:
        """On the event loop again: nobody can add a job between this check and the flag."""
        self._flushing = bool(self._jobs)
        if self._flushing:
            loop.run_in_executor(self._write_thread, self._flush, loop)

    def _commit(self, works: list[Work[Any]]) -> list[Any]:
        connection = self._writer
        assert connection is not None  # noqa: S101  # checked by write()
        outcomes: list[Any] = []
        try:
            with translated(self.path):
                connection.execute("BEGIN IMMEDIATE")
                outcomes = [_attempt(connection, work) for work in works]
                connection.execute("COMMIT")
        except PalinurusError as error:
            if connection.in_transaction:  # SQLite may have rolled back by itself, on a full disk for one
                connection.execute("ROLLBACK")
            return [error] * len(works)
        return outcomes


def _attempt(connection: apsw.Connection, work: Work[Any]) -> Any:
    """The value of the work, or what it raised with its writes undone; a broken disk breaks the whole batch."""
    connection.execute("SAVEPOINT work")
    try:
        outcome = work(connection)
    except (apsw.FullError, apsw.IOError, apsw.CorruptError, apsw.ReadOnlyError):
        raise
    except Exception as error:  # noqa: BLE001  # handed to the caller, who waits for it
        connection.execute("ROLLBACK TO work")
        outcome = error
    connection.execute("RELEASE work")
    return outcome


def _settle(futures: list[asyncio.Future[Any]], outcomes: list[Any]) -> None:
    for future, outcome in zip(futures, outcomes, strict=True):
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
            future.exception()  # a caller that went away leaves nobody to look at it
        else:
            future.set_result(outcome)


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: Any) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function, *arguments)


def _open_writer(path: Path, folder: str) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    path.chmod(0o600)
    connection.set_busy_timeout(5_000)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.pragma("fullfsync", 1)  # macOS: a plain fsync there does not reach the disk
    connection.pragma("foreign_keys", 1)
    migrate(connection, path, folder)
    return connection


def _open_reader(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(5_000)
    return connection


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors in our words."""
    try:
        yield
    except apsw.FullError:
        raise StorageFull(f"the disk is full: {path} cannot grow", hint="free some space and try again") from None
    except (apsw.ReadOnlyError, apsw.PermissionsError, PermissionError) as error:
        raise StorageReadOnly(f"{path} cannot be written: {error}", hint="check who owns the home") from None
    except apsw.CantOpenError as error:
        raise StorageReadOnly(f"{path} cannot be opened: {error}", hint="check who owns the home") from None
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise StorageDamaged(f"{path} is damaged: {error}", hint="restore a backup; keep the file") from None
    except apsw.Error as error:
        raise StorageError(f"{path}: {error}") from error
