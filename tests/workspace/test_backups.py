"""Copies of what a person wrote, kept before it is changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palinurus.domain.errors import PalinurusError
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.files import is_private
from palinurus.workspace.write import MAX_COPIES, is_owned, keep_backup, loses, superfluous

NOW = int(datetime(2026, 11, 15, 9, 0, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture
def boundary(tmp_path: Path) -> Boundary:
    (tmp_path / "ws").mkdir()
    return Boundary(tmp_path / "ws")


def test_a_backup_is_a_private_copy_that_git_ignores(boundary: Boundary) -> None:
    place = keep_backup(boundary, "memory/2026-11-01.md", b"old", NOW)
    assert place == ".pal/backups/memory/2026-11-01.md/20261115-090000-000.md"
    assert (boundary.root / place).read_bytes() == b"old"
    assert (boundary.root / place).stat().st_mode & 0o777 == 0o600
    assert (boundary.root / ".pal/.gitignore").read_text() == "*\n"
    assert is_private(place)
    assert boundary.walk().files == ()


def test_two_in_one_millisecond_are_both_kept(boundary: Boundary) -> None:
    places = [keep_backup(boundary, "SOUL.md", b"%d" % n, NOW) for n in range(3)]
    assert [(boundary.root / place).read_bytes() for place in places] == [b"0", b"1", b"2"]


def test_the_last_twenty_stay_and_the_first_of_the_day(boundary: Boundary) -> None:
    for number in range(MAX_COPIES + 15):
        keep_backup(boundary, "SOUL.md", b"%d" % number, NOW + number * 1000)
    kept = sorted((boundary.root / ".pal/backups/SOUL.md").iterdir())
    assert [int(file.read_bytes()) for file in kept] == [0, *range(15, MAX_COPIES + 15)]


def test_copies_of_one_file_never_grow_beyond_a_bound() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    names: list[str] = []
    for hour in range(0, 24 * 120, 3):
        names.append(f"{start + timedelta(hours=hour):%Y%m%d-%H%M%S}-000.md")
        names = [name for name in names if name not in superfluous(names)]
    assert len(names) <= 50


@pytest.mark.parametrize("target", ["public", "../outside", "missing"])
def test_a_link_in_place_of_the_backups_is_not_followed(boundary: Boundary, target: str) -> None:
    (boundary.root / "public").mkdir()
    (boundary.root.parent / "outside").mkdir()
    (boundary.root / ".pal").symlink_to(target)
    with pytest.raises(PalinurusError):
        keep_backup(boundary, "MEMORY.md", b"private", NOW)
    assert not list((boundary.root / "public").iterdir())
    assert not list((boundary.root.parent / "outside").iterdir())
    assert not (boundary.root / "missing").exists()


@pytest.mark.parametrize(
    ("path", "owned"),
    [("SOUL.md", True), ("notes.MD", True), ("memory/a/b.md", True), ("skills/pdf/SKILL.md", True),
     ("bank/entities/Anna.md", True), ("docs/x.md", False), ("memory/x.json", False), ("app.py", False)],
)  # fmt: skip
def test_markdown_in_the_root_in_memory_the_bank_and_skills_is_somebodys(path: str, owned: bool) -> None:
    assert is_owned(path) == owned


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [(b"a", b"a\nb", False), (b"a\nb", b"a", True), (b"a", None, True), (b" \n", b"", False), (b"a", b"b", True)],
)
def test_only_what_takes_something_away_needs_a_backup(before: bytes, after: bytes | None, lost: bool) -> None:
    assert loses(before, after) == lost
