"""PostgreSQL as the home's database: what SQLite promises, and what only a server can get wrong."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC
from typing import Any

import psycopg
import pytest
from psycopg_pool.base import AttemptWithBackoff

from palinurus.domain.errors import CommitUnknown, HomeTaken, NotOffered, StorageError, StorageReadOnly
from palinurus.domain.messages import Usage
from palinurus.extensions.postgres import database as engine
from palinurus.extensions.postgres import transaction
from palinurus.extensions.postgres.database import PostgresDatabase, name_of
from palinurus.extensions.postgres.form import check_apart
from palinurus.extensions.schedule import store as schedule
from palinurus.ledger.usage import UsageLedger, UsageRow
from palinurus.operations import access
from palinurus.storage.database import MemoryDatabase
from palinurus.storage.transaction import ConstraintBroken, Transaction, declare_queries
from support.postgres import Server, new_tenant

declare_queries("access", access.__file__)
declare_queries("cron_jobs", schedule.__file__)


@pytest.fixture
async def database(postgres: Server) -> AsyncIterator[PostgresDatabase]:
    made = PostgresDatabase(postgres.schema, new_tenant(), exclusive=True)
    yield made
    await made.close()


def add(name: str) -> Any:
    return lambda tx: tx.run("access.put_device", id=name, row=f'{{"id": "{name}"}}')


def broken(tx: Transaction) -> None:
    tx.run("access.put_device", id="broken", row="{}")
    tx.run("access.put_device", id="other", row="no JSON")


async def devices(database: PostgresDatabase) -> list[str]:
    return [row for (row,) in await database.read(lambda tx: tx.all("access.devices"))]


def _cut_all(server: Server) -> None:
    """Ends all other connections to this worker's schema."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
            [server.name],
        )


def usage(entry_id: str) -> UsageRow:
    return UsageRow(entry_id, 1, "run", "agent:main:main", "main", "openai", "m", Usage(1, 1), 0.5)


async def test_a_work_that_fails_takes_back_its_own_writes_and_no_others(database: PostgresDatabase) -> None:
    sizes: list[int] = []
    database.on_commit = lambda writes, _: sizes.append(writes)
    waiting = [database.enqueue(add("a")), database.enqueue(broken), database.enqueue(add("b"))]
    await database.flush()
    with pytest.raises(ConstraintBroken):
        await waiting[1]
    with pytest.raises(ConstraintBroken):
        await database.write(broken)
    assert await devices(database) == ['{"id": "a"}', '{"id": "b"}']
    assert sizes[0] == 4  # the three and the flush shared a commit


async def test_a_work_that_passes_over_a_failure_is_not_reported_as_stored(database: PostgresDatabase) -> None:
    def careless(tx: Transaction) -> str:
        tx.run("access.put_device", id="lost", row="{}")
        with suppress(ConstraintBroken):
            tx.run("access.put_device", id="other", row="no JSON")
        return "stored"

    with pytest.raises(StorageError, match="passed over"):
        await database.write(careless)
    assert await devices(database) == []


async def test_whoever_takes_the_tenant_fences_the_earlier_writer(postgres: Server, database: PostgresDatabase) -> None:
    await database.write(add("a"))
    other = PostgresDatabase(postgres.schema, new_tenant(), exclusive=True)
    await database.write(add("b"))  # another tenant takes nothing from this one
    await other.close()
    later = PostgresDatabase(postgres.schema, database.tenant, exclusive=True)
    with pytest.raises(HomeTaken):
        await database.write(add("c"))
    await later.write(add("d"))
    assert await devices(later) == ['{"id": "a"}', '{"id": "b"}', '{"id": "d"}']
    await later.close()


async def test_a_writer_that_waits_for_whoever_takes_the_tenant_is_fenced(
    postgres: Server, database: PostgresDatabase
) -> None:
    await database.write(add("a"))
    with psycopg.connect(postgres.schema) as taker, psycopg.connect(postgres.url, autocommit=True) as other:
        taker.execute(f"{database._tenant_set}; SELECT pg_advisory_xact_lock({database._lock})".encode())
        writing = asyncio.create_task(database.write(add("b")))
        await asyncio.sleep(0)
        for _ in range(1000):  # at most 10 seconds, until it waits
            waits = "SELECT 1, pg_sleep(0.01) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            if (await asyncio.to_thread(other.execute, waits)).fetchone():
                break
        taker.execute("UPDATE holder SET epoch = epoch + 1")
        taker.commit()
    with pytest.raises(HomeTaken):
        await writing
    assert await devices(database) == ['{"id": "a"}']


