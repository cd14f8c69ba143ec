"""The audit log against somebody with a hex editor, and against a disk that fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from palinurus.domain.errors import StorageError, StorageFull, StorageReadOnly
from palinurus.ledger.audit import AuditEvent, AuditReport, random_salt
from palinurus.ledger.audit_log import PIECE, AuditLog
from palinurus.storage.database import Database
from palinurus.testing.fakes import FakeClock

SECRET = "the-tide-turns-at-noon"
DEADLINE = 5.0
ADD = """INSERT INTO audit SELECT {seq}, at, kind, run_id, session_key, tool, call_id, outcome, digest, previous, hash
FROM audit WHERE seq = {like}"""
EXCHANGE = (
    "UPDATE audit SET seq = CASE seq WHEN 3 THEN -4 ELSE -3 END WHERE seq IN (3, 4); UPDATE audit SET seq = abs(seq)"
)


def event(name: str, text: str = "") -> AuditEvent:
    return AuditEvent("call", 1000, "run", "agent:main:main", "exec", name, "allowed", {"text": text or f"did {name}"})


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    """A closed home with five rows."""
    path = tmp_path / "home.sqlite"
    database = Database(path, "home")
    log = AuditLog(database, FakeClock(), random_salt)
    for name in ("one", "two", "three", "four", "five"):
        await log.record(event(name))
    await database.close()
    return path


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = Database(tmp_path / "open.sqlite", "home")
    yield opened
    await opened.close()


async def verify(path: Path, expect: str = "") -> AuditReport:
    database = Database(path, "home", readonly=True)
    try:
        return await AuditLog(database, FakeClock(), random_salt).verify(expect=expect)
    finally:
        await database.close()


def tamper(path: Path, sql: str) -> None:
    """As somebody would who may write to the file and knows what guards it."""
    with closing(apsw.Connection(str(path))) as connection:
        guards = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(sql)
        for _, guard in guards:
            connection.execute(str(guard))


@pytest.mark.parametrize("needle", [b"did three", b"three", b"allowed", b"agent:main:main"])
@pytest.mark.parametrize("bit", [0x01, 0x80], ids=["another letter", "no text any more"])
async def test_one_flipped_byte_in_the_file_is_found_and_mended_by_putting_it_back(
    home: Path, needle: bytes, bit: int
) -> None:
    whole = home.read_bytes()
    head = (await verify(home)).head
    places = [at for at in range(len(whole)) if whole.startswith(needle, at)]
    found = []
    for at in places:
        home.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
        found.append(await verify(home))
    broken = [report for report in found if not report.ok]
    assert broken
    assert all(f"row {report.broken} " in report.trouble for report in broken)
    if needle == b"did three":
        assert [report.trouble for report in broken] == ["the details of row 3 were changed"]
    home.write_bytes(whole)
    report = await verify(home, head)
    assert (report.ok, report.head) == (True, head)


@pytest.mark.parametrize(
    ("sql", "broken", "trouble"),
    [
        ("UPDATE audit SET outcome = 'denied' WHERE seq = 2", 2, "row 2 was changed"),
        ("UPDATE audit SET at = at + 1 WHERE seq = 5", 5, "row 5 was changed"),
        ("UPDATE audit SET hash = upper(hash) WHERE seq = 5", 5, "row 5 was changed"),
        ("UPDATE audit SET previous = digest WHERE seq = 4", 4, "row 4 does not follow the row before it"),
        ("UPDATE audit_details SET details = replace(details, 'did', 'DID') WHERE seq = 3", 3, "details of row 3 were"),
        ("UPDATE audit_details SET details = details || ' ' WHERE seq = 3", 3, "details of row 3 were changed"),
        ("UPDATE audit_details SET salt = '' WHERE seq = 1", 1, "details of row 1 were changed"),
        ("DELETE FROM audit_details WHERE seq = 4", 4, "details of row 4 are gone, and no erasure names it"),
        ("PRAGMA foreign_keys = 0; DELETE FROM audit WHERE seq = 2", 2, "row 2 is missing"),
        ("PRAGMA foreign_keys = 0; DELETE FROM audit WHERE seq = 1", 1, "row 1 is missing"),
        ("PRAGMA foreign_keys = 0; DELETE FROM audit WHERE seq = 5", 5, "details of row 5, and no such row"),
        (ADD.format(seq=0, like=1), 0, "row 0 does not belong here"),
        (ADD.format(seq=6, like=5), 6, "row 6 does not follow the row before it"),
        (EXCHANGE, 3, "row 3 does not follow the row before it"),
    ],
)
async def test_a_row_that_was_tampered_with_is_named(home: Path, sql: str, broken: int, trouble: str) -> None:
    tamper(home, sql)
    report = await verify(home)
    assert not report.ok
    assert (report.broken, trouble in report.trouble) == (broken, True), report


async def test_an_end_cut_off_with_care_is_told_by_the_head_that_was_kept(home: Path) -> None:
    head = (await verify(home)).head
    tamper(home, "DELETE FROM audit_details WHERE seq > 3; DELETE FROM audit WHERE seq > 3")
    assert (await verify(home)).ok
    assert not (await verify(home, head)).ok


async def test_damaged_rows_can_still_be_shown(home: Path) -> None:
    tamper(home, "UPDATE audit_details SET details = '{\"text' WHERE seq = 3")
    tamper(home, "UPDATE audit SET outcome = CAST(x'ff41' AS TEXT) WHERE seq = 2")
    database = Database(home, "home", readonly=True)
    rows = {row.seq: row for row in await AuditLog(database, FakeClock(), random_salt).rows()}
    await database.close()
    assert rows[3].details == {"unreadable": '{"text'}
    assert rows[2].outcome == "�A"


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE audit SET outcome = 'x'",
        "DELETE FROM audit WHERE seq = 5",
        "INSERT OR REPLACE INTO audit SELECT * FROM audit WHERE seq = 5",
        "UPDATE audit_details SET details = '{}'",
    ],
)
async def test_the_store_itself_refuses_to_rewrite_the_log(home: Path, sql: str) -> None:
    with closing(apsw.Connection(str(home))) as connection, pytest.raises(apsw.ConstraintError):
        connection.execute(sql)
    assert (await verify(home)).ok


async def test_what_was_erased_is_in_no_file_any_more(database: Database, tmp_path: Path) -> None:
    log = AuditLog(database, FakeClock(), random_salt)
    await log.record(event("before"))
    await log.record(event("long", SECRET * 2000))  # spills over several pages
    await log.record(event("short", SECRET))
    await database.read(lambda connection: connection.execute("SELECT count(*) FROM audit").get)
    assert any(SECRET.encode() in file.read_bytes() for file in tmp_path.iterdir())
    assert await log.erase([2, 3]) == 2
    assert not any(SECRET.encode() in file.read_bytes() for file in tmp_path.iterdir())
    assert (await log.verify()).ok


async def test_a_long_log_is_checked_in_pieces_and_grows_meanwhile(database: Database) -> None:
    log = AuditLog(database, FakeClock(), random_salt)
    for number in range(2 * PIECE + 10):
        log.note(event(str(number)))
    await log.settled()
    checking = asyncio.create_task(log.verify())
    await log.record(event("meanwhile"))
    await log.erase([2 * PIECE + 1])
    report = await asyncio.wait_for(checking, DEADLINE)
    assert report.ok
    assert (await log.verify()).rows == 2 * PIECE + 12


async def test_a_note_waits_for_nothing_and_is_on_the_disk_with_the_next_record(database: Database) -> None:
    log = AuditLog(database, FakeClock(), random_salt)
    gate = threading.Event()
    blocked = asyncio.create_task(database.write(lambda _: gate.wait(DEADLINE)))
    await asyncio.sleep(0)
    log.note(event("noted"))  # the disk is busy, and this returns
    gate.set()
    await blocked
    await log.record(event("recorded"))
    with closing(apsw.Connection(str(database.path), flags=apsw.SQLITE_OPEN_READONLY)) as other:
        kept = other.execute("SELECT call_id FROM audit ORDER BY seq").fetchall()
    assert kept == [("noted",), ("recorded",)]


async def test_what_was_noted_is_kept_when_the_home_is_closed(tmp_path: Path) -> None:
    database = Database(tmp_path / "home.sqlite", "home")
    log = AuditLog(database, FakeClock(), random_salt)
    for number in range(300):
        log.note(event(str(number)))
    await database.close()
    report = await verify(tmp_path / "home.sqlite")
    assert (report.ok, report.rows) == (True, 300)


class BadDisk:
    """Fills up when it is told to."""

    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        commit = database._commit

        def _commit(works: list[object]) -> list[object]:
            return [StorageFull("the disk is full")] * len(works) if self.full else commit(works)  # type: ignore[arg-type]

        monkeypatch.setattr(database, "_commit", _commit)


async def test_a_note_that_could_not_be_kept_is_told_by_the_next_record_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, log = BadDisk(database, monkeypatch), AuditLog(database, FakeClock(), random_salt)
    disk.full = True
    log.note(event("lost"))
    await database.flush()
    disk.full = False
    with pytest.raises(StorageFull):
        await log.record(event("kept"))
    await log.record(event("kept too"))
    assert [row.call_id for row in await log.rows()] == ["kept too", "kept"]
    assert (await log.verify()).ok


async def test_a_note_and_a_record_that_fail_together_are_told_together(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, log = BadDisk(database, monkeypatch), AuditLog(database, FakeClock(), random_salt)
    disk.full = True
    log.note(event("lost"))
    with pytest.raises(StorageFull):
        await log.record(event("lost too"))
    log.note(event("lost as well"))
    with pytest.raises(StorageFull):
        await log.settled()
    disk.full = False
    await log.record(event("kept"))
    assert [row.call_id for row in await log.rows()] == ["kept"]


async def test_a_home_that_may_only_be_read_is_told_by_record(home: Path) -> None:
    database = Database(home, "home", readonly=True)
    log = AuditLog(database, FakeClock(), random_salt)
    with pytest.raises(StorageReadOnly):
        await log.record(event("x"))
    log.note(event("y"))
    with pytest.raises(StorageReadOnly):
        await log.settled()
    await database.close()


async def test_a_row_that_the_store_refuses_is_told_in_our_words(database: Database) -> None:
    await database.write(
        lambda connection: connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no'); END"
        ).fetchall()
    )
    log = AuditLog(database, FakeClock(), random_salt)
    with pytest.raises(StorageError, match="no"):
        await log.record(event("x"))
    log.note(event("y"))
    with pytest.raises(StorageError, match="no"):
        await log.settled()
