"""A workspace made of two folders: whoever asks for a path is led to the folder that has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from palinurus.domain.errors import OutsideWorkspace
from palinurus.workspace.boundary import Boundary, OverlayBoundary, is_memory
from palinurus.workspace.files import WorkspaceFiles
from palinurus.workspace.write import keep_backup


@pytest.mark.parametrize(
    ("path", "memory"),
    [
        ("MEMORY.md", True),
        ("memory.md", True),
        ("./USER.md", True),
        ("memory", True),
        ("memory/2026-11-17.md", True),
        ("Memory/deep/er.md", True),
        (".pal/backups/USER.md/20261117.md", True),
        (".pal/backups/memory/a.md/1.md", True),
        (".pal/backups/SOUL.md/1.md", False),
        (".pal/backups", False),
        ("notes/MEMORY.md", False),
        ("MEMORY.md/inside", False),
        ("memory-palace/a.md", False),
        (".", False),
        ("", False),
    ],
)
def test_memory_is_what_the_owner_has_told_the_agent(path: str, memory: bool) -> None:
    assert is_memory(path) is memory


@pytest.fixture
def both(tmp_path: Path, workspace: Path) -> OverlayBoundary:
    (workspace / "memory").mkdir()
    (workspace / "memory" / "day.md").write_text("figs\n")
    folder = tmp_path / "sandbox"
    (folder / "memory").mkdir(parents=True)
    (folder / "memory" / "stray.md").write_text("nobody reads this\n")
    for name in ("SOUL.md", "USER.md", "plan.md"):
        (folder / name).write_text(f"{name} of the sandbox\n")
    return OverlayBoundary(folder, Boundary(workspace))


def test_lists_and_walks_show_one_workspace(both: OverlayBoundary) -> None:
    listed = [entry.name for entry in both.list_directory().entries]
    assert listed == ["MEMORY.md", "SOUL.md", "USER.md", "memory", "plan.md"]
    assert [entry.name for entry in both.list_directory("memory").entries] == ["day.md"]
    walked = ("MEMORY.md", "SOUL.md", "USER.md", "memory/day.md", "plan.md")
    assert both.walk().files == walked
    assert both.walk("memory").files == ("memory/day.md",)
    shown = {file.name: file.text for file in WorkspaceFiles(both).bootstrap_files("full", private=True)}
    assert shown["SOUL.md"] == "SOUL.md of the sandbox\n"
    assert "harbour" in shown["USER.md"]


@pytest.mark.parametrize("path", ["memory/day.md", "./memory/day.md", "memory/../memory/day.md", "way/day.md"])
def test_every_way_to_a_note_leads_to_the_real_one(both: OverlayBoundary, path: str) -> None:
    (both.root / "way").symlink_to("memory")
    assert both.read_bytes(path) == b"figs\n"
    assert both.read_bytes(f"{both.root}/{path}") == b"figs\n"


def test_a_link_in_memory_leads_to_nothing_else_of_the_agent(both: OverlayBoundary, workspace: Path) -> None:
    (workspace / "memory" / "soul.md").symlink_to("../SOUL.md")
    with pytest.raises(OutsideWorkspace):
        both.read_bytes("memory/soul.md")
    with pytest.raises(OutsideWorkspace):
        both.read_bytes(str(workspace / "SOUL.md"))


def test_a_backup_lies_beside_what_it_is_a_copy_of(both: OverlayBoundary, workspace: Path) -> None:
    kept = keep_backup(both, "USER.md", b"before", 0)
    assert (workspace / kept).read_bytes() == b"before"
    kept = keep_backup(both, "SOUL.md", b"before", 0)
    assert (both.root / kept).read_bytes() == b"before"
