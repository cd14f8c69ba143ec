"""The truth in home.sqlite: transcripts cannot be rewritten, and a row that cannot be read is one clear error."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palinurus.domain.errors import StorageDamaged
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import UserMessage
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import MessageEntry
from palinurus.storage.database import Database
from palinurus.storage.transaction import ConstraintBroken
from palinurus.testing.fakes import FakeClock, SeededIds

T = "2026-11-15T09:00:00.000Z"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = Database(tmp_path / "home.sqlite", "home")
    store = SessionStore(opened, FakeClock(), SeededIds())
    session = await store.open(SessionKey.main())
    await store.append(session.id, [MessageEntry("a", T, session.id, message=UserMessage("hi"))])
    yield opened
    await opened.close()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE entries SET payload = '{}' WHERE id = 'a'",
        "UPDATE entries SET parent_id = NULL",
        "DELETE FROM entries WHERE id = 'a'",
        "DELETE FROM entries",
    ],
)
async def test_what_was_said_cannot_be_changed_or_removed(database: Database, sql: str) -> None:
    with pytest.raises(ConstraintBroken, match="append-only"):
        await database.write(lambda connection: connection.execute(sql).fetchall())
    left = await database.read(lambda connection: connection.execute("SELECT count(*) FROM entries").get)
    assert left == 2


async def test_a_session_with_entries_cannot_be_removed(database: Database) -> None:
    with pytest.raises(ConstraintBroken):
        await database.write(lambda connection: connection.execute("DELETE FROM sessions").fetchall())


async def test_a_key_has_one_current_session(database: Database) -> None:
    again = "INSERT INTO sessions (id, key, agent, updated_at, row) VALUES ('x', 'agent:main:main', 'main', 1, '{}')"
    with pytest.raises(ConstraintBroken):
        await database.write(lambda connection: connection.execute(again).fetchall())


async def test_a_session_s_row_that_cannot_be_read_is_a_clear_error(database: Database) -> None:
    await database.write(lambda connection: connection.execute("UPDATE sessions SET row = '[]'").fetchall())
    with pytest.raises(StorageDamaged, match="a session's row cannot be read"):
        await SessionStore(database, FakeClock(), SeededIds()).find(SessionKey.main())
