"""The questions of `pal skills` in a real pseudo-terminal: what was shown is done after a yes and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pseudo_terminal import CTRL_C, CTRL_D, ENTER, ESCAPE, Terminal

sys.path.insert(0, str(Path(__file__).parent.parent / "skills" / "registry"))

from hosted import Hosted

pytestmark = pytest.mark.slow

VIDEO = """---
name: video
description: Cuts videos.
metadata: {"openclaw": {"requires": {"bins": ["cut-video"]},
  "install": [{"kind": "uv", "package": "cut-video", "bins": ["cut-video"]}]}}
---
Cut.
"""
INTERRUPTED = 130
YES = [("y" + ENTER), ("YES" + ENTER)]
# What is typed, and the exit code. Ctrl-D ends the input only at the beginning of a line.
ANYTHING_ELSE = [
    ("n" + ENTER, 1),
    (ENTER, 1),
    (CTRL_C, INTERRUPTED),
    ("y" + CTRL_C, INTERRUPTED),
    (CTRL_D, INTERRUPTED),
]
# These are no answers: the question is asked again.
NONSENSE = ["yes please" + ENTER, "j" + ENTER, ESCAPE + "y" + ENTER, "1 y" + ENTER]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A home with a skill that lacks a program, and an installer that leaves a trace."""
    (tmp_path / "home" / "workspace").mkdir(parents=True)
    (tmp_path / "home").chmod(0o700)
    (tmp_path / "home" / "palinurus.json").write_text("{}")
    folder = tmp_path / "home" / "skills" / "video"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(VIDEO)
    programs = tmp_path / "programs"
    programs.mkdir()
    made = programs / "cut-video"
    (programs / "uv").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/ran\ntouch {made}; chmod +x {made}\n')
    (programs / "uv").chmod(0o755)
    return {"PALINURUS_HOME": str(tmp_path / "home"), "HOME": str(tmp_path), "PATH": f"{programs}:/usr/bin:/bin"}


@pytest.fixture
def registry(tmp_path: Path, env: dict[str, str]) -> Iterator[Hosted]:
    with Hosted(tmp_path / "registry") as running:
        running.publish("tide-table", run_py="print(1)\n")
        env["CLAWHUB_REGISTRY"] = running.url
        yield running


async def answered(env: dict[str, str], question: str, typed: str, *arguments: str) -> int:
    async with Terminal(env, "skills", *arguments) as terminal:
        await terminal.sees(question)
        return await interrupted(terminal, typed) if CTRL_C in typed else await ended(terminal, typed)


async def ended(terminal: Terminal, typed: str) -> int:
    terminal.type(typed)
    return await terminal.ends()


async def interrupted(terminal: Terminal, typed: str = CTRL_C) -> int:
    """In the instant before it waits for input Python takes a Ctrl-C in and only acts at the next key: strike again."""
    for _ in range(5):
        terminal.type(typed)
        with suppress(TimeoutError):
            return await terminal.ends(3.0)
    raise AssertionError(terminal.shown)


# --- programs that a skill needs ---

DEPS = ("install-deps", "video")


@pytest.mark.parametrize("typed", YES)
async def test_after_a_yes_the_very_command_that_was_shown_is_run(
    env: dict[str, str], tmp_path: Path, typed: str
) -> None:
    async with Terminal(env, "skills", *DEPS) as terminal:
        await terminal.sees("$ uv tool install cut-video", "Run this? [y/N]:")
        assert not (tmp_path / "ran").exists()
        terminal.type(typed)
        assert await terminal.ends() == 0
    assert (tmp_path / "ran").read_text() == "tool install cut-video\n"


@pytest.mark.parametrize(("typed", "code"), ANYTHING_ELSE)
async def test_without_a_yes_no_command_is_run(env: dict[str, str], tmp_path: Path, typed: str, code: int) -> None:
    assert await answered(env, "Run this? [y/N]:", typed, *DEPS) == code
    assert not (tmp_path / "ran").exists()


async def test_what_is_no_answer_is_asked_again_and_runs_nothing(env: dict[str, str], tmp_path: Path) -> None:
    async with Terminal(env, "skills", *DEPS) as terminal:
        await terminal.sees("Run this? [y/N]:")
        for typed in NONSENSE:
            terminal.type(typed)
            await terminal.sees("invalid input", "Run this? [y/N]:")
        terminal.type(CTRL_D)
        assert await terminal.ends() == INTERRUPTED
    assert not (tmp_path / "ran").exists()


# --- skills of others ---

TAKE = ("install", "tide-table")


def installed(env: dict[str, str]) -> bool:
    home = Path(env["PALINURUS_HOME"])
    there, pinned = (home / "skills" / "tide-table").exists(), (home / "skills.lock.json").exists()
    assert there == pinned
    return there


@pytest.mark.usefixtures("registry")
async def test_after_a_yes_a_skill_is_moved_into_place(env: dict[str, str]) -> None:
    async with Terminal(env, "skills", *TAKE) as terminal:
        await terminal.sees("commands only in the sandbox", "Install tide-table 1.0.0? [y/N]:")
        assert not installed(env)
        terminal.type("y" + ENTER)
        await terminal.sees("Installed in", "pinned as sha256:")
        assert await terminal.ends() == 0
    assert installed(env)


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(("typed", "code"), ANYTHING_ELSE)
async def test_without_a_yes_nothing_is_installed(env: dict[str, str], typed: str, code: int) -> None:
    assert await answered(env, "Install tide-table 1.0.0? [y/N]:", typed, *TAKE) == code
    assert not installed(env)


@pytest.mark.usefixtures("registry")
async def test_what_is_no_answer_installs_nothing(env: dict[str, str]) -> None:
    async with Terminal(env, "skills", *TAKE) as terminal:
        await terminal.sees("Install tide-table 1.0.0? [y/N]:")
        for typed in NONSENSE[:2]:
            terminal.type(typed)
            await terminal.sees("invalid input", "[y/N]:")
        assert await interrupted(terminal) == INTERRUPTED
    assert not installed(env)
