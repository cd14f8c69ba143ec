"""A foreign database on a slow disk, and one that was made to make us compute."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from foreign_trees import Tree, add_rows, look, talk
from taking_in import Here

from palinurus.extensions.migrate.openclaw import database as foreign
from palinurus.testing.fakes import FakeClock, SeededIds

SESSIONS, WORDS = 6, 700


class SlowFile(apsw.VFSFile):
    """Every so often a read takes its time, as on a disk that was asleep or is far away."""

    reads = 0
    pause = threading.Event()  # never set: waiting for it takes as long as it is given

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802  # apsw's name
        SlowFile.reads += 1
        if SlowFile.reads % 100 == 0:
            SlowFile.pause.wait(0.03)
        return super().xRead(amount, offset)


class SlowDisk(apsw.VFS):
    def __init__(self) -> None:
        self._base = apsw.vfs_names()[0]
        super().__init__("slow", self._base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> SlowFile:  # noqa: N802
        return SlowFile(self._base, name, flags)


@contextmanager
def slow_disk() -> Iterator[None]:
    disk = SlowDisk()
    SlowFile.reads = 0
    try:
        yield
    finally:
        disk.unregister()


async def test_an_intact_database_on_a_slow_disk_comes_over_whole(
    tree: Tree, tmp_path: Path, clock: FakeClock, new_id: SeededIds
) -> None:
    database = tree.database()
    with database:
        for number in range(SESSIONS):
            texts = [f"words {each} of {number} " + "x" * 900 for each in range(WORDS)]
            add_rows(database, f"agent:main:talk-{number}", f"s{number}", talk(f"s{number}", *texts))
    database.close()
    here = Here(tmp_path / "here", clock, new_id)
    with slow_disk():
        report = await here.migrate(tree.root)
    await here.database.close()
    assert SlowFile.reads > 400
    assert [each.reason for each in report.skipped] == []
    assert [session.texts for session in report.sessions] == [WORDS] * SESSIONS


def test_a_table_that_computes_its_columns_is_refused_and_told(tree: Tree) -> None:
    database = tree.database()
    database.execute("DROP TABLE transcript_events")
    database.execute(
        "CREATE TABLE transcript_events (session_id TEXT, seq INTEGER,"
        " event_json TEXT GENERATED ALWAYS AS (hex(zeroblob(1000))) VIRTUAL)"
    )
    database.execute("INSERT INTO transcript_events VALUES ('s', 1)")
    database.close()
    found, skipped = look(tree.root)
    assert found == []
    assert ["computes its columns" in each.reason for each in skipped] == [True]


def test_a_value_that_is_too_long_costs_that_row_and_no_memory(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "LONGEST_VALUE", 50_000)
    database = tree.database()
    add_rows(database, "agent:main:main", "s", talk("s", "short", "x" * 60_000))
    database.close()
    found, skipped = look(tree.root)
    assert [session.texts for session in found] == [1]
    assert skipped


def test_a_statement_that_gives_no_row_in_time_is_interrupted(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(foreign, "STEPS", 1)
    tree.database().close()
    found, skipped = look(tree.root)
    assert found == []
    assert "interrupted" in skipped[0].reason
