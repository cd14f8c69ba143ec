"""What a scan finds, what it leaves out and says so, and what it never opens."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from palinurus.memory.answer import SkippedFile
from palinurus.memory.document import MemoryDocument
from palinurus.memory.scan import MAX_BYTES, Scanner
from palinurus.memory.settings import Collection


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    (root / "memory" / "2026").mkdir(parents=True)
    for name in ("MEMORY.md", "USER.md", "SOUL.md", "memory/a.md", "memory/2026/b.md", "memory/c.txt"):
        (root / name).write_text(f"- {name}\n")
    return root


def scanner(root: Path, *collections: Collection, sources: tuple[str, ...] = ("memory",)) -> Scanner:
    return Scanner(root, collections, sources=sources)


def paths(of: Scanner) -> set[str]:
    return set(of.scan().stamps)


def skipped(of: Scanner) -> dict[str, str]:
    return {each.path: each.reason for each in of.scan().skipped}


def text(of: Scanner, path: str) -> str:
    found = of.read(path)
    assert isinstance(found, MemoryDocument)
    return found.text


def test_memory_files_the_user_s_and_the_folder_are_found_and_nothing_else(root: Path) -> None:
    (root / "memory" / ".hidden").mkdir()
    (root / "memory" / ".hidden" / "x.md").write_text("x")
    (root / "memory" / ".draft.md").write_text("x")
    assert paths(scanner(root)) == {"MEMORY.md", "USER.md", "memory/a.md", "memory/2026/b.md"}


def test_a_lower_case_memory_file_is_another_file_where_it_is_one(root: Path) -> None:
    (root / "memory.md").write_text("- lower\n")
    (root / "MEMORY.md").unlink()
    assert "memory.md" in paths(scanner(root))
    os.link(root / "memory.md", root / "MEMORY.md")  # as a file system without case would show it
    assert len({"memory.md", "MEMORY.md"} & paths(scanner(root))) == 1


def test_without_the_source_memory_only_collections_are_scanned(root: Path, tmp_path: Path) -> None:
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "x.md").write_text("x")
    found = scanner(root, Collection("books", tmp_path / "books"), sources=())
    assert paths(found) == {"books/x.md"}
    assert found.ref_of("books/x.md").source == "books"


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ("**/*.md", {"a.md", "in/b.md", "in/deep/c.md"}),
        ("*.md", {"a.md"}),
        ("in/**/*.md", {"in/b.md", "in/deep/c.md"}),
        ("**/c.*", {"in/deep/c.md"}),
        ("{a,in/b}.md", {"a.md", "in/b.md"}),
        ("?.md", {"a.md"}),
        ("{broken", set()),
        ("**/*", {"a.md", "in/b.md", "in/deep/c.md"}),  # markdown only, whatever the mask says
    ],
)
def test_a_mask_chooses_among_the_markdown(root: Path, tmp_path: Path, mask: str, expected: set[str]) -> None:
    books = tmp_path / "books"
    (books / "in" / "deep").mkdir(parents=True)
    for name in ("a.md", "in/b.md", "in/deep/c.md", "d.txt"):
        (books / name).write_text("x")
    found = paths(scanner(root, Collection("books", books, mask), sources=()))
    assert found == {f"books/{name}" for name in expected}


def test_a_collection_cannot_pass_for_the_agent_s_own_memory(root: Path, tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text("x")
    taken = [Collection(name, tmp_path, "*.md") for name in ("memory", "sessions", "MEMORY", "")]
    assert paths(scanner(root, *taken, sources=())) == set()


def test_links_are_never_followed_and_told(root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("secret")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "s.md").write_text("secret")
    (root / "memory" / "link.md").symlink_to(secret)
    (root / "memory" / "folder").symlink_to(tmp_path / "outside")
    (root / "USER.md").unlink()
    (root / "USER.md").symlink_to(secret)
    found = scanner(root)
    assert paths(found) == {"MEMORY.md", "memory/a.md", "memory/2026/b.md"}
    assert set(skipped(found)) == {"memory/link.md", "memory/folder/", "USER.md"}
    assert isinstance(found.read("memory/link.md"), SkippedFile)


def test_a_memory_folder_that_is_a_link_is_not_entered_and_told(root: Path, tmp_path: Path) -> None:
    (root / "memory").rename(tmp_path / "elsewhere")
    (root / "memory").symlink_to(tmp_path / "elsewhere")
    assert paths(scanner(root)) == {"MEMORY.md", "USER.md"}
    assert "link" in skipped(scanner(root))["memory/"]


def test_a_link_inside_the_workspace_that_was_put_in_a_file_s_place_is_not_read(root: Path) -> None:
    (root / "memory" / "a.md").unlink()
    (root / "memory" / "a.md").symlink_to(root / "SOUL.md")
    assert scanner(root).read("memory/a.md") == SkippedFile("memory/a.md", "it is a link")


def test_a_fifo_is_not_opened_and_told(root: Path) -> None:
    os.mkfifo(root / "memory" / "pipe.md")
    found = scanner(root)
    assert "memory/pipe.md" not in paths(found)
    assert skipped(found) == {"memory/pipe.md": "it is not a regular file"}
    assert isinstance(found.read("memory/pipe.md"), SkippedFile)


def test_a_huge_file_is_told_and_not_read(root: Path) -> None:
    with (root / "memory" / "big.md").open("wb") as file:
        file.truncate(3 * 1024**3)
    found = scanner(root)
    assert "memory/big.md" not in paths(found)
    assert f"{MAX_BYTES:,}" in skipped(found)["memory/big.md"]
    assert isinstance(found.read("memory/big.md"), SkippedFile)


def test_stray_bytes_cost_a_character_and_not_the_file(root: Path) -> None:
    file = root / "memory" / "a.md"
    file.write_bytes(b"caf\xe9 \0 anchor")
    assert text(scanner(root), "memory/a.md") == "caf\ufffd \ufffd anchor"
    file.write_bytes("\ufeffwith a mark".encode())
    assert text(scanner(root), "memory/a.md") == "with a mark"
    file.write_bytes("from a notepad 世界".encode("utf-16"))
    assert text(scanner(root), "memory/a.md") == "from a notepad 世界"


def test_a_name_that_is_not_utf_8_is_told(root: Path) -> None:
    (root / "memory" / os.fsdecode(b"caf\xe9.md")).write_text("x")
    found = scanner(root)
    assert not any("caf" in path for path in paths(found))
    assert skipped(found) == {"memory/caf?.md": "its name is not UTF-8"}


def test_a_workspace_that_is_not_there_has_nothing_and_says_so(tmp_path: Path) -> None:
    found = scanner(tmp_path / "nowhere", Collection("books", tmp_path / "none"))
    assert found.scan().stamps == {}
    assert len(skipped(found)) == 2


def test_a_file_that_has_gone_since_is_none(root: Path) -> None:
    assert scanner(root).read("memory/never.md") is None


def test_a_folder_that_is_called_like_a_file_is_neither(root: Path) -> None:
    (root / "memory" / "odd.md").mkdir()
    found = scanner(root)
    assert "memory/odd.md" not in paths(found)
    assert skipped(found) == {}


def test_a_stamp_changes_with_every_write_even_if_the_time_is_set_back(root: Path) -> None:
    file = root / "memory" / "a.md"
    before = scanner(root).scan().stamps["memory/a.md"]
    seen = file.stat()
    while file.stat().st_ctime_ns == seen.st_ctime_ns:  # until the file system's clock has ticked
        file.write_text(file.read_text().replace("a", "b"))
        os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    after = scanner(root).scan().stamps["memory/a.md"]
    assert after[:3] == before[:3]
    assert after != before


def test_a_file_that_was_written_a_moment_ago_gets_a_stamp_that_is_looked_at_again(root: Path) -> None:
    file = root / "memory" / "a.md"
    written = file.stat().st_ctime_ns
    for later, settled in ((1_000_000, False), (10_000_000_000, True)):
        found = Scanner(root, sources=("memory",), now_ns=lambda later=later: written + later)
        document = found.read("memory/a.md")
        assert isinstance(document, MemoryDocument)
        assert (document.stamp[2:] == found.scan().stamps["memory/a.md"][2:]) is settled
        assert document.stamp[0] == file.stat().st_size


def test_files_that_come_go_and_move_are_seen_by_a_scanner_that_knows_the_folders(root: Path) -> None:
    found = Scanner(root, sources=("memory",), now_ns=lambda: 2**62)  # every folder has settled long ago
    for number in range(50):
        before = paths(found)
        assert paths(found) == before
        (root / "memory" / f"{number}.md").write_text("x")
        (root / "memory" / "2026" / f"{number}.md").write_text("x")
        if number % 3 == 1:
            (root / "memory" / f"{number - 1}.md").unlink()
            (root / "memory" / "2026" / f"{number}.md").rename(root / "memory" / "moved.md")
        on_disk = {str(file.relative_to(root)) for file in (root / "memory").rglob("*.md")}
        if _ticked(root):
            assert paths(found) == on_disk | {"MEMORY.md", "USER.md"}


def _ticked(root: Path) -> bool:
    """Whether the file system's clock has moved on since the folders were changed."""
    changed = {folder.stat().st_ctime_ns for folder in (root / "memory", root / "memory" / "2026")}
    while True:
        (root / "tick").write_text("x")
        if (root / "tick").stat().st_ctime_ns > max(changed):
            return True
