"""One at a time writes a wiki; one that died stands in nobody's way, and nothing of the lock is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from wikis import make_wiki

from palinurus.domain.errors import StorageError
from palinurus.extensions.migrate.ingest.state import LOCK_FILE, wiki_lock

HOLD = """
import sys
from pathlib import Path
from palinurus.extensions.migrate.ingest.state import wiki_lock
with wiki_lock(Path(sys.argv[1]), "pal ingest"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "MEMORY.md").write_text("## Projects\n### argo\n- A small boat\n")
    return folder


def test_the_second_is_told_who_writes_and_gets_its_turn_when_that_one_died(notes: Path, tmp_path: Path) -> None:
    wiki = tmp_path / "wiki"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(wiki)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StorageError, match=rf"is being written by pid {other.pid} \(pal ingest\)") as told:
            make_wiki(notes, wiki)
        assert "\n" not in str(told.value)
        assert make_wiki(notes, wiki, apply=False).facts == 1, "a look writes nothing, and needs no turn"
        other.send_signal(signal.SIGKILL)
        other.wait(60)
    assert (wiki / LOCK_FILE).exists(), "it had no time to tidy up"
    assert make_wiki(notes, wiki).changed
    assert not (wiki / LOCK_FILE).exists()


def test_whoever_waited_for_a_file_that_was_taken_away_holds_the_new_one(tmp_path: Path) -> None:
    with wiki_lock(tmp_path, "first"):
        with pytest.raises(StorageError, match=rf"pid {os.getpid()} \(first\)"), wiki_lock(tmp_path, "second"):
            pass
        assert (tmp_path / LOCK_FILE).exists(), "the one that was refused took nothing away"
    with wiki_lock(tmp_path, "third"):
        assert (tmp_path / LOCK_FILE).read_text().endswith(" third\n")
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_makes_no_folder(notes: Path, tmp_path: Path) -> None:
    make_wiki(notes, tmp_path / "wiki", apply=False)
    assert not (tmp_path / "wiki").exists()
