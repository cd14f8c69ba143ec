"""Migrations: each step once, a backup before the first one on a file with a past, a newer file refused."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from palinurus.domain.errors import StorageDamaged, StorageReadOnly
from palinurus.domain.keys import SessionKey
from palinurus.storage import migrations, queries
from palinurus.storage.database import Database
from palinurus.storage.memory_vectors import learn_to_compare
from palinurus.storage.queries import load_queries, migration_files
from palinurus.storage.sqlite import SqliteSessions
from palinurus.testing.clock import FakeClock, SeededIds

NEWEST = migration_files("home")[-1][0]
NEXT = (NEWEST + 1, "moods", "CREATE TABLE moods (session_id TEXT PRIMARY KEY, mood TEXT NOT NULL) STRICT;")
BAD = (NEWEST + 1, "bad", "CREATE TABLE moods (x TEXT) STRICT; INSERT INTO nowhere VALUES (1);")


@pytest.fixture
async def old_home(tmp_path: Path) -> Path:
    """A home of the release before, with a session in it."""
    path = tmp_path / "home.sqlite"
    database = Database(path, "home")
    await SqliteSessions(database, FakeClock(), SeededIds()).open(SessionKey.main())
    await database.close()
    return path


def next_release(monkeypatch: pytest.MonkeyPatch, step: tuple[int, str, str]) -> None:
    monkeypatch.setattr(migrations, "migration_files", lambda folder: [*migration_files(folder), step])


def version(path: Path) -> object:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.pragma("user_version")
    finally:
        connection.close()


def tables(path: Path) -> set[str]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    finally:
        connection.close()


async def test_a_new_file_gets_the_newest_form_and_needs_no_backup(old_home: Path) -> None:
    assert version(old_home) == NEWEST
    assert not list(old_home.parent.glob("*.before-*"))


async def test_a_step_on_a_file_with_a_past_is_preceded_by_a_backup(
    old_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_release(monkeypatch, NEXT)
    database = Database(old_home, "home")
    store = SqliteSessions(database, FakeClock(), SeededIds())
    assert await store.find(SessionKey.main()) is not None
    await database.close()
    backup = old_home.with_name(f"home.sqlite.before-{NEWEST + 1:04d}")
    assert (version(old_home), version(backup)) == (NEWEST + 1, NEWEST)
    assert "moods" in tables(old_home)
    assert "moods" not in tables(backup)
    kept = Database(backup, "home", readonly=True)
    assert await SqliteSessions(kept, FakeClock(), SeededIds()).find(SessionKey.main()) is not None
    await kept.close()
    assert backup.stat().st_mode & 0o777 == 0o600


async def test_a_step_runs_once(old_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    next_release(monkeypatch, NEXT)
    for _ in range(2):
        await Database(old_home, "home").close()
    assert version(old_home) == NEWEST + 1


async def test_a_step_that_fails_leaves_the_file_as_it_was(old_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    next_release(monkeypatch, BAD)
    with pytest.raises(Exception, match="nowhere"):
        Database(old_home, "home")
    assert version(old_home) == NEWEST
    assert "moods" not in tables(old_home)
    monkeypatch.undo()
    await Database(old_home, "home").close()


async def test_a_file_of_a_newer_release_is_refused_and_not_touched(
    old_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_release(monkeypatch, NEXT)
    await Database(old_home, "home").close()
    monkeypatch.undo()
    with pytest.raises(
        StorageDamaged, match=f"has form {NEWEST + 1}, this release knows forms up to {NEWEST}"
    ) as newer:
        Database(old_home, "home")
    assert "newer release" in newer.value.hint
    assert version(old_home) == NEWEST + 1


async def test_one_who_cannot_write_is_told_that_a_file_is_of_an_earlier_release(
    old_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Database(old_home, "home", readonly=True)
    reader.check_form("home")
    next_release(monkeypatch, NEXT)
    with pytest.raises(StorageReadOnly, match=f"has form {NEWEST} of an earlier release.*to form {NEWEST + 1}"):
        reader.check_form("home")
    await reader.close()


async def test_entries_that_were_said_before_their_ids_had_a_table_are_all_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "home.sqlite"
    steps = migration_files("home")
    monkeypatch.setattr(migrations, "migration_files", lambda _: steps[:8])
    await Database(path, "home").close()
    monkeypatch.undo()
    old = apsw.Connection(str(path))
    old.execute(
        "INSERT INTO sessions (id, key, agent, updated_at, row) VALUES ('s', 'agent:main:main', 'main', 1, '{}')"
    )
    add = "INSERT INTO entries (session_id, id, parent_id, type, payload) VALUES ('s', ?, ?, 'message', ?)"
    said = [("b", None, '{"n":1}'), ("a", "b", '{"n":2}'), ("c", "a", '{"n":3}')]
    for row in said:
        old.execute(add, row)
    old.execute("UPDATE sqlite_sequence SET seq = 40 WHERE name = 'entries'")  # something was taken back
    old.execute(
        "INSERT INTO extractions (id, session_id, position, private, notes, row) VALUES ('x', 's', 2, 1, 1, '{}')"
    )
    old.close()
    database = Database(path, "home")
    connection = database._writer
    assert connection is not None
    assert connection.execute("SELECT id, parent_id, payload FROM entries ORDER BY position").fetchall() == said
    assert connection.execute("SELECT id, position FROM entry_ids").fetchall() == [("a", 2), ("b", 1), ("c", 3)]
    assert connection.pragma("foreign_keys") == 1
    connection.execute(add, ("d", "c", "{}"))
    assert connection.execute("SELECT position FROM entry_ids WHERE id = 'd'").get == 41
    for sql in (
        "UPDATE entries SET payload = ''",
        "UPDATE entries SET id = 'z'",
        "DELETE FROM entries",
        "DELETE FROM entry_ids",
        "UPDATE entry_ids SET position = 1",
        "INSERT INTO entries (session_id, id, type, payload) VALUES ('s', 'a', 'message', '{}')",
        "INSERT INTO entries (session_id, id, type, payload) VALUES ('s', 'r', 'reset', '{}')",
        "INSERT INTO entries (session_id, id, type, payload) VALUES ('nobody', 'e', 'message', '{}')",
    ):
        with pytest.raises(apsw.ConstraintError):
            connection.execute(sql)
    await database.close()


@pytest.mark.parametrize("folder", ["home", "memory", "transcripts"])
def test_migrations_are_numbered_without_a_gap(folder: str) -> None:
    assert [number for number, _, _ in migration_files(folder)] == list(range(1, len(migration_files(folder)) + 1))


@pytest.mark.parametrize("file", sorted(path.name for path in queries._HERE.glob("*.sql")))
async def test_every_query_has_a_name_of_its_own_and_is_good_sql(file: str, tmp_path: Path) -> None:
    names = queries._NAME.findall((queries._HERE / file).read_text())
    assert len(names) == len(set(names))
    folder = file.removesuffix(".sql")
    database = Database(tmp_path / "x.sqlite", folder if migration_files(folder) else "home")
    assert database._writer is not None
    learn_to_compare(database._writer)
    for sql in map(_without_comments, load_queries(file).values()):
        values = ["1"] * sql.count("?") if "?" in sql else _AnyValue()
        list(database._writer.execute(f"EXPLAIN {sql}", values))
        if sql.startswith("CREATE TEMP TABLE"):  # the next one reads it
            database._writer.execute(sql, values)
    await database.close()


def _without_comments(sql: str) -> str:
    return "\n".join(line for line in sql.splitlines() if not line.startswith("--"))


class _AnyValue(dict[str, object]):
    def __missing__(self, key: str) -> object:
        return "1"
