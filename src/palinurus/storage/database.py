"""One SQLite file: one writer off the event loop with group commit, one reader beside it.

Whoever writes hands a function to `write` and gets its value back when the transaction that holds it is on the disk
(WAL with full sync: a power cut loses nothing that was acknowledged). Functions that arrive while a commit is under
way share the next one, so a hundred writers cost a handful of syncs. A function that fails takes only itself out of
the transaction; a commit that fails fails for all who were in it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw

from palinurus.domain.errors import (
    HomeTaken,
    PalinurusError,
    StorageDamaged,
    StorageError,
    StorageFull,
    StorageReadOnly,
)
from palinurus.storage.migrations import check_form, migrate
from palinurus.storage.queries import load_queries, migration_files
from palinurus.storage.reserve import Reserve

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]
"""Runs inside a transaction, on the writer's thread. What it raises reaches the caller and undoes its own writes."""

OnCommit = Callable[[int, float], None]
"""Told on the event loop how many writes a commit held and how many seconds it took. Must not raise."""

Job = tuple[Work[Any], asyncio.Future[Any]]
BATCH = 256  # functions that one commit may hold
LINGER_SECONDS = 0.05  # how long a write that nobody waits for may wait for company
READ_CACHE = 16 * 1024  # kilobytes of a derived file that are kept at hand
WRITE_CACHE = 32 * 1024
LITTLE_SPACE = 64 * 1024  # a disk with less to give counts as full
IDLE_SECONDS = 5.0  # after the last write, until the log is moved into the file
MARKER = "home.id"  # stands beside a home's database from its first day on
SIGNS_OF_LIFE = (MARKER, "derived/transcripts.sqlite", "chat-history.jsonl")
SQL = load_queries("holder.sql")


