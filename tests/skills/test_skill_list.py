"""`pal skills list` in processes of their own: what was found is kept on disk, and never told once it has changed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from shelved import write_skill

from palinurus.skills.discovery import SETTLED_NS

LIST = ["skills", "list"]
HEAVY = ("yaml", "httpx2", "apsw", "uvloop", "ssl", "xml.sax", "sqlite3")
CODE = f"""
import sys
sys.argv = ["pal", "skills", "list"]
from palinurus.__main__ import main
try:
    main()
except SystemExit as left:
    assert not left.code, left.code
ours = ("palinurus.extensions.", "palinurus.runtime.services", "palinurus.operations", "palinurus.gateway")
found = [name for name in sys.modules if name in {HEAVY!r} or name.startswith(ours)]
sys.stderr.write(",".join(found))
"""


class Front:
    """`pal skills list` as a person calls it."""

    def __init__(self, base: Path) -> None:
        self.home = base / "home"
        self.skills = self.home / "skills"
        self.programs = base / "programs"
        self.programs.mkdir()
        write_skill(self.skills, "tides", 'metadata: {"openclaw": {"requires": {"bins": ["moon"], "env": ["QUAY"]}}}\n')
        self.config = self.home / "palinurus.json"
        self.config.write_text("{}")
        self.env = {"PALINURUS_HOME": str(self.home), "HOME": str(base), "PATH": str(self.programs)}
        self.program("moon")

    def program(self, name: str) -> None:
        (self.programs / name).write_text("#!/bin/sh\n")
        (self.programs / name).chmod(0o755)

    def list(self, *more: str) -> str:
        _settle()
        argv = [sys.executable, "-m", "palinurus", *LIST, *more]
        ended = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=60, check=True)
        return ended.stdout


def _settle() -> None:
    """Until the clock of the file system has gone on: what changed just now is not believed by its looks."""
    until = time.time_ns() + 2 * SETTLED_NS
    while time.time_ns() < until:
        os.stat(".")  # noqa: PTH116


@pytest.fixture
def front(tmp_path: Path) -> Front:
    return Front(tmp_path)


def _same_size(front: Front) -> None:
    path = front.skills / "tides" / "SKILL.md"
    path.write_text(path.read_text().replace("Helps", "Halps"))


def _not_executable(front: Front) -> None:
    (front.programs / "moon").chmod(0o644)


def _a_file_of_a_folder_to_come(front: Front) -> None:
    write_skill(front.home.parent / ".agents" / "skills", "ropes")


CHANGES: dict[str, tuple[Callable[[Front], object], str]] = {
    "a file of the same size": (_same_size, "QUAY"),
    "another skill": (lambda front: write_skill(front.skills, "winds"), "winds"),
    "a skill in a place that was not there": (_a_file_of_a_folder_to_come, "ropes"),
    "a program that cannot be run": (_not_executable, "moon"),
    "a program gone": (lambda front: (front.programs / "moon").unlink(), "moon"),
    "a variable": (lambda front: front.env.update(QUAY="1"), "yes  tides"),
    "the config": (
        lambda front: front.config.write_text('{"skills": {"entries": {"tides": {"enabled": false}}}}'),
        "off",
    ),
    "another path": (lambda front: front.env.update(PATH="/nowhere"), "moon"),
    "another width": (lambda front: front.env.update(COLUMNS="70"), "tides"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", CHANGES)
def test_what_was_found_is_not_told_once_it_has_changed(front: Front, what: str) -> None:
    assert front.list() == front.list()
    change, shown = CHANGES[what]
    change(front)
    assert shown in front.list()


@pytest.mark.slow
def test_a_spoiled_cache_is_not_believed(front: Front) -> None:
    plain = front.list()
    place = front.home / "derived" / "skills.msgpack"
    for data in (b"", b"\xff\xfe", place.read_bytes()[:200], b"\n" + place.read_bytes()):
        place.write_bytes(data)
        assert front.list() == plain


@pytest.mark.slow
def test_a_second_listing_parses_nothing_and_loads_no_runtime_and_no_extension(front: Front) -> None:
    """What it costs, counted in what is loaded and not in seconds."""
    for _ in range(2):  # the first one parses; what it found is kept
        _settle()
        argv = [sys.executable, "-c", CODE]
        ended = subprocess.run(argv, env=front.env, capture_output=True, text=True, timeout=60, check=True)
        assert "tides" in ended.stdout
    assert ended.stderr == ""
