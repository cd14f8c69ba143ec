"""A home's rows go from SQLite to PostgreSQL and back, each as it was, also when the way is cut short."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from palinurus.domain.errors import StorageError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import UserMessage
from palinurus.extensions.postgres import transfer
from palinurus.extensions.postgres.database import PostgresDatabase
from palinurus.extensions.postgres.migrate_commands import _fill
from palinurus.ledger.audit import AuditEvent
from palinurus.ledger.audit_log import AuditLog
from palinurus.sessions.extraction import Extraction
from palinurus.sessions.session import SessionChange
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import CompactionEntry, MessageEntry
from palinurus.storage.database import Database
from palinurus.testing.fakes import FakeClock, SeededIds
from support.postgres import Server, new_tenant

T = "2026-11-15T09:00:00.000Z"


async def live(database: Database, name: str) -> None:
    """Two sessions, one of them compacted behind its notes, and an audit log."""
    ids = SeededIds(len(name) * ord(name[0]))
    store, log = SessionStore(database, FakeClock(), ids), AuditLog(database, FakeClock(), ids)
    for key in (SessionKey.main(), SessionKey.parse(f"agent:main:{name}")):
        session = await store.open(key)
        odd = (f"{name}\0", f"{name}\1", f"{name}\2")  # in their order
        said = [
            MessageEntry(each, T, None, message=UserMessage(f"word {at} \0 of {name}"))
            for at, each in enumerate((*odd, *(f"{name}-{at}" for at in range(3, 9))))
        ]
        await store.append(session.id, said)
        notes = Extraction(f"{session.id}-{name}", session.id, said[-1].id, "notes", "model", True, "", 1)
        cut = CompactionEntry(f"{name}-cut", T, None, summary="what was", first_kept_entry_id=said[-1].id)
        await store.append(session.id, [cut], SessionChange(extraction=notes))
        await log.record(AuditEvent("call", 1, "run", session.key, "exec", "c", "ok", {"n": [1, None], "odd": "\0"}))


async def said_in(database: Database) -> list[Any]:
    store = SessionStore(database, FakeClock(), SeededIds())
    return [(each, await store.rows(each.id), await store.extractions(each.id)) for each in await store.recent()]


async def test_rows_are_the_same_there_and_back_and_life_goes_on(postgres: Server, tmp_path: Path) -> None:
    here, back = Database(tmp_path / "home.sqlite", "home"), Database(tmp_path / "back.sqlite", "home")
    there = PostgresDatabase(postgres.schema, new_tenant(), exclusive=True, filling=True)
    await live(here, "ann")
    tables = transfer.tables_of(there)
    await transfer.begin_transfer(there, "here", tables)
    await transfer.copy_rows(here, there, tables, lambda *_: None)
    reports = transfer.compare_rows(here, there, tables, lambda *_: None)
    assert {each.table: each.rows for each in reports if each.rows} == {
        "sessions": 2, "entries": 22, "entry_ids": 22, "extractions": 2, "audit": 2, "audit_details": 2,
    }  # fmt: skip
    assert await said_in(there) == []  # nothing is shown before all is there
    await transfer.end_transfer(there, tables)
    assert await said_in(there) == await said_in(here)
    await live(there, "bob")  # positions and the audit chain go on
    assert (await AuditLog(there, FakeClock(), SeededIds()).verify()).ok
    await transfer.copy_rows(there, back, tables, lambda *_: None)
    transfer.compare_rows(there, back, tables, lambda *_: None)
    await back.write(lambda tx: tx.execute(transfer.SHOW).fetchall())
    assert await said_in(back) == await said_in(there)
    for each in (here, there, back):
        await each.close()


async def test_what_was_cut_short_goes_on_and_nobody_opens_it_meanwhile(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PAGE", 5)
    here, tenant = Database(tmp_path / "home.sqlite", "home"), new_tenant()
    await live(here, "ann")
    pages = 0

    def cut(*_: Any) -> None:
        nonlocal pages
        pages += 1
        if pages == 3:
            raise KeyboardInterrupt

    for tell in (cut, lambda *_: None):
        there = PostgresDatabase(postgres.schema, tenant, exclusive=True, filling=True)
        tables = transfer.tables_of(there)
        await transfer.begin_transfer(there, "here", tables)
        try:
            await transfer.copy_rows(here, there, tables, tell)
        except KeyboardInterrupt:
            await there.close()
            with pytest.raises(StorageError, match="has not ended"):
                PostgresDatabase(postgres.schema, tenant, exclusive=True)
    assert transfer.count_rows(there, tables) == transfer.count_rows(here, tables)
    transfer.compare_rows(here, there, tables, lambda *_: None)
    await transfer.end_transfer(there, tables)
    with pytest.raises(StorageError, match="has been filled from here"):
        await transfer.begin_transfer(there, "here", tables)
    await there.close()
    await here.close()


async def test_a_difference_is_found_and_a_tenant_in_use_is_not_filled(postgres: Server, tmp_path: Path) -> None:
    here = Database(tmp_path / "home.sqlite", "home")
    there = PostgresDatabase(postgres.schema, new_tenant(), exclusive=True)
    await live(here, "ann")
    await live(there, "bob")
    tables = transfer.tables_of(there)
    with pytest.raises(StorageError, match="has rows already"):
        await transfer.begin_transfer(there, "here", tables)
    with pytest.raises(StorageError, match="has rows already"):
        await _fill(tmp_path / "home.sqlite", postgres.schema, there.tenant, lambda *_: None, dry_run=False)
    await live(there, "eve")  # nobody took the tenant from whoever writes for it
    with pytest.raises(StorageError, match="sessions has 3 other rows"):
        transfer.compare_rows(here, there, tables, lambda *_: None)
    await there.close()
    await here.close()


async def test_the_commands_move_a_home_and_back(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, tenant, url = tmp_path / "home", new_tenant(), postgres.schema
    root.mkdir(mode=0o700)
    monkeypatch.setenv("PALINURUS_HOME", str(root))
    database = Database(root / "home.sqlite", "home")
    await live(database, "ann")
    before = await said_in(database)
    await database.close()

    def call(*words: str) -> Any:
        command = [sys.executable, "-m", "palinurus", *words, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)  # our own
        assert not done.returncode, done.stderr
        return json.loads(done.stdout)

    assert call("storage", "status")["engine"] == "sqlite"
    move = ("migrate", "sqlite-to-postgres", url, "--tenant", tenant)
    assert call(*move, "--dry-run")["dryRun"]
    moved = call(*move)
    (root / "palinurus.json").write_text(json.dumps({"storage": {"url": url, "tenant": tenant}}))
    status = call("storage", "status")
    assert (status["engine"], status["tenant"], status["sessions"]) == ("postgresql", tenant, 2)
    assert all(status["policies"].values())
    back = call("migrate", "postgres-to-sqlite", str(tmp_path / "back"))
    assert back["tables"] == moved["tables"]
    database = Database(tmp_path / "back" / "home.sqlite", "home")
    assert await said_in(database) == before
    await database.close()
