"""Migrations: each step once, a backup before the first one on a file with a past, a newer file refused."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

import palinurus.extensions.knowledge.store  # noqa: F401  # declares its tables
from palinurus.domain.errors import StorageDamaged, StorageReadOnly
from palinurus.domain.keys import SessionKey
from palinurus.memory import store as memory_store
from palinurus.memory.vectors import load_comparison
from palinurus.sessions import index
from palinurus.sessions.store import SessionStore
from palinurus.storage import migrations
from palinurus.storage.database import Database
from palinurus.storage.migrations import Series, declare_series, series_of, steps_in
from palinurus.storage.transaction import Transaction, declare_queries, load_queries
from palinurus.testing.fakes import FakeClock, SeededIds

STORES = (memory_store, index)  # which declare the series of their files
SOURCE = Path(migrations.__file__).parent.parent
HOME = series_of("home")[0]
NEWEST = steps_in(HOME)[-1][0]
_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)
NEXT = (NEWEST + 1, "moods", "CREATE TABLE moods (session_id TEXT PRIMARY KEY, mood TEXT NOT NULL) STRICT;")
BAD = (NEWEST + 1, "bad", "CREATE TABLE moods (x TEXT) STRICT; INSERT INTO nowhere VALUES (1);")


@pytest.fixture
async def old_home(tmp_path: Path) -> Path:
    """A home of the release before, with a session in it."""
    path = tmp_path / "home.sqlite"
    database = Database(path, "home")
    await SessionStore(database, FakeClock(), SeededIds()).open(SessionKey.main())
    await database.close()
    return path


def next_release(monkeypatch: pytest.MonkeyPatch, step: tuple[int, str, str]) -> None:
    monkeypatch.setattr(migrations, "steps_in", lambda series: [*steps_in(series), step])


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
    store = SessionStore(database, FakeClock(), SeededIds())
    assert await store.find(SessionKey.main()) is not None
    await database.close()
    backup = old_home.with_name(f"home.sqlite.before-{NEWEST + 1:04d}")
    assert (version(old_home), version(backup)) == (NEWEST + 1, NEWEST)
    assert "moods" in tables(old_home)
    assert "moods" not in tables(backup)
    kept = Database(backup, "home", readonly=True)
    assert await SessionStore(kept, FakeClock(), SeededIds()).find(SessionKey.main()) is not None
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
    monkeypatch.setattr(migrations, "series_of", lambda _: [HOME])
    monkeypatch.setattr(migrations, "steps_in", lambda series: steps_in(series)[:8])
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


def test_migrations_are_numbered_without_a_gap() -> None:
    for series in (each for file in ("home", "knowledge", "memory", "transcripts") for each in series_of(file)):
        steps = steps_in(series)
        assert [number for number, _, _ in steps] == list(range(1, len(steps) + 1))


QUERIES = sorted(path for path in SOURCE.glob("**/sql/sqlite/*.sql") if path.stem != "memory_export")
# That one makes a database of its own.


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
async def test_every_query_has_a_name_of_its_own_and_is_good_sql(path: Path, tmp_path: Path) -> None:
    names = _NAME.findall(path.read_text())
    assert len(names) == len(set(names))
    file = path.stem if path.stem in migrations._FILES else "home"
    declare_queries(path.stem, str(path.parent.parent.parent / "module.py"))
    database = Database(tmp_path / "x.sqlite", file)
    assert database._writer is not None
    load_comparison(Transaction(database._writer))
    for sql in map(_without_comments, load_queries(path.stem).values()):
        values = ["1"] * sql.count("?") if "?" in sql else _AnyValue()
        list(database._writer.execute(f"EXPLAIN {sql}", values))
        if sql.startswith("CREATE TEMP TABLE"):  # the next one reads it
            database._writer.execute(sql, values)
    await database.close()


MOODS = {
    "0001_moods.sql": "CREATE TABLE moods (session_id TEXT PRIMARY KEY, mood TEXT NOT NULL) STRICT;",
    "0002_why.sql": "ALTER TABLE moods ADD COLUMN why TEXT;",
}


async def test_a_package_has_a_series_of_its_own(
    old_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "steps"
    folder.mkdir()
    monkeypatch.setattr(migrations, "_FILES", {**migrations._FILES, "home": list(series_of("home"))})
    declare_series("home", Series("moods", folder))
    for name, sql in MOODS.items():  # each by a release of its own
        (folder / name).write_text(sql)
        for _ in range(2):
            await Database(old_home, "home").close()
    assert version(old_home) == NEWEST
    assert "moods" in tables(old_home)
    connection = apsw.Connection(str(old_home), flags=apsw.SQLITE_OPEN_READONLY)
    taken = connection.execute("SELECT number, name FROM steps_taken WHERE series = 'moods'").fetchall()
    connection.close()
    assert taken == [(1, "moods"), (2, "why")]
    before = old_home.with_name("home.sqlite.before-moods-0002")
    assert "moods" in tables(before)
    (folder / "0002_why.sql").unlink()
    with pytest.raises(StorageDamaged, match="has moods form 2, this release knows forms up to 1"):
        Database(old_home, "home")


def _without_comments(sql: str) -> str:
    return "\n".join(line for line in sql.splitlines() if not line.startswith("--"))


class _AnyValue(dict[str, object]):
    def __missing__(self, key: str) -> object:
        return "1"
