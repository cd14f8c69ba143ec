"""One SQLite file: one writer thread with group commit, one reader thread.

A caller passes a function to `write` and gets its value when the transaction that holds it is on the disk (WAL with
full sync: a power cut loses nothing that was acknowledged). Functions that arrive during a commit share the next one,
so a hundred writers cost a few syncs. A function that fails is rolled back alone; a commit that fails fails for all
functions in it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import apsw
from msgspec import Struct

from palinurus.domain.errors import (
    HomeTaken,
    PalinurusError,
    StorageDamaged,
    StorageError,
    StorageFull,
    StorageReadOnly,
)
from palinurus.storage.files import (
    check_kind,
    check_not_emptied,
    leave_marker,
    looking_into,
    open_reader,
    open_reader_alone,
    open_writer,
    translate_error,
    translated,
)
from palinurus.storage.migrations import check_form, migrate, newest_form
from palinurus.storage.reserve import Reserve
from palinurus.storage.transaction import Transaction, Work, declare_queries

T = TypeVar("T")
OnCommit = Callable[[int, float], None]
"""Called on the event loop with the number of writes in a commit and its duration in seconds. Must not raise."""

OpenDatabase = Callable[..., "Database"]
"""What `Extension.databases` names, called with the URL, the tenant and `readonly`. Blocks. Raises StorageError."""


class StorageStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where the home is kept. Nothing here is secret."""

    engine: str
    url: str  # a path, or an address without its password
    form: int  # of the tables
    newest_form: int  # that this release knows
    size: int  # bytes
    tenant: str = ""
    sessions: int = 0
    entries: int = 0
    role: str = ""  # as whom the server knows us
    superuser: bool = False
    bypasses_policies: bool = False
    policies: dict[str, bool] = {}  # table -> whether it shows a tenant only its own rows


Waiting = tuple[Work[Any], asyncio.Future[Any]]
BATCH = 256  # functions that one commit may hold
LINGER_SECONDS = 0.05  # how long an enqueued write may wait for others to share its commit
READ_CACHE = 16 * 1024  # page cache of a derived file, in kilobytes
IDLE_SECONDS = 5.0  # after the last write, until the log is moved into the file
declare_queries("holder", __file__)


