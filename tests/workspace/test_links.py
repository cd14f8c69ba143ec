"""A hard link gives one file several names. One with a name outside is neither read, nor written, nor copied."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from palinurus.domain.errors import WorkspaceError
from palinurus.sandbox.environment import ExecEnvironment
from palinurus.sandbox.folders import prepare_private
from palinurus.workspace import steps
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import WorkspaceFiles
from palinurus.workspace.write import append_line

SECRET = "outside: the secret\n"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "elsewhere" / "key.md"
    path.parent.mkdir()
    path.write_text(SECRET)
    return path


def test_a_file_with_a_name_outside_is_not_read_and_one_line_says_why(workspace: Path, secret: Path) -> None:
    os.link(secret, workspace / "notes.md")
    with pytest.raises(WorkspaceError, match=r"notes\.md has another name outside the workspace"):
        Boundary(workspace).read_bytes("notes.md")


def test_files_whose_names_are_all_inside_are_read(workspace: Path) -> None:
    (workspace / "deep" / ".hidden").mkdir(parents=True)
    for name in ("twin.md", "deep/.hidden/triplet.md"):
        os.link(workspace / "SOUL.md", workspace / name)
    boundary = Boundary(workspace)
    assert boundary.read_bytes("SOUL.md") == boundary.read_bytes("deep/.hidden/triplet.md")


@pytest.mark.parametrize("folder", [".venv/lib/python3.13/site-packages/x", "node_modules/x", "app/node_modules/x"])
def test_what_a_package_cache_shares_with_a_project_is_read(workspace: Path, secret: Path, folder: str) -> None:
    (workspace / folder).mkdir(parents=True)
    os.link(secret, workspace / folder / "module.py")
    assert Boundary(workspace).read_bytes(f"{folder}/module.py") == SECRET.encode()


def test_a_workspace_that_is_itself_a_link_is_looked_through(workspace: Path, tmp_path: Path) -> None:
    os.link(workspace / "SOUL.md", workspace / "twin.md")
    (tmp_path / "way").symlink_to(workspace)
    assert Boundary(tmp_path / "way").read_bytes("twin.md") == Boundary(workspace).read_bytes("SOUL.md")


def test_a_name_that_moves_out_or_goes_is_noticed(workspace: Path, tmp_path: Path) -> None:
    os.link(workspace / "SOUL.md", workspace / "twin.md")
    boundary = Boundary(workspace)
    assert boundary.read_bytes("SOUL.md")
    (workspace / "twin.md").rename(tmp_path / "twin.md")
    with pytest.raises(WorkspaceError, match="another name outside"):
        boundary.read_bytes("SOUL.md")
    (tmp_path / "twin.md").unlink()
    assert boundary.read_bytes("SOUL.md")


def test_in_a_tree_too_large_to_look_through_a_name_counts_as_not_found(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "deep").mkdir()
    os.link(workspace / "SOUL.md", workspace / "deep" / "twin.md")
    monkeypatch.setattr(steps, "MAX_LOOKS", 3)
    with pytest.raises(WorkspaceError, match="another name outside"):
        Boundary(workspace).read_bytes("SOUL.md")


def test_no_line_is_appended_under_a_name_that_is_somebody_elses(workspace: Path, secret: Path) -> None:
    (workspace / "memory").mkdir()
    os.link(secret, workspace / "memory" / "2026-11-17.md")
    with pytest.raises(WorkspaceError, match="another name outside"):
        append_line(Boundary(workspace), "memory/2026-11-17.md", "- a note")
    assert secret.read_text() == SECRET


def test_a_prompt_says_that_a_file_is_such_a_link_and_a_sandbox_gets_no_copy(workspace: Path, secret: Path) -> None:
    (workspace / "SOUL.md").unlink()
    os.link(secret, workspace / "SOUL.md")
    shown = {file.name: file for file in WorkspaceFiles(Boundary(workspace)).bootstrap_files("full", private=True)}
    assert (shown["SOUL.md"].state, "secret" in shown["SOUL.md"].text) == ("unreadable", False)
    place = ExecEnvironment("required", workspace.parent / "sandboxes" / "one", writable=True, own=workspace)
    prepare_private(place, workspace)
    assert not (place.workspace / "SOUL.md").exists()
    assert (place.workspace / "AGENTS.md").exists()
