"""Lines appended inside the workspace: whole, in place, and over nothing."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from palinurus.domain.errors import OutsideWorkspace, WorkspaceError
from palinurus.workspace.boundary import MAX_BYTES, Boundary
from palinurus.workspace.write import append_line


@pytest.fixture
def boundary(tmp_path: Path) -> Boundary:
    (tmp_path / "ws").mkdir()
    return Boundary(tmp_path / "ws")


def test_the_first_line_makes_directories_and_heading_and_the_second_follows(boundary: Boundary) -> None:
    assert append_line(boundary, "memory/day.md", "- one", heading="# day") == 3
    assert append_line(boundary, "memory/day.md", "- two", heading="# day") == 4
    assert (boundary.root / "memory/day.md").read_text() == "# day\n\n- one\n- two\n"
    assert (boundary.root / "memory/day.md").stat().st_mode & 0o777 == 0o600


def test_a_line_after_a_torn_one_starts_on_a_line_of_its_own(boundary: Boundary) -> None:
    (boundary.root / "n.md").write_text("# day\n\n- to")
    assert append_line(boundary, "n.md", "- whole") == 4
    assert (boundary.root / "n.md").read_text() == "# day\n\n- to\n- whole\n"


def test_lines_from_many_threads_all_land_and_each_knows_its_number(boundary: Boundary) -> None:
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda n: append_line(boundary, "m/d.md", f"- {n}", heading="# d"), range(60)))
    lines = (boundary.root / "m/d.md").read_text().split("\n")
    assert [lines[number - 1] for number in numbers] == [f"- {n}" for n in range(60)]
    assert len(lines) == 63


@pytest.mark.parametrize("path", ["../x.md", "door/x.md", "link.md", "/tmp/x.md", "m/../../x.md"])
def test_no_line_is_written_outside(boundary: Boundary, path: str) -> None:
    outside = boundary.root.parent / "outside"
    outside.mkdir()
    (boundary.root / "door").symlink_to("../outside")
    (boundary.root / "link.md").symlink_to("../outside/made.md")
    with pytest.raises(OutsideWorkspace):
        append_line(boundary, path, "- x")
    assert list(outside.iterdir()) == []
    assert not (boundary.root.parent / "x.md").exists()


def test_a_fifo_or_a_directory_takes_no_line(boundary: Boundary) -> None:
    os.mkfifo(boundary.root / "pipe.md")
    (boundary.root / "dir.md").mkdir()
    for path in ("pipe.md", "dir.md", "."):
        with pytest.raises(WorkspaceError, match="not a regular file"):
            append_line(boundary, path, "- x")


def test_a_full_file_is_left_as_it_is(boundary: Boundary) -> None:
    (boundary.root / "n.md").write_bytes(b"x" * (MAX_BYTES - 2) + b"\n")
    with pytest.raises(WorkspaceError, match="would grow over"):
        append_line(boundary, "n.md", "- x")
    assert (boundary.root / "n.md").stat().st_size == MAX_BYTES - 1


def test_half_a_line_on_a_full_disk_is_taken_back(boundary: Boundary, monkeypatch: pytest.MonkeyPatch) -> None:
    (boundary.root / "n.md").write_text("- kept\n")
    write = os.write
    monkeypatch.setattr("palinurus.workspace.write.os.write", lambda fd, data: write(fd, data[:3]))
    with pytest.raises(WorkspaceError, match="no space left"):
        append_line(boundary, "n.md", "- lost")
    assert (boundary.root / "n.md").read_text() == "- kept\n"


def test_two_lines_in_one_are_refused(boundary: Boundary) -> None:
    with pytest.raises(WorkspaceError, match="single line"):
        append_line(boundary, "n.md", "- a\n- b")
