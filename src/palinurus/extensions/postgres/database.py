"""A home's database on PostgreSQL: the interface, the order of writes and the group commit are SQLite's.

Writes have one connection and one thread, so they are committed in the order in which they were added. A transaction
begins with the tenant, the epoch of whoever may write for it, and its own number: if the server goes away while it
commits, that number says afterwards what became of it. Reads have a small pool.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import psycopg
from psycopg import conninfo, sql
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool

from palinurus.domain.errors import CommitUnknown, HomeTaken, NotOffered, PalinurusError, StorageError
from palinurus.extensions.postgres import form
from palinurus.extensions.postgres.transaction import (
    Connection,
    PostgresTransaction,
    is_lost,
    may_pass,
    prepare_connection,
    translate_error,
)
from palinurus.storage.database import Database, StorageStatus
from palinurus.storage.transaction import Transaction, Work

T = TypeVar("T")
READERS = 2
PATIENCE_SECONDS = 30.0  # how long work waits for a server that went away
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
CONNECT_SECONDS = 5
LIMITS: dict[str, Any] = {  # of a connection: one that is dead is noticed in seconds
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "application_name": "palinurus",
}
SETTINGS = (  # what is acknowledged is on the disk, whatever the server's default: promise 1
    "SET jit = off; SET idle_in_transaction_session_timeout = '60s'; SET lock_timeout = '20s';"
    " SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)


class PostgresDatabase(Database):
    def __init__(
        self,
        url: str,
        tenant: str,
        file: str = "home",
        *,
        readonly: bool = False,
        exclusive: bool = False,
        filling: bool = False,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """Blocks. Raises StorageError, also when the role could see rows of other tenants.

        `filling`: rows of another engine are brought in; nobody else opens what is not complete.
        """
        self.name = name_of(url)
        self.tenant = tenant
        self.readonly = readonly
        self.reserve = None
        self._patience = patience
        self._epoch: int | None = None
        self._checkpoints = False
        self._tenant_set = sql.SQL("SET LOCAL pal.tenant = {}").format(sql.Literal(tenant)).as_string(None)
        self._lock = sql.SQL("hashtext('palinurus'), hashtext({})").format(sql.Literal(tenant)).as_string(None)
        self._beginning = (
            sql.SQL("BEGIN; SELECT * FROM begin_work({})").format(sql.Literal(tenant)).as_string(None).encode()
        )
        try:
            self._conninfo = conninfo.make_conninfo(url, **{**LIMITS, **conninfo.conninfo_to_dict(url)})
            self._main: Connection | None = self._connect()
        except psycopg.Error as error:
            raise translate_error(error, self.name) from None
        try:
            self._prepare(self._main, file, exclusive, filling)
        except BaseException as error:
            self._main.close()
            if isinstance(error, psycopg.Error):
                raise translate_error(error, self.name) from None
            raise
        self._pool = ConnectionPool(
            self._conninfo,
            kwargs={"autocommit": True},
            configure=_configure,
            min_size=1,
            max_size=READERS + 1,
            timeout=CONNECT_SECONDS,
            reconnect_timeout=CONNECT_SECONDS,  # then whoever reads next tries it: its pauses would become minutes
            open=True,
        )
        self._start_threads(READERS)

    @property
    def path(self) -> Path:  # type: ignore[override]  # there is no file whose path could change
        raise NotOffered(
            f"this home is in a database, {self.name}, not in a file",
            hint="`pg_dump` copies it; `pal migrate postgres-to-sqlite DIR` makes a home of files of it",
        )

    async def read(self, work: Work[T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._read_thread, self._read, work)

    @contextmanager
    def apart(self) -> Iterator[Transaction]:
        connection = self._again(self._begin_apart)
        try:
            yield PostgresTransaction(connection)
        except psycopg.Error as error:
            raise translate_error(error, self.name) from None
        finally:
            _roll_back(connection)
            self._pool.putconn(connection)

    async def examine(self) -> tuple[tuple[str, ...], int]:
        """Why rows of other tenants might be seen, and the form of the tables."""

        def look(tx: Transaction) -> tuple[tuple[str, ...], int]:
            found = cast("PostgresTransaction", tx)
            return tuple(form.faults_of(found)), form.form_of(found, "home")

        return await self.read(look)

    async def describe(self) -> StorageStatus:
        def look(tx: Transaction) -> StorageStatus:
            found = cast("PostgresTransaction", tx)
            role = form.role_of(found)
            sessions, entries = tx.one("holder.counts")
            return StorageStatus(
                "postgresql",
                self.name,
                form.form_of(found, "home"),
                form.newest_form("home"),
                tx.value("form.size"),
                self.tenant,
                sessions,
                entries,
                role.name,
                role.superuser,
                role.bypasses,
                {each.table: each.forced and each.sound for each in form.policies_of(found)},
            )

        return await self.read(look)

    def has_unfinished_runs(self) -> bool:
        return bool(self._read(lambda tx: tx.value("holder.unfinished_runs")))

    def has_open_jobs(self) -> bool:
        return bool(self._read(lambda tx: tx.value("holder.open_jobs")))

    async def scrub(self, *, rewrite: bool = False) -> None:
        """Vacuums, which overwrites removed rows of all tenants; what the server logged and copied has them still."""
        await self.flush()
        if rewrite:
            await asyncio.get_running_loop().run_in_executor(self._write_thread, self._vacuum)

    async def close(self) -> None:
        await self.flush()
        await asyncio.to_thread(self._read_thread.shutdown)  # after the reads in progress and those that wait
        await asyncio.get_running_loop().run_in_executor(self._write_thread, self._close_connections)
        self._write_thread.shutdown()

    # -- on the threads ----------------------------------------------------------------------------

    def _prepare(self, connection: Connection, file: str, exclusive: bool, filling: bool) -> None:
        form.check_server(connection, self.name)
        if self.readonly:
            form.check_form(connection, self.name, file)
        else:
            form.migrate(connection, file)
        form.check_apart(connection, self.name)
        if exclusive:
            self._epoch = self._take_epoch(connection, filling)

    def _connect(self) -> Connection:
        connection: Connection = psycopg.connect(self._conninfo, autocommit=True)
        _configure(connection)
        return connection

    def _writing(self) -> Connection:
        if self._main is None or is_lost(self._main):
            self._main = self._connect()
        return self._main

    def _close_connections(self) -> None:
        self._pool.close()
        if self._main is not None:
            self._main.close()

    def _vacuum(self) -> None:
        self._again(lambda: self._writing().execute("VACUUM"))

    def _again(self, attempt: Callable[[], T]) -> T:
        """Makes the attempt until the server answers or patience is at its end. Raises StorageError."""
        until, pause = time.monotonic() + self._patience, FIRST_PAUSE
        while True:
            try:
                return attempt()
            except psycopg.Error as error:
                if not may_pass(error) or time.monotonic() > until:
                    raise translate_error(error, self.name) from None
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _read(self, work: Work[T]) -> T:
        return self._again(lambda: self._read_once(work))

    def _read_once(self, work: Work[T]) -> T:
        with self._pool.connection() as connection:
            connection.execute(f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {self._tenant_set}".encode())
            try:
                return work(PostgresTransaction(connection))
            finally:
                if not is_lost(connection):
                    connection.execute("COMMIT")

    def _begin_apart(self) -> Connection:
        """A connection of the pool in a reading transaction, which may pause for long between its reads."""
        connection = self._pool.getconn()
        try:
            connection.execute(
                f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {self._tenant_set};"
                " SET LOCAL idle_in_transaction_session_timeout = 0".encode()
            )
        except BaseException:
            self._pool.putconn(connection)
            raise
        return connection

    def _take_epoch(self, connection: Connection, filling: bool) -> int:
        """From now on an earlier writer of this tenant cannot commit: it is waited for, and then its epoch is old."""
        with connection.transaction():
            connection.execute(f"{self._tenant_set}; SELECT pg_advisory_xact_lock({self._lock})".encode())
            tx = PostgresTransaction(connection)
            if not filling:
                form.check_transfer(tx, self.tenant)
            return int(tx.value("holder.next_epoch"))

    def _commit(self, works: list[Work[Any]]) -> list[Any]:
        try:
            return self._again(lambda: self._commit_once(works))
        except PalinurusError as error:
            return [error] * len(works)

    def _commit_once(self, works: list[Work[Any]]) -> list[Any]:
        connection = self._writing()
        number = self._begin(connection)
        try:
            outcomes = self._attempt_all(PostgresTransaction(connection), works)
        except BaseException:
            _roll_back(connection)
            raise
        if connection.info.transaction_status == TransactionStatus.IDLE:  # the only work has failed
            return outcomes
        try:
            connection.execute("COMMIT")
        except psycopg.Error as error:
            if not is_lost(connection) or not self._was_committed(number):
                raise error from None
        return outcomes

    def _begin(self, connection: Connection) -> str:
        """One journey to the server: the tenant, the epoch behind its lock, and the number of the transaction."""
        cursor = connection.execute(self._beginning)
        cursor.nextset()
        row = cursor.fetchone()
        assert row is not None  # noqa: S101  # what a SELECT without a table gives
        if self._epoch is not None and row[0] != self._epoch:
            _roll_back(connection)
            raise HomeTaken(
                f"another process writes {self.name} for {self.tenant} now, so this one has stopped writing",
                hint="end this process; `pal status` shows the other one",
            )
        return str(row[1])

    def _attempt_all(self, tx: PostgresTransaction, works: list[Work[Any]]) -> list[Any]:
        """The value of each work, or the error it raised after its rollback. Raises what fails the whole batch."""
        connection, outcomes, before = tx.connection, [], ""
        alone = len(works) == 1
        for work in works:
            if not alone:
                connection.execute(f"{before}SAVEPOINT work".encode(), prepare=False)
                before = "RELEASE work; "
            try:
                outcome = work(tx)
                _check_usable(connection, self.name)
            except Exception as error:  # handed to the caller, who waits for it
                if isinstance(error, psycopg.Error) and (is_lost(connection) or may_pass(error)):
                    raise
                if is_lost(connection):  # the work made another error of it
                    raise psycopg.OperationalError("the connection was lost") from error
                outcome = translate_error(error, self.name)
                connection.execute("ROLLBACK" if alone else "ROLLBACK TO work")
            outcomes.append(outcome)
        return outcomes

    def _was_committed(self, number: str) -> bool:
        """What became of a transaction whose server went away. Raises CommitUnknown when nobody can say."""
        until, pause = time.monotonic() + self._patience, FIRST_PAUSE
        while time.monotonic() < until:
            try:
                asked = self._writing().execute("SELECT pg_xact_status(%s::xid8)", [number]).fetchone()
                status = asked[0] if asked else None
                if status in ("committed", "aborted"):
                    return bool(status == "committed")
                if status is None:  # long ago, or another server
                    break
            except psycopg.errors.InvalidParameterValue:
                return False  # "in the future": the crash has lost even its number, so nothing of it is stored
            except psycopg.Error:
                pass  # it is still away
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        raise CommitUnknown(
            f"{self.name} went away while it committed: all of it is stored, or nothing",
            hint="look before you repeat it; repeating with the same idempotency key is harmless",
        )


def name_of(url: str) -> str:
    """An address for people: without the password."""
    try:
        parts = conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        raise StorageError(
            "storage.url is no address of a PostgreSQL database", hint="such as postgresql://user@host/name"
        ) from None
    host = str(parts.get("host") or parts.get("hostaddr") or "")
    user = f"{parts['user']}@" if parts.get("user") else ""
    port = f":{parts['port']}" if parts.get("port") else ""
    place = f"{user}{'' if host.startswith('/') else host}{port}/{parts.get('dbname') or parts.get('user') or ''}"
    return f"postgresql://{place}{f'?host={host}' if host.startswith('/') else ''}"


def _configure(connection: Connection) -> None:
    prepare_connection(connection)
    connection.execute(SETTINGS)


def _check_usable(connection: Connection, name: str) -> None:
    """A work that passed over a failed statement has lost its earlier ones."""
    if connection.info.transaction_status == TransactionStatus.INERROR:
        raise StorageError(f"{name}: a statement failed and was passed over")


def _roll_back(connection: Connection) -> None:
    if not is_lost(connection):
        with suppress(psycopg.Error):  # it is lost then, and with it the transaction
            connection.execute("ROLLBACK")
