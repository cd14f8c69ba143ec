"""One SQLite file: commits that are shared, writes that fail alone, and a file that cannot be used is one sentence."""

from __future__ import annotations

import asyncio
import stat
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from palinurus.domain.errors import (
    NotFound,
    StorageDamaged,
    StorageError,
    StorageFull,
    StorageReadOnly,
)
from palinurus.storage.database import Database
from palinurus.storage.files import translated
from palinurus.storage.transaction import Transaction


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = Database(tmp_path / "home.sqlite", "home")
    await opened.write(lambda connection: connection.execute("CREATE TABLE t (n INTEGER PRIMARY KEY)").fetchall())
    yield opened
    await opened.close()


def insert(number: int) -> object:
    return lambda connection: connection.execute("INSERT INTO t VALUES (?)", (number,)).fetchall()


async def numbers(database: Database) -> list[int]:
    rows = await database.read(lambda connection: connection.execute("SELECT n FROM t ORDER BY n").fetchall())
    return [row[0] for row in rows]


def count_commits(database: Database) -> list[int]:
    commits: list[int] = []
    assert database._writer is not None
    database._writer.set_commit_hook(lambda: bool(commits.append(1)))
    return commits


async def test_a_hundred_writers_share_a_handful_of_commits(database: Database) -> None:
    commits = count_commits(database)
    await asyncio.gather(*(database.write(insert(number)) for number in range(100)))  # type: ignore[arg-type]
    assert await numbers(database) == list(range(100))
    assert len(commits) <= 5


async def test_a_write_has_been_committed_when_it_returns(database: Database) -> None:
    await database.write(insert(1))  # type: ignore[arg-type]
    other = apsw.Connection(str(database.path), flags=apsw.SQLITE_OPEN_READONLY)
    assert other.execute("SELECT count(*) FROM t").get == 1
    other.close()


async def test_commits_reach_the_disk_before_they_are_acknowledged(database: Database) -> None:
    assert database._writer is not None
    assert database._writer.pragma("journal_mode") == "wal"
    assert database._writer.pragma("synchronous") == 2  # full


async def test_work_runs_off_the_event_loop(database: Database) -> None:
    here = threading.get_ident()
    assert await database.write(lambda _: threading.get_ident()) != here
    assert await database.read(lambda _: threading.get_ident()) != here


async def test_a_write_that_fails_takes_only_itself_out_of_the_batch(database: Database) -> None:
    def half(connection: Transaction) -> None:
        connection.execute("INSERT INTO t VALUES (50)")
        raise NotFound("changed my mind")

    def doubled(connection: Transaction) -> None:
        connection.execute("INSERT INTO t VALUES (60)")
        connection.execute("INSERT INTO t VALUES (60)")

    commits = count_commits(database)
    outcomes = await asyncio.gather(
        database.write(insert(1)),  # type: ignore[arg-type]
        database.write(half),
        database.write(insert(2)),  # type: ignore[arg-type]
        database.write(doubled),
        database.write(insert(3)),  # type: ignore[arg-type]
        return_exceptions=True,
    )
    assert await numbers(database) == [1, 2, 3]
    assert isinstance(outcomes[1], NotFound)
    assert isinstance(outcomes[3], apsw.ConstraintError | StorageError)
    assert len(commits) <= 2


async def test_a_caller_that_goes_away_does_not_take_its_write_along(database: Database) -> None:
    gate = threading.Event()

    def slow(connection: Transaction) -> None:
        gate.wait(60)
        connection.execute("INSERT INTO t VALUES (7)")

    writing = asyncio.create_task(database.write(slow))
    await asyncio.sleep(0)
    writing.cancel()
    gate.set()
    await asyncio.wait([writing])
    await database.write(insert(8))  # type: ignore[arg-type]
    assert await numbers(database) == [7, 8]