async def test_a_connection_that_is_cut_is_made_anew_and_nothing_is_lost_or_doubled(
    postgres: Server, database: PostgresDatabase
) -> None:
    ledger = UsageLedger(database)
    await ledger.append(usage("first"))

    await asyncio.gather(*(database.write(add(f"d{at}")) for at in range(5)))
    _cut_all(postgres)
    await asyncio.gather(database.write(add("x")), database.write(add("y")), ledger.append(usage("second")))
    _cut_all(postgres)
    assert len(await devices(database)) == 7
    assert [total.calls for total in await ledger.totals("agent", zone=UTC)] == [2]


async def test_a_connection_that_the_server_ended_for_idling_is_made_anew(
    postgres: Server, database: PostgresDatabase
) -> None:
    assert database._main is not None
    database._main.execute("SET idle_session_timeout = '20ms'")
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        for _ in range(1000):  # at most 10 seconds, until the server has ended it
            if not connection.execute(
                "SELECT 1, pg_sleep(0.01) FROM pg_stat_activity WHERE pid = %s", [database._main.info.backend_pid]
            ).fetchone():
                break
    await database.write(add("a"))
    assert await devices(database) == ['{"id": "a"}']


async def test_reads_go_on_when_the_server_is_back(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AttemptWithBackoff, "INITIAL_DELAY", 600.0)  # as after an outage of minutes
    monkeypatch.setattr(engine, "CONNECT_SECONDS", 0.2)
    database, tries = PostgresDatabase(postgres.schema, new_tenant(), exclusive=True), threading.Semaphore(0)
    assert await devices(database) == []

    def away(*_: Any) -> Any:
        tries.release()
        raise psycopg.OperationalError("away")

    with monkeypatch.context() as outage:
        outage.setattr(database._pool, "_connect", away)
        _cut_all(postgres)
        reading = asyncio.create_task(devices(database))
        for _ in range(engine.READERS + 1):  # as many as there may be
            assert await asyncio.to_thread(tries.acquire, timeout=20)
    assert await asyncio.wait_for(reading, 20) == []
    await database.close()


async def test_a_long_read_may_pause_and_outlasts_connections_that_were_cut(
    postgres: Server, database: PostgresDatabase
) -> None:
    await database.write(add("a"))
    assert await devices(database)
    _cut_all(postgres)
    with database.apart() as tx:
        assert tx.all("access.devices") == [('{"id": "a"}',)]
        limit = tx.execute("SELECT current_setting('idle_in_transaction_session_timeout')").fetchone()
        assert limit == ("0",)
    assert await database.read(
        lambda tx: tx.execute("SELECT current_setting('idle_in_transaction_session_timeout')").fetchone()
    ) == ("1min",)


async def test_rows_come_some_at_a_time(database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "FETCHED", 2)
    for name in "abcde":
        await database.write(add(name))
    with database.apart() as tx:
        first, second = tx.each("access.devices"), tx.each("access.devices")
        assert [next(first), next(second), next(second)] == [(f'{{"id": "{each}"}}',) for each in "aab"]
        assert tx.execute("SELECT count(*) FROM pg_cursors").fetchone() == (2,)
        assert len(list(first)) == 4
    assert len(await database.read(lambda tx: list(tx.each("access.devices")))) == 5
    assert len(await database.write(lambda tx: list(tx.each("access.devices")))) == 5


async def test_it_closes_after_the_reads_that_wait(postgres: Server) -> None:
    database = PostgresDatabase(postgres.schema, new_tenant(), patience=0.2)
    begun, go_on = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> int:
        begun.set()
        assert go_on.wait(20)
        return len(tx.all("access.devices"))

    reading = [asyncio.create_task(database.read(slow)) for _ in range(5)]
    assert await asyncio.to_thread(begun.wait, 20)
    closing = asyncio.create_task(database.close())
    for _ in range(3):  # the event loop goes on meanwhile
        await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait_for(closing, 20)
    assert await asyncio.gather(*reading) == [0] * 5
    with pytest.raises(StorageError, match="already closed"), database.apart():
        pass


async def test_a_work_that_hides_a_lost_connection_is_done_again(postgres: Server, database: PostgresDatabase) -> None:
    calls = []

    def work(tx: Transaction) -> int:
        calls.append(1)
        if len(calls) == 1:
            _cut_all(postgres)
        try:
            return int(tx.run("access.put_device", id="a", row="{}"))
        except psycopg.Error:
            raise ValueError("no answer") from None

    assert await asyncio.wait_for(database.write(work), 20) == 1
    assert (len(calls), await devices(database)) == (2, ["{}"])


class _CutAtCommit:
    """A connection whose server goes away at COMMIT: before it arrives, or before its answer does."""

    def __init__(self, connection: Any, cut: Any, *, arrives: bool) -> None:
        self._connection, self._cut, self._arrives = connection, cut, arrives

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, query: Any, *more: Any, **options: Any) -> Any:
        if query == "COMMIT":
            if self._arrives:
                self._connection.execute(query)
            self._cut()
            self._connection.execute("SELECT 1")  # meets the cut
        return self._connection.execute(query, *more, **options)