class Database:
    def __init__(
        self,
        path: Path,
        file: str,
        *,
        readonly: bool = False,
        derived: bool = False,
        exclusive: bool = False,
        reserve: Reserve | None = None,
    ) -> None:
        """`file`: the kind of file, which selects its migrations.

        `derived`: a power cut may lose the last writes, because they can be rebuilt; never the whole file.

        `exclusive`: from now on only this object commits; an earlier writer gets HomeTaken.

        `reserve` is released when the disk is full, and the failed commit is retried once.
        """
        self.path = path
        self.name = str(path)
        self.reserve = reserve
        self.readonly = readonly
        self._epoch: int | None = None
        self._checkpoints = not derived
        with translated(path):
            check_kind(path, StorageDamaged if exclusive else StorageReadOnly)  # damaged indexes are thrown away
            if exclusive or readonly:
                check_not_emptied(path)
            self._writer = None if readonly else open_writer(path, file, derived)
            if self._writer is not None and exclusive:
                self._epoch = Transaction(self._writer).value("holder.next_epoch")
                leave_marker(path)
            self._reader = open_reader_alone(path) if readonly else open_reader(path)
            if derived:
                self._reader.pragma("cache_size", -READ_CACHE)
        self._reading = Transaction(self._reader)
        self._start_threads()

    def _start_threads(self, readers: int = 1) -> None:
        self._write_thread = ThreadPoolExecutor(1, "pal-writer")
        self._read_thread = ThreadPoolExecutor(readers, "pal-reader")
        self.on_commit: OnCommit = _nobody
        self._waiting: deque[Waiting] = deque()  # used on the event loop only
        self._committing = False
        self._lingering: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None

    def check_form(self, file: str) -> None:
        """Raises StorageReadOnly for a file of an earlier release that is open for reading only."""
        with translated(self.path):
            check_form(self._reader, self.path, file)

    async def write(self, work: Work[T]) -> T:
        """Runs `work` in a transaction. Returns its value once its writes are on the disk."""
        future = self._queued(work)
        self._start()
        # A cancelled caller leaves its write in the batch: it may be on the disk already.
        return await future

    def enqueue(self, work: Work[T]) -> asyncio.Future[T]:
        """Adds a write without waiting for it: it joins the next commit, or gets its own soon.

        Writes run in the order in which they were added, with or without a waiting caller.
        """
        future = self._queued(work)
        if self._lingering is None:
            self._lingering = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._start)
        return future

    async def flush(self) -> None:
        """Returns when all writes added so far have ended, with or without success."""
        if self._waiting or self._committing:
            nothing = self._queued(lambda _: None)
            self._start()
            await asyncio.wait([nothing])

    async def read(self, work: Work[T]) -> T:
        loop = asyncio.get_running_loop()
        with translated(self.path):
            return await loop.run_in_executor(self._read_thread, work, self._reading)

    @contextmanager
    def apart(self) -> Iterator[Transaction]:
        """A reading transaction on a connection of its own, in any thread: a long read blocks no other.

        Blocks. Raises StorageError.
        """
        with looking_into(self.path) as tx:
            yield tx

    async def examine(self) -> tuple[tuple[str, ...], int]:
        """SQLite's first integrity error, if any, and the file's schema version."""

        def look(tx: Transaction) -> tuple[Any, Any]:
            return tx.connection.pragma("quick_check"), tx.connection.pragma("user_version")

        said, form = await self.read(look)
        return () if said == "ok" else (str(said),), int(form or 0)

    async def describe(self) -> StorageStatus:
        def look(tx: Transaction) -> tuple[Any, ...]:
            form, size = (tx.connection.pragma(name) for name in ("user_version", "page_count"))
            return form, size * tx.connection.pragma("page_size"), *tx.one("holder.counts")

        form, size, sessions, entries = await self.read(look)
        return StorageStatus("sqlite", self.name, form, newest_form("home"), size, sessions=sessions, entries=entries)

    def has_unfinished_runs(self) -> bool:
        """Whether another process left an unfinished run or approval. Called before any other use."""
        with translated(self.path):
            return bool(self._reading.value("holder.unfinished_runs"))

    def has_open_jobs(self) -> bool:
        """Whether any job other than a run is open. Called before any other use."""
        with translated(self.path):
            return bool(self._reading.value("holder.open_jobs"))

    async def scrub(self, *, rewrite: bool = False) -> None:
        """Empties the write-ahead log, which still holds deleted data.

        `rewrite` rewrites the file first: unused gaps in its pages hold deleted data.
        """
        loop = asyncio.get_running_loop()
        with translated(self.path):
            if rewrite:
                await self.flush()
            await loop.run_in_executor(self._write_thread, self._empty_log, rewrite)

    async def close(self) -> None:
        """Closes after the last added write has ended."""
        await self.flush()
        self._stop_idle_timer()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._read_thread, self._reader.close)  # after the reads in progress
        if self._writer is not None:
            await loop.run_in_executor(self._write_thread, self._writer.close)
        self._write_thread.shutdown()
        self._read_thread.shutdown()

    def _queued(self, work: Work[T]) -> asyncio.Future[T]:
        if self.readonly:
            raise StorageReadOnly(f"{self.name} is open for reading only", hint="another process holds this home")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, future))
        return future

    def _start(self) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        if not self._committing:
            self._commit_next(asyncio.get_running_loop())

    def _empty_log(self, rewrite: bool) -> None:
        if self._writer is not None:
            if rewrite:
                self._writer.execute("VACUUM")
            with suppress(apsw.BusyError):  # a reader is active; the log is emptied when the last one has finished
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _commit_next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Passes the waiting writes to the writer thread: one commit at a time, one loop wake-up per commit."""
        batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
        self._committing = bool(batch)
        if batch:
            self._write_thread.submit(self._write, loop, batch)

    def _write(self, loop: asyncio.AbstractEventLoop, batch: list[Waiting]) -> None:
        began = time.perf_counter()
        outcomes = self._commit([work for work, _ in batch])
        seconds = time.perf_counter() - began
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._committed, loop, batch, outcomes, seconds)

    def _committed(
        self, loop: asyncio.AbstractEventLoop, batch: list[Waiting], outcomes: list[Any], seconds: float
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

    def _checkpoint(self) -> None:
        """Moves the log into the file as far as no reader uses it, so that losing the log loses little."""
        if self._writer is not None:
            with suppress(apsw.Error):  # the next commit meets the error and reports it
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
                transaction = Transaction(connection)
                self._check_epoch(transaction)
                outcomes = [self._attempt(transaction, work) for work in works]
                connection.execute("COMMIT")
        except PalinurusError as error:
            if connection.in_transaction:  # SQLite may have rolled back by itself, for example on a full disk
                with suppress(apsw.Error):  # callers get the error; the next BEGIN detects what is wrong
                    connection.execute("ROLLBACK")
            return [error] * len(works)
        return outcomes

    def _check_epoch(self, transaction: Transaction) -> None:
        if self._epoch is not None and transaction.value("holder.current_epoch") != self._epoch:
            raise HomeTaken(
                f"another process writes {self.name} now, so this one has stopped writing",
                hint="end this process; `pal status` shows the other one",
            )

    def _attempt(self, transaction: Transaction, work: Work[Any]) -> Any:
        """The value of the work, or the error it raised after its rollback. A disk error fails the whole batch."""
        connection = transaction.connection
        connection.execute("SAVEPOINT work")
        try:
            outcome = work(transaction)
        except (apsw.FullError, apsw.IOError, apsw.CorruptError, apsw.ReadOnlyError):
            raise
        except Exception as error:  # noqa: BLE001  # handed to the caller, who waits for it
            connection.execute("ROLLBACK TO work")
            outcome = translate_error(error, self.path)
        connection.execute("RELEASE work")
        return outcome


class MemoryDatabase(Database):
    """An in-memory database that runs work inline on the event loop: for tests and the simulator.

    Each piece of work has its own commit and yields to other tasks once before it starts. If a test sets `failure`,
    every later write raises it.
    """

    failure: StorageError | None = None

    def __init__(self, file: str = "home") -> None:
        self.path = Path(":memory:")
        self.name = ":memory:"
        self.reserve = None
        self.readonly = False
        self.on_commit = _nobody
        self._writer = self._reader = _in_memory(file)
        self._reading = Transaction(self._reader)

    async def write(self, work: Work[T]) -> T:
        await asyncio.sleep(0)
        return self._done(work)

    def enqueue(self, work: Work[T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            _settle([future], [self._done(work)])
        except Exception as error:  # noqa: BLE001  # handed to the caller
            _settle([future], [error])
        return future

    async def flush(self) -> None:
        await asyncio.sleep(0)

    async def read(self, work: Work[T]) -> T:
        await asyncio.sleep(0)
        try:
            return work(self._reading)
        except apsw.Error as error:
            raise translate_error(error, self.path) from None

    def look(self, work: Work[T]) -> T:
        """As `read`, for a synchronous test."""
        return work(self._reading)

    async def scrub(self, *, rewrite: bool = False) -> None:
        await asyncio.sleep(0)

    async def close(self) -> None:
        await asyncio.sleep(0)
        self._reader.close()

    def _done(self, work: Work[T]) -> T:
        if self.failure is not None:
            raise self.failure
        connection = self._reader
        began = time.perf_counter()
        connection.execute("BEGIN")
        try:
            value = work(self._reading)
        except BaseException as error:
            connection.execute("ROLLBACK")
            if isinstance(error, apsw.Error):
                raise translate_error(error, self.path) from None
            raise
        connection.execute("COMMIT")
        self.on_commit(1, time.perf_counter() - began)
        return value


@cache
def _empty(file: str) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    migrate(connection, Path(":memory:"), file)
    return connection


def _in_memory(file: str) -> apsw.Connection:
    """Copies a migrated database: a hundred times faster than running the migrations."""
    connection = apsw.Connection(":memory:")
    with connection.backup("main", _empty(file), "main") as backup:
        backup.step()
    connection.pragma("foreign_keys", 1)
    return connection


def _nobody(_: int, __: float) -> None: ...


def _settle(futures: list[asyncio.Future[Any]], outcomes: list[Any]) -> None:
    for future, outcome in zip(futures, outcomes, strict=True):
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
            future.exception()  # the caller was cancelled, so nothing reads the exception
        else:
            future.set_result(outcome)
