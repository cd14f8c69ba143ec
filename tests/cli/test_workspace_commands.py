"""`pal workspace log|diff|restore|commit` on a real home."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from called import Pal

from palinurus.config.home import Home
from palinurus.workspace.seed import _git_init

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def test_a_change_is_listed_shown_and_taken_back(pal_command: Pal, workspace: Path) -> None:
    assert _git_init(workspace)
    nothing = pal_command("workspace", "log")
    assert (nothing.code, "file(s) changed since" in nothing.out) == (0, True)
    kept = pal_command("workspace", "commit", "-m", "As it was", "--json").json
    (workspace / "SOUL.md").write_text("Spoilt.\n")
    assert "+Spoilt." in pal_command("workspace", "diff").out
    listed = pal_command("workspace", "log", "SOUL.md").out
    assert "As it was" in listed
    assert "1 file(s) changed" in listed
    commit = kept["commit"]["id"]
    assert "+Curious and calm." in pal_command("workspace", "diff", commit, "--path", "SOUL.md").out
    assert "+Spoilt." in pal_command("workspace", "diff", commit, "--now", "--agent", "main").out
    assert pal_command("workspace", "log", "--agent", "nobody").code == 1
    back = pal_command("workspace", "restore", "SOUL.md", commit[:8])
    assert (back.code, back.err) == (0, "")
    assert "The previous version is in .pal/backups/SOUL.md/" in back.out
    assert (workspace / "SOUL.md").read_text() == "# Soul\nCurious and calm.\n"
    assert pal_command("workspace", "commit").out.startswith("Nothing has changed.")


def test_without_a_history_the_reason_is_one_line(pal_command: Pal, home: Home) -> None:
    ended = pal_command("workspace", "log")
    assert (ended.code, ended.out) == (
        1,
        "There is no history: the workspace is not a git repository; `git init` in it begins a history.\n",
    )
    wrong = pal_command("workspace", "restore", "SOUL.md", "abcdef1")
    assert (wrong.code, wrong.err.startswith("pal: there is no history:")) == (1, True)


def test_the_doctor_says_whether_runs_are_committed(pal_command: Pal, workspace: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(workspace)], check=True, timeout=60)
    assert "not one that Palinurus made" in pal_command("doctor").out
    subprocess.run(["git", "-C", str(workspace), "config", "palinurus.history", "true"], check=True, timeout=60)
    assert "what the agent's tools write is committed" in pal_command("doctor").out


def test_a_commit_that_a_person_asks_for_leaves_out_new_secrets_and_says_so(pal_command: Pal, workspace: Path) -> None:
    assert _git_init(workspace)
    (workspace / "secrets.txt").write_text("hunter2\n")
    (workspace / "plan.md").write_text("paint it\n")
    done = pal_command("workspace", "commit", "-m", "All of it", "--json").json
    assert "plan.md" in [file["path"] for file in done["commit"]["files"]]
    (left,) = done["leftOut"]
    assert (left["path"], "looks like a secret" in left["why"]) == ("secrets.txt", True)