@pytest.mark.parametrize("arrives", [True, False])
async def test_a_commit_without_an_answer_is_looked_up(
    postgres: Server, database: PostgresDatabase, arrives: bool
) -> None:
    calls = []

    def work(tx: Transaction) -> int:
        calls.append(1)
        return int(tx.run("access.put_device", id="a", row="{}"))

    database._main = _CutAtCommit(database._main, lambda: _cut_all(postgres), arrives=arrives)  # type: ignore[assignment]
    assert await database.write(work) == 1
    assert len(calls) == (1 if arrives else 2)  # what was stored is not done again
    assert await devices(database) == ["{}"]


async def test_a_commit_that_nobody_can_look_up_is_not_reported_as_failed(
    postgres: Server, database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> Any:
        raise psycopg.OperationalError("away")

    def cut() -> None:
        _cut_all(postgres)
        monkeypatch.setattr(database, "_connect", away)

    database._patience = 0.2
    database._main = _CutAtCommit(database._main, cut, arrives=True)  # type: ignore[assignment]
    with pytest.raises(CommitUnknown, match="all of it is stored, or nothing"):
        await database.write(add("a"))
    with pytest.raises(StorageError, match="cannot be reached"):
        await database.write(add("b"))
    monkeypatch.undo()
    await database.write(add("c"))
    assert len(await devices(database)) == 2


async def test_names_are_the_same_for_both_engines(database: PostgresDatabase) -> None:
    def work(tx: Transaction) -> list[int]:
        values = {"agent": "main", "enabled": 1}
        tx.run("cron_jobs.put", id="a", row='{"name": "Äpfel"}', **values)
        return [len(tx.all("cron_jobs.named", name=name)) for name in ("Äpfel", "ÄPFEL", "äpfel")]

    assert await database.write(work) == await MemoryDatabase().write(work) == [1, 1, 0]


async def test_patterns_match_as_they_do_in_sqlite(database: PostgresDatabase) -> None:
    tries = [(word, pattern) for word in ("a_b%", "axb%", "a\\b", "aéb") for pattern in ("a?b*", "a_b*", "*%", "a\\b")]

    def matches(sql: str) -> Any:
        return lambda tx: [bool(tx.execute(sql, each).fetchone()[0]) for each in tries]

    assert await database.read(matches("SELECT glob_matches(?, ?)")) == await MemoryDatabase().read(
        matches("SELECT ? GLOB ?")
    )


async def test_it_is_no_file(database: PostgresDatabase) -> None:
    with pytest.raises(NotOffered, match="not in a file"):
        _ = database.path


async def test_a_reader_changes_nothing(postgres: Server) -> None:
    tenant = new_tenant()
    await PostgresDatabase(postgres.schema, tenant).close()
    reader = PostgresDatabase(postgres.schema, tenant, readonly=True)
    with pytest.raises(StorageReadOnly):
        await reader.write(add("a"))
    with pytest.raises(StorageError, match="read-only"):
        await reader.read(add("a"))
    await reader.close()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:s3cret@db.example:5433/home", "postgresql://ann@db.example:5433/home"),
        ("postgresql://ann:s3cret@/home?host=/run/pg", "postgresql://ann@/home?host=/run/pg"),
        ("host=db password=s3cret user=ann dbname=x", "postgresql://ann@db/x"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert name_of(url) == shown


def test_a_role_that_policies_do_not_bind_is_refused(postgres: Server) -> None:
    url = postgres.schema.replace(postgres.url, postgres.admin_url())
    with pytest.raises(StorageError, match="the role postgres is a superuser"):
        PostgresDatabase(url, new_tenant())


@pytest.mark.parametrize(
    ("change", "table"),
    [
        ("DROP POLICY one_tenant ON entries", "entries"),
        ("ALTER TABLE jobs NO FORCE ROW LEVEL SECURITY", "jobs"),
        ("ALTER TABLE audit DISABLE ROW LEVEL SECURITY", "audit"),
        ("CREATE POLICY more ON grants USING (true)", "grants"),
        ("ALTER POLICY one_tenant ON usage WITH CHECK (true)", "usage"),
        ("CREATE TABLE loose (id text)", "loose"),
    ],
)
def test_a_table_without_its_policy_is_refused(postgres: Server, change: str, table: str) -> None:
    with psycopg.connect(postgres.schema) as connection:  # what is changed is taken back at the end
        connection.execute(change)
        with pytest.raises(StorageError, match=f"the table {table} has no policy"):
            check_apart(connection, "here")
        connection.rollback()
