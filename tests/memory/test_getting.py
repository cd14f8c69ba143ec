"""Lines of memory by path: what can be read, what is refused, and in which words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cited_lines import Talks, lines_of
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.errors import OutsideWorkspace, WorkspaceError
from palinurus.memory.get import LineRange, MemoryText
from palinurus.memory.settings import Collection


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    (root / "memory" / "deep").mkdir(parents=True)
    (root / "MEMORY.md").write_text("one\ntwo\nthree\n")
    (root / "USER.md").write_text("Sam\n")
    (root / "SOUL.md").write_text("kind\n")
    (root / "memory" / "deep" / "a.md").write_text("".join(f"line {n}\n" for n in range(1, 301)))
    (root / "memory" / "b.txt").write_text("no markdown")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "tide.md").write_text("high water\n")
    (tmp_path / "secret.md").write_text("secret\n")
    return root


def read(root: Path, path: str, start: int | None = None, lines: int | None = None) -> MemoryText:
    collections = (Collection("notes", root.parent / "notes"), Collection("gone", root.parent / "gone"))
    said = {"sessions/abc.md": "# 2026-11-15\nUser: hello\nAssistant: hi"}
    return lines_of(root, LineRange(path, start, lines), Talks(collections, said))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("MEMORY.md", "one\ntwo\nthree"),
        ("./MEMORY.md", "one\ntwo\nthree"),
        ("USER.md", "Sam"),
        ("notes/tide.md", "high water"),
        ("MEMORY.md#L2", "two"),
        ("MEMORY.md#L2-L3", "two\nthree"),
        ("MEMORY.md#L2-3", "two\nthree"),
        ("sessions/abc.md#L2", "User: hello"),
        ("sessions/gone.md", ""),
    ],
)
def test_memory_is_read_as_search_cites_it(root: Path, path: str, text: str) -> None:
    assert read(root, path).text == text


@pytest.mark.parametrize(
    ("start", "lines", "text", "next_from", "truncated"),
    [
        (2, 1, "two", 3, False),
        (3, None, "three", 0, False),
        (3, 9, "three", 0, False),
        (4, None, "", 0, False),
        (900, 2, "", 0, False),
    ],
)
def test_a_piece_says_where_to_go_on(
    root: Path, start: int, lines: int | None, text: str, next_from: int, truncated: bool
) -> None:
    found = read(root, "MEMORY.md", start, lines)
    assert (found.text, found.next_from, found.truncated) == (text, next_from, truncated)


def test_a_long_file_comes_in_pieces_without_a_gap(root: Path) -> None:
    lines: list[str] = []
    start = 1
    while start:
        found = read(root, "memory/deep/a.md", start)
        assert found.truncated == bool(found.next_from)
        lines += found.text.split("\n")
        start = found.next_from
    assert lines == [f"line {n}" for n in range(1, 301)]


def test_an_endless_line_is_cut_and_said_to_be(root: Path) -> None:
    (root / "memory" / "long.md").write_text("x" * 50_000 + "\nshort\n")
    found = read(root, "memory/long.md")
    assert (len(found.text), found.truncated, found.next_from) == (12_000, True, 2)


def test_a_file_that_is_not_there_is_empty(root: Path) -> None:
    assert read(root, "memory/2030-01-01.md") == MemoryText("memory/2030-01-01.md", "")
    assert read(root, "memory.md").text == ""
    assert read(root, "notes/none/none.md").text == ""


@pytest.mark.parametrize(
    "path",
    [
        "../secret.md",
        "memory/../../secret.md",
        "memory/../MEMORY.md",
        "notes/../secret.md",
        "/etc/motd.md",
        "~/notes.md",
        "SOUL.md",
        "skills/x/SKILL.md",
        "other/tide.md",
        "notes.md",
        ".pal/backups/MEMORY.md",
        "..",
        "memory/..",
    ],
)
def test_what_is_not_memory_is_refused(root: Path, path: str) -> None:
    with pytest.raises(WorkspaceError) as refused:
        read(root, path)
    assert refused.value.hint
    assert "secret\n" not in str(refused.value)


def test_absolute_paths_are_refused_even_when_they_lead_inside(root: Path) -> None:
    with pytest.raises(OutsideWorkspace):
        read(root, str(root / "MEMORY.md"))


@pytest.mark.parametrize("path", ["memory/b.txt", "memory", "memory/", "notes", "memory/x.md/y"])
def test_only_markdown_files_are_read(root: Path, path: str) -> None:
    with pytest.raises(WorkspaceError):
        read(root, path)


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("memory/out.md", "../../secret.md"),
        ("memory/in.md", "../MEMORY.md"),
        ("memory/soul.md", "../SOUL.md"),
        ("memory/abs.md", "/etc/hostname"),
        ("memory/self.md", "self.md"),
    ],
)
def test_a_link_is_refused_wherever_it_leads(root: Path, link: str, target: str) -> None:
    (root / link).symlink_to(target)
    with pytest.raises(WorkspaceError):
        read(root, link)


def test_a_folder_that_is_a_link_is_refused(root: Path) -> None:
    (root / "memory" / "else").symlink_to(root / "memory" / "deep")
    with pytest.raises(WorkspaceError, match="link"):
        read(root, "memory/else/a.md")


def test_a_fifo_neither_hangs_nor_is_read(root: Path) -> None:
    os.mkfifo(root / "memory" / "pipe.md")
    with pytest.raises(WorkspaceError, match="not a regular file"):
        read(root, "memory/pipe.md")


def test_a_sparse_giant_is_refused_before_a_byte_is_read(root: Path) -> None:
    with (root / "memory" / "giant.md").open("wb") as file:
        file.truncate(3 * 1024**3)
    with pytest.raises(WorkspaceError, match="bytes"):
        read(root, "memory/giant.md")


def test_a_folder_called_like_markdown_is_no_file(root: Path) -> None:
    (root / "memory" / "folder.md").mkdir()
    with pytest.raises(WorkspaceError, match="directory"):
        read(root, "memory/folder.md")


def test_a_collection_whose_folder_is_gone_says_so(root: Path) -> None:
    with pytest.raises(WorkspaceError, match="collection gone is not there"):
        read(root, "gone/a.md")


def test_bytes_of_another_encoding_cost_a_character_and_not_the_file(root: Path) -> None:
    (root / "memory" / "latin.md").write_bytes(b"caf\xe9 \x00 tea\n")
    assert read(root, "memory/latin.md").text == "caf\ufffd \ufffd tea"


@given(path=st.text(max_size=80), start=st.none() | st.integers(1, 10**9), lines=st.none() | st.integers(1, 10**9))
def test_no_path_gets_out(
    tmp_path_factory: pytest.TempPathFactory, path: str, start: int | None, lines: int | None
) -> None:
    root = tmp_path_factory.getbasetemp() / "walls"
    (root / "ws" / "memory").mkdir(parents=True, exist_ok=True)
    (root / "secret.md").write_text("secret")
    for asked in (path, f"memory/{path}.md", f"notes/{path}.md"):
        try:
            found = lines_of(root / "ws", LineRange(asked, start, lines))
        except WorkspaceError:
            continue
        assert found.text == ""
