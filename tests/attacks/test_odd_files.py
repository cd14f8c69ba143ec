"""Files of the home, and words on the command line, that somebody made to break the program: one line, no traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hostile_model import HostileHome

from support.wire import WireServer

pytestmark = pytest.mark.slow

DEEP = "[" * 100_000


async def test_values_and_paths_without_end_are_refused_in_one_line(tmp_path: Path) -> None:
    async with WireServer() as server:
        home = HostileHome(tmp_path, server)
        before = (home.root / "palinurus.json").read_text()
        for arguments in (("a." * 5_000 + "b", "1"), ("agents", DEEP[:100_000])):
            done = await home.pal("config", "set", *arguments)
            assert done.returncode == 2, done
            assert done.stderr.startswith("pal: "), done
            assert "Traceback" not in done.stderr
        assert (home.root / "palinurus.json").read_text() == before


async def test_stored_keys_nested_without_end_are_no_json(tmp_path: Path) -> None:
    async with WireServer() as server:
        home = HostileHome(tmp_path, server)
        (home.root / "credentials.json").write_text(DEEP)
        (home.root / "credentials.json").chmod(0o600)
        done = await home.pal("models", "auth", "list")
    assert "Traceback" not in done.stderr
    assert "credentials.json is not JSON" in done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["pipe", "folder"])
async def test_a_database_that_is_no_file_is_neither_waited_for_nor_a_traceback(tmp_path: Path, kind: str) -> None:
    async with WireServer() as server:
        home = HostileHome(tmp_path, server)
        (home.root / "home.id").touch()  # somebody lives here
        place = home.root / "home.sqlite"
        os.mkfifo(place) if kind == "pipe" else place.mkdir()
        for command in (("agent", "-m", "hi"), ("sessions", "list"), ("doctor", "--no-model"), ("status",)):
            done = await home.pal(*command)
            assert done.returncode != 0, done
            assert "Traceback" not in done.stderr, done
            assert "is not a regular file" in done.stdout + done.stderr, done


@pytest.mark.parametrize("kind", ["pipe", "folder"])
async def test_an_index_that_is_no_file_is_told_and_neither_waited_for_nor_a_traceback(
    tmp_path: Path, kind: str
) -> None:
    async with WireServer() as server:
        home = HostileHome(tmp_path, server)
        await home.pal("agent", "-m", "the boat is green")
        place = home.root / "derived" / "transcripts.sqlite"
        for path in place.parent.glob("transcripts.sqlite*"):
            path.unlink()
        os.mkfifo(place) if kind == "pipe" else place.mkdir()
        for command in (("sessions", "search", "boat"), ("agent", "-m", "hi"), ("doctor", "--no-model")):
            done = await home.pal(*command)
            assert "Traceback" not in done.stderr, done


async def test_a_note_holds_no_sign_that_a_terminal_would_obey(tmp_path: Path) -> None:
    async with WireServer() as server:
        home = HostileHome(tmp_path, server)
        await home.use(("memory_write", {"text": "the boat\x1b]52;c;ZXZpbA==\x07 is\x9b green"}))
    [note] = (home.workspace / "memory").glob("*.md")
    assert "- the boat ]52;c;ZXZpbA== is green" in note.read_text()
