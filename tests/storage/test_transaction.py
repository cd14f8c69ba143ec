"""Work on a database is a function of a transaction, on the disk and in memory alike."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palinurus.domain.errors import StorageError
from palinurus.storage.database import Database, MemoryDatabase
from palinurus.storage.transaction import ConstraintBroken, Transaction, declare_queries

MOODS = """
-- make --
CREATE TABLE moods (name TEXT PRIMARY KEY, mood TEXT NOT NULL) STRICT;

-- put --
-- One of each name.
INSERT INTO moods (name, mood) VALUES (:name, :mood);

-- all --
SELECT name, mood FROM moods ORDER BY name;

-- of --
SELECT mood FROM moods WHERE name = :name;

-- forget --
DELETE FROM moods;
"""


@pytest.fixture(params=["disk", "memory"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    (tmp_path / "sql" / "sqlite").mkdir(parents=True)
    (tmp_path / "sql" / "sqlite" / "moods.sql").write_text(MOODS)
    declare_queries("moods", str(tmp_path / "module.py"))
    database = Database(tmp_path / "home.sqlite", "home") if request.param == "disk" else MemoryDatabase()
    await database.write(lambda tx: tx.run("moods.make"))
    yield database
    await database.close()


async def test_queries_are_asked_for_by_name(database: Database) -> None:
    def work(tx: Transaction) -> tuple[object, ...]:
        tx.many("moods.put", [{"name": "ann", "mood": "calm"}, {"name": "bo", "mood": "merry"}])
        found = tx.one("moods.of", name="ann"), tx.value("moods.of", name="bo"), tx.value("moods.of", name="cy")
        return *found, tx.one("moods.of", name="cy"), list(tx.each("moods.all"))

    rows = [("ann", "calm"), ("bo", "merry")]
    assert await database.write(work) == (("calm",), "merry", None, None, rows)
    assert await database.read(lambda tx: tx.all("moods.all")) == rows
    assert await database.write(lambda tx: tx.run("moods.forget")) == 2


async def test_a_query_that_nobody_has_written_is_named(database: Database) -> None:
    with pytest.raises(KeyError, match="unheard"):
        await database.read(lambda tx: tx.all("moods.unheard"))


async def test_work_that_fails_leaves_nothing(database: Database) -> None:
    def half(tx: Transaction) -> None:
        tx.run("moods.put", name="ann", mood="calm")
        tx.run("moods.put", name="ann", mood="merry")

    with pytest.raises(ConstraintBroken):
        await database.write(half)
    assert await database.read(lambda tx: tx.all("moods.all")) == []


async def test_what_sqlite_says_is_told_in_our_words(database: Database) -> None:
    for call in (database.write, database.read):
        with pytest.raises(StorageError, match="no such table"):
            await call(lambda tx: tx.execute("SELECT * FROM nowhere").fetchall())


async def test_a_write_that_nobody_waits_for_is_done_in_its_turn(database: Database) -> None:
    future = database.enqueue(lambda tx: tx.run("moods.put", name="ann", mood="calm"))
    await database.write(lambda tx: tx.run("moods.put", name="bo", mood="merry"))
    assert future.result() == 1
    await database.flush()
    assert len(await database.read(lambda tx: tx.all("moods.all"))) == 2


async def test_what_was_handed_in_and_fails_is_told_to_whoever_looks(database: Database) -> None:
    await database.write(lambda tx: tx.run("moods.put", name="ann", mood="calm"))
    future = database.enqueue(lambda tx: tx.run("moods.put", name="ann", mood="calm"))
    await database.flush()
    assert isinstance(future.exception(), ConstraintBroken)


async def test_in_memory_there_is_no_thread() -> None:
    database = MemoryDatabase()
    here = threading.get_ident()
    assert await database.write(lambda _: threading.get_ident()) == here
    assert await database.read(lambda _: threading.get_ident()) == here
    await database.close()


async def test_databases_in_memory_know_nothing_of_each_other() -> None:
    first, second = MemoryDatabase(), MemoryDatabase()
    await first.write(lambda tx: tx.execute("CREATE TABLE moods (x TEXT)"))
    with pytest.raises(StorageError, match="no such table"):
        await second.read(lambda tx: tx.execute("SELECT * FROM moods"))
    for each in (first, second):
        await each.close()