class Database:
    def __init__(
        self,
        path: Path,
        folder: str,
        *,
        readonly: bool = False,
        derived: bool = False,
        exclusive: bool = False,
        reserve: Reserve | None = None,
    ) -> None:
        """`derived`: a power cut may cost the last writes, because they can be made again; never the whole file.

        `exclusive`: from now on only this object commits; who had the file before is refused with HomeTaken.
        `reserve` is given back when the disk is full, and the commit that found it so is tried once more.
        """
        self.path = path
        self.reserve = reserve
        self._epoch: int | None = None
        self._checkpoints = not derived
        with translated(path):
            _check_kind(path, StorageDamaged if exclusive else StorageReadOnly)  # damaged indexes are thrown away
            if exclusive or readonly:
                check_not_emptied(path)
            self._writer = None if readonly else _open_writer(path, folder, derived)
            if self._writer is not None and exclusive:
                self._epoch = self._writer.execute(SQL["next_epoch"]).get
                _leave_marker(path)
            self._reader = _open_reader_alone(path) if readonly else _open_reader(path)
            if derived:
                self._reader.pragma("cache_size", -READ_CACHE)
        self._write_thread = ThreadPoolExecutor(1, "pal-writer")
        self._read_thread = ThreadPoolExecutor(1, "pal-reader")
        self.on_commit: OnCommit = _nobody
        self._jobs: deque[Job] = deque()  # touched on the event loop alone
        self._committing = False
        self._lingering: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None

    def check_form(self, folder: str) -> None:
        """Raises StorageReadOnly for a file of an earlier release that is open for reading only."""
        with translated(self.path):
            check_form(self._reader, self.path, folder)

    async def write(self, work: Work[T]) -> T:
        """The value of `work`, once what it wrote is on the disk."""
        future = self._queued(work)
        self._start()
        # A caller that is cancelled leaves its write in the batch: it may be on the disk already.
        return await future

    def enqueue(self, work: Work[T]) -> asyncio.Future[T]:
        """Hand a write in that nobody waits for: it goes with the next one, or alone when none comes soon.

        Writes are done in the order in which they were handed in, whoever waits for them.
        """
        future = self._queued(work)
        if self._lingering is None:
            self._lingering = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._start)
        return future

    async def flush(self) -> None:
        """When this returns, all writes that were handed in have ended, well or badly."""
        if self._jobs or self._committing:
            nothing = self._queued(lambda _: None)
            self._start()
            await asyncio.wait([nothing])

    async def read(self, work: Work[T]) -> T:
        loop = asyncio.get_running_loop()
        with translated(self.path):
            return await loop.run_in_executor(self._read_thread, work, self._reader)

    async def scrub(self, *, rewrite: bool = False) -> None:
        """Empty the write-ahead log, which still holds what was deleted.

        `rewrite` writes the file anew first: pages that are in use have gaps, and what was there once stands in them.
        """
        loop = asyncio.get_running_loop()
        with translated(self.path):
            if rewrite:
                await self.flush()
                await loop.run_in_executor(self._write_thread, self._write_anew)
            await loop.run_in_executor(self._write_thread, self._empty_log)

    async def close(self) -> None:
        """After the last write that was handed in has ended."""
        await self.flush()
        self._stop_idle_timer()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._read_thread, self._reader.close)  # after the reads that are under way
        if self._writer is not None:
            await loop.run_in_executor(self._write_thread, self._writer.close)
        self._write_thread.shutdown()
        self._read_thread.shutdown()

    def _queued(self, work: Work[T]) -> asyncio.Future[T]:
        if self._writer is None:
            raise StorageReadOnly(f"{self.path} is open for reading only", hint="another process holds this home")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.append((work, future))
        return future

    def _start(self) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        if not self._committing:
            self._commit_next(asyncio.get_running_loop())

    def _write_anew(self) -> None:
        if self._writer is not None:
            self._writer.execute("VACUUM")

    def _empty_log(self) -> None:
        if self._writer is not None:
            with suppress(apsw.BusyError):  # somebody reads; the log is emptied when the last one has gone
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _commit_next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hand what waits to the writer's thread: one commit at a time, one wake-up of the loop for each."""
        batch = [self._jobs.popleft() for _ in range(min(BATCH, len(self._jobs)))]
        self._committing = bool(batch)
        if batch:
            self._write_thread.submit(self._write, loop, batch)

    def _write(self, loop: asyncio.AbstractEventLoop, batch: list[Job]) -> None:
        began = time.perf_counter()
        outcomes = self._commit([work for work, _ in batch])
        seconds = time.perf_counter() - began
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._committed, loop, batch, outcomes, seconds)

    def _committed(
        self, loop: asyncio.AbstractEventLoop, batch: list[Job], outcomes: list[Any], seconds: float
    ) -> None:
        _settle([future for _, future in batch], outcomes)
        self._commit_next(loop)
        self.on_commit(len(batch), seconds)
        if self._checkpoints and not self._committing:
            self._stop_idle_timer()
            self._idle = loop.call_later(IDLE_SECONDS, self._write_thread.submit, self._checkpoint)

    def _stop_idle_timer(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _checkpoint(self) -> None:
        """Move the log into the file as far as nobody reads in it: a home whose log is lost then loses little."""
        if self._writer is not None:
            with suppress(apsw.Error):  # the next commit meets what is wrong and tells somebody
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _commit(self, works: list[Work[Any]]) -> list[Any]:
        outcomes = self._commit_once(works)
        is_full = isinstance(outcomes[0], StorageFull) and all(each is outcomes[0] for each in outcomes)
        if is_full and self.reserve is not None and self.reserve.give():
            return self._commit_once(works)
        return outcomes

    def _commit_once(self, works: list[Work[Any]]) -> list[Any]:
        connection = self._writer
        assert connection is not None  # noqa: S101  # checked by write()
        outcomes: list[Any] = []
        try:
            with translated(self.path):
                connection.execute("BEGIN IMMEDIATE")
                self._check_epoch(connection)
                outcomes = [_attempt(connection, work) for work in works]
                connection.execute("COMMIT")
        except PalinurusError as error:
            if connection.in_transaction:  # SQLite may have rolled back by itself, on a full disk for one
                with suppress(apsw.Error):  # whoever waits must be told; the next BEGIN finds what is wrong
                    connection.execute("ROLLBACK")
            return [error] * len(works)
        return outcomes

    def _check_epoch(self, connection: apsw.Connection) -> None:
        if self._epoch is not None and connection.execute(SQL["current_epoch"]).get != self._epoch:
            raise HomeTaken(
                f"another process writes {self.path} now, so this one has stopped writing",
                hint="end this process; `pal status` asks the other one",
            )


def _nobody(_: int, __: float) -> None: ...


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


def _open_writer(path: Path, folder: str, derived: bool) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    path.chmod(0o600)
    connection.set_busy_timeout(5_000)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "normal" if derived else "full")
    connection.pragma("fullfsync", 1)  # macOS: a plain fsync there does not reach the disk
    connection.pragma("foreign_keys", 1)
    if derived:  # it is written in large pieces: fewer moves from the log into the file, and pages at hand
        connection.pragma("wal_autocheckpoint", 4_000)
        connection.pragma("journal_size_limit", 4 * 1024 * 1024)
        connection.pragma("cache_size", -WRITE_CACHE)
    if len(migrate(connection, path, folder)) == len(migration_files(folder)) and not derived:
        # A file that was just made lies in its log alone until then, and would be an empty one without it.
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    return connection