async def test_a_full_disk_fails_everybody_in_the_batch_and_the_next_write_works(database: Database) -> None:
    gate = threading.Event()

    def full(connection: Transaction) -> None:
        raise apsw.FullError("no space")

    # While the first commit is under way the others gather for the next one.
    writes = [database.write(work) for work in (lambda _: gate.wait(60), insert(1), full)]  # type: ignore[arg-type]
    together = asyncio.gather(*writes, return_exceptions=True)
    await asyncio.sleep(0)
    gate.set()
    assert [type(outcome) for outcome in await together] == [bool, StorageFull, StorageFull]
    assert await numbers(database) == []
    await database.write(insert(2))  # type: ignore[arg-type]
    assert await numbers(database) == [2]


async def test_a_failing_read_is_told_in_our_words(database: Database) -> None:
    with pytest.raises(StorageError, match="no such table"):
        await database.read(lambda connection: connection.execute("SELECT * FROM ghosts").fetchall())


async def test_the_file_is_its_owner_s_alone(database: Database) -> None:
    assert stat.S_IMODE(database.path.stat().st_mode) == 0o600


async def test_a_read_only_database_reads_and_refuses_to_write(database: Database) -> None:
    await database.write(insert(1))  # type: ignore[arg-type]
    reader = Database(database.path, "home", readonly=True)
    assert await numbers(reader) == [1]
    with pytest.raises(StorageReadOnly, match="reading only"):
        await reader.write(insert(2))  # type: ignore[arg-type]
    await reader.close()


@pytest.mark.parametrize(
    "content", [b"this is no database, it is a letter to you" * 50, b"SQLite format 3\x00" + b"\xff" * 4000]
)
def test_a_damaged_file_is_a_clear_error_and_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "home.sqlite"
    path.write_bytes(content)
    with pytest.raises(StorageDamaged, match=r"home\.sqlite is damaged") as damaged:
        Database(path, "home")
    assert "restore a backup" in damaged.value.hint
    assert path.read_bytes() == content


def test_a_folder_that_does_not_exist_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StorageReadOnly, match="cannot be opened"):
        Database(tmp_path / "nowhere" / "home.sqlite", "home")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (apsw.FullError("x"), StorageFull),
        (apsw.ReadOnlyError("x"), StorageReadOnly),
        (PermissionError("x"), StorageReadOnly),
        (apsw.CantOpenError("x"), StorageReadOnly),
        (apsw.CorruptError("x"), StorageDamaged),
        (apsw.NotADBError("x"), StorageDamaged),
        (apsw.IOError("x"), StorageError),
        (apsw.BusyError("x"), StorageError),
    ],
)
def test_what_sqlite_says_is_told_in_our_words(error: Exception, kind: type[StorageError]) -> None:
    with pytest.raises(StorageError) as told, translated(Path("/home/file")):
        raise error
    assert type(told.value) is kind
    assert "/home/file" in told.value.message or "disk is full" in told.value.message


async def test_a_write_that_nobody_waits_for_goes_with_the_next_one_and_before_it(database: Database) -> None:
    commits = count_commits(database)
    order: list[int] = []
    waiting = [database.enqueue(lambda _, number=number: order.append(number)) for number in range(3)]  # type: ignore[misc]
    await database.write(lambda _: order.append(3))
    assert order == [0, 1, 2, 3]
    assert all(future.done() for future in waiting)
    assert len(commits) <= 1


async def test_a_write_that_nobody_waits_for_goes_alone_when_none_comes(database: Database) -> None:
    await asyncio.wait_for(database.enqueue(insert(4)), 60)  # type: ignore[arg-type]
    assert await numbers(database) == [4]


async def test_writes_that_were_handed_in_are_kept_when_the_database_is_closed(tmp_path: Path) -> None:
    closing = Database(tmp_path / "other.sqlite", "home")
    closing.enqueue(lambda connection: connection.execute("CREATE TABLE t (n INTEGER PRIMARY KEY)").fetchall())
    for number in range(600):
        closing.enqueue(insert(number))  # type: ignore[arg-type]
    await closing.close()
    reader = Database(tmp_path / "other.sqlite", "home", readonly=True)
    assert await numbers(reader) == list(range(600))
    await reader.close()
