"""A list of skills that is kept is given again at once, and never once anything that it rests on has changed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from shelved import write_skill

from palinurus.cli.kept import SETTLED_NS, kept_answer

LIST = ["skills", "list"]
OFF = '{"skills": {"entries": {"tides": {"enabled": false}}}}'


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

    @property
    def kept(self) -> str | None:
        return kept_answer(LIST, self.env)


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
def test_what_is_kept_falls_with_what_it_rests_on(front: Front, what: str) -> None:
    first = front.list()
    second = front.list()  # the first one made folders of the home
    assert first == second
    assert front.kept == second.removesuffix("\n")
    change, shown = CHANGES[what]
    change(front)
    assert front.kept is None
    assert shown in front.list()


@pytest.mark.slow
def test_each_way_to_ask_has_its_own(front: Front) -> None:
    for _ in range(2):
        plain, for_programs = front.list(), front.list("--json")
    assert "tides" in plain
    assert for_programs.startswith("{")
    assert front.kept == plain.removesuffix("\n")
    assert kept_answer([*LIST, "--json"], front.env) == for_programs.removesuffix("\n")
    assert kept_answer([*LIST, "-v"], front.env) is None


@pytest.mark.slow
def test_a_spoiled_one_is_not_believed(front: Front) -> None:
    front.list()
    plain = front.list()
    place = front.home / "derived" / "skills.list.kept"
    for data in (b"", b"\xff\xfe", b"pal kept answer 1\n\nyes", place.read_bytes()[:200], b"\n\n" + place.read_bytes()):
        place.write_bytes(data)
        assert front.kept is None
        assert front.list() == plain


@pytest.mark.slow
def test_values_of_variables_are_not_written_down(front: Front) -> None:
    front.env["QUAY"] = "sesame-4711"
    front.list()
    front.list()
    assert front.kept is not None
    assert b"sesame" not in (front.home / "derived" / "skills.list.kept").read_bytes()


def test_nothing_is_kept_where_there_is_no_home(tmp_path: Path) -> None:
    assert kept_answer(LIST, {"PALINURUS_HOME": str(tmp_path / "none")}) is None
    assert kept_answer(LIST, {}) is None
    assert kept_answer(LIST, {"HOME": "relative"}) is None