def _check_kind(path: Path, error: type[StorageError] = StorageDamaged) -> None:
    if path.exists() and not path.is_file():  # a pipe would be waited for without end
        raise error(f"{path} is no regular file", hint="move it away; a database, or a backup of it, belongs there")


def check_not_emptied(path: Path) -> None:
    """Raises StorageDamaged for a home that has been lived in and whose database holds nothing.

    To open it would make a new one, and everything that was said would seem never to have been.
    """
    _check_kind(path)
    sign = next((name for name in SIGNS_OF_LIFE if (path.parent / name).exists()), "")
    if sign and _holds_nothing(path):
        raise StorageDamaged(
            f"{path} {'is empty' if path.exists() else 'is missing'}, but {sign} shows that this home has been used",
            hint=f"put the file back, or a backup (`pal backup restore`); to begin anew, move {path.parent} away",
        )


def _holds_nothing(path: Path) -> bool:
    if not path.exists():
        return True
    with path.open("rb") as file:
        header = file.read(64)
    if not header:  # SQLite, asked what it holds, would remove its log, which may be all that is left of the last words
        return True
    if header[60:].strip(b"\0"):  # user_version in the header: the form that migrations have given it
        return False
    connection = apsw.Connection(str(path))  # what the log says counts too
    try:
        return not connection.pragma("user_version")
    finally:
        connection.close()


def _leave_marker(path: Path) -> None:
    marker = path.with_name(MARKER)
    if not marker.exists():
        marker.touch(mode=0o600)


def _open_reader(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(5_000)
    return connection


def _open_reader_alone(path: Path) -> apsw.Connection:
    """For one who cannot write there. SQLite opens no log where it cannot make the files that go with it."""
    connection = _open_reader(path)
    try:
        connection.pragma("schema_version")
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.FullError, apsw.IOError):
        connection.close()
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:  # without it the file would tell an old story
            raise
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(f"{path.as_uri()}?immutable=1", flags=flags)
    return connection


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors in our words."""
    try:
        yield
    except (apsw.FullError, apsw.IOError) as error:
        # Where the shared memory of the log finds no space, SQLite speaks of an I/O error.
        if isinstance(error, apsw.IOError) and not _is_full(path):
            raise StorageError(f"{path}: {error}", hint="is the disk in order?") from None
        raise StorageFull(f"the disk is full: {path} cannot grow", hint="free some space and try again") from None
    except (apsw.ReadOnlyError, apsw.PermissionsError, PermissionError) as error:
        raise StorageReadOnly(f"{path} cannot be written: {error}", hint="check who owns the home") from None
    except apsw.CantOpenError as error:
        raise StorageReadOnly(f"{path} cannot be opened: {error}", hint="check who owns the home") from None
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise StorageDamaged(f"{path} is damaged: {error}", hint="restore a backup; keep the file") from None
    except apsw.Error as error:
        raise StorageError(f"{path}: {error}") from error


def _is_full(path: Path) -> bool:
    try:
        space = os.statvfs(path.parent)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize < LITTLE_SPACE
