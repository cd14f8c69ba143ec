"""A damaged write-ahead log: what stood behind the damage is told, and a log that is merely unfinished is none."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from palinurus.extensions.migrate.openclaw.database import open_database, wal_fault
from palinurus.extensions.migrate.report import Losses


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A file whose last transactions are only in its log."""
    live = tmp_path / "live.sqlite"
    connection = apsw.Connection(str(live))
    connection.pragma("journal_mode", "wal")
    connection.pragma("wal_autocheckpoint", 0)
    connection.execute("CREATE TABLE said (words TEXT)")
    for number in range(6):
        connection.execute("INSERT INTO said VALUES (?)", (f"{number}" * 5000,))
    copy = tmp_path / "copy.sqlite"
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{live}{suffix}", f"{copy}{suffix}")
    connection.close()
    return copy


def bent(database: Path, at: int) -> Path:
    log = Path(f"{database}-wal")
    data = bytearray(log.read_bytes())
    data[at] ^= 1
    log.write_bytes(data)
    return log


def test_a_whole_log_has_no_fault(database: Path) -> None:
    assert wal_fault(Path(f"{database}-wal")) == ""


@pytest.mark.parametrize("at", [5, 20, 32 + 24 + 100, 32 + (24 + 4096) * 3 + 500])
def test_one_flipped_bit_in_the_middle_is_told(database: Path, tmp_path: Path, at: int) -> None:
    log = bent(database, at)
    assert "lost" in wal_fault(log)
    losses = Losses()
    (tmp_path / "scratch").mkdir()
    open_database(database, "x.sqlite", tmp_path / "scratch", losses)
    assert losses.listed[0].file == "x.sqlite-wal"


def test_what_was_never_committed_is_no_loss(database: Path) -> None:
    log = Path(f"{database}-wal")
    data = log.read_bytes()
    log.write_bytes(data[: len(data) - 4120 // 2])  # the last page was half written
    assert wal_fault(log) == ""
    log.write_bytes(b"")
    assert wal_fault(log) == ""
