"""Which files a prompt begins with, what is private, and when a file is read again."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.workspace.boundary import MAX_BYTES, Boundary, OpenFile
from palinurus.workspace.files import (
    BOOTSTRAP,
    MissingFile,
    TextFile,
    Unreadable,
    WorkspaceFiles,
    is_private,
    strip_front_matter,
)

ALL = [slot.name for slot in BOOTSTRAP]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ALL:
        old(tmp_path / name, f"text of {name}\n")
    return tmp_path


@pytest.fixture
def files(root: Path) -> WorkspaceFiles:
    return WorkspaceFiles(Boundary(root))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths whose content was really read."""
    seen: list[str] = []
    read = OpenFile.read

    def watched(file: OpenFile) -> bytes:
        seen.append(file.path)
        return read(file)

    monkeypatch.setattr(OpenFile, "read", watched)
    return seen


def old(path: Path, text: str, *, mtime: int = 1_700_000_000) -> None:
    path.write_text(text)
    os.utime(path, (mtime, mtime))


def names(files: WorkspaceFiles, mode: str, private: bool, extra: tuple[str, ...] = ()) -> list[str]:
    return [file.name for file in files.bootstrap_files(mode, private, extra)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mode", "private", "shown"),
    [
        ("full", True, "AGENTS SOUL IDENTITY USER TOOLS BOOTSTRAP MEMORY"),
        ("full", False, "AGENTS SOUL IDENTITY TOOLS"),
        ("subagent", True, "AGENTS TOOLS"),
        ("subagent", False, "AGENTS TOOLS"),
        ("heartbeat", True, "AGENTS SOUL IDENTITY USER TOOLS BOOTSTRAP MEMORY HEARTBEAT"),
        ("heartbeat", False, "AGENTS SOUL IDENTITY TOOLS HEARTBEAT"),
    ],
)
def test_each_kind_of_run_sees_its_files_in_order(files: WorkspaceFiles, mode: str, private: bool, shown: str) -> None:
    assert names(files, mode, private) == [f"{name}.md" for name in shown.split()]


def test_extra_files_come_last_in_alphabetical_order_and_none_twice(files: WorkspaceFiles, root: Path) -> None:
    (root / "docs").mkdir()
    old(root / "docs/alpha.md", "a")
    old(root / "beta.md", "b")
    extra = ("beta.md", "docs/alpha.md", "./beta.md", "SOUL.md", "gone.md")
    found = files.bootstrap_files("full", private=True, extra=extra)
    assert [(file.name, file.state) for file in found[7:]] == [
        ("docs/alpha.md", "present"), ("beta.md", "present"), ("gone.md", "missing"),
    ]  # fmt: skip
    assert names(files, "subagent", True, extra) == ["AGENTS.md", "TOOLS.md"]


def test_a_missing_file_is_told_but_memory_and_bootstrap_are_silently_absent(files: WorkspaceFiles, root: Path) -> None:
    for name in ("SOUL.md", "MEMORY.md", "BOOTSTRAP.md"):
        (root / name).unlink()
    states = {file.name: file.state for file in files.bootstrap_files("full", private=True)}
    assert states["SOUL.md"] == "missing"
    assert "MEMORY.md" not in states
    assert "BOOTSTRAP.md" not in states


def test_memory_in_small_letters_counts_where_the_other_is_missing_and_for_its_owner_only(
    files: WorkspaceFiles, root: Path
) -> None:
    old(root / "memory.md", "the older name\n")
    assert "memory.md" not in names(files, "full", True)
    old(root / "MEMORY.md", "")  # as a guarded command finds it where there was none
    assert "memory.md" in names(files, "full", True)
    (root / "MEMORY.md").unlink()
    for _ in range(2):  # read, then kept
        found = {file.name: file.text for file in files.bootstrap_files("full", private=True, extra=("memory.md",))}
        assert found["memory.md"] == "the older name\n"
        assert "MEMORY.md" not in found
    assert names(files, "full", True, ("memory.md",)).count("memory.md") == 1
    assert "memory.md" not in names(files, "full", False, ("memory.md",))


def test_identity_is_shown_with_its_front_matter_and_its_digest_follows_it(files: WorkspaceFiles, root: Path) -> None:
    def identity() -> tuple[str, str]:
        found = next(file for file in files.bootstrap_files("full", private=True) if file.name == "IDENTITY.md")
        return found.text, found.digest

    old(root / "IDENTITY.md", "---\nname: Logic\n---\n")
    text, digest = identity()
    assert text == "---\nname: Logic\n---\n"
    old(root / "IDENTITY.md", "---\nname: Magic\n---\n", mtime=1_700_000_001)
    assert identity() == ("---\nname: Magic\n---\n", identity()[1])
    assert identity()[1] != digest


def test_a_file_over_the_limit_or_out_of_the_workspace_is_unreadable_with_its_reason(
    files: WorkspaceFiles, root: Path
) -> None:
    (root / "SOUL.md").write_bytes(b"x" * (MAX_BYTES + 1))
    (root / "TOOLS.md").unlink()
    (root / "TOOLS.md").symlink_to("/etc/passwd")
    (root / "AGENTS.md").write_bytes(b"\0\1")
    found = {file.name: file for file in files.bootstrap_files("full", private=True, extra=("../x.md",))}
    assert found["SOUL.md"].state == found["TOOLS.md"].state == found["AGENTS.md"].state == "unreadable"
    assert "2,097,153" in found["SOUL.md"].text
    assert "leads out of the workspace" in found["TOOLS.md"].text
    assert "not a text file" in found["AGENTS.md"].text
    assert found["../x.md"].state == "unreadable"


def test_front_matter_is_stripped_blank_files_are_skipped_and_sizes_are_of_the_raw_text(
    files: WorkspaceFiles, root: Path
) -> None:
    old(root / "SOUL.md", "---\ntitle: x\n---\n\nBe kind.\n")
    old(root / "TOOLS.md", "---\ntitle: x\n---\n \n")
    old(root / "USER.md", "\n\t\n")
    found = {file.name: file for file in files.bootstrap_files("full", private=True)}
    assert found["SOUL.md"].text == "Be kind.\n"
    assert found["SOUL.md"].raw_chars == 27
    assert (found["TOOLS.md"].state, found["TOOLS.md"].text) == ("empty", "")
    assert "USER.md" not in found


def test_a_digest_follows_what_is_shown(files: WorkspaceFiles, root: Path) -> None:
    def soul() -> str:
        return next(file.digest for file in files.bootstrap_files("full", private=True) if file.name == "SOUL.md")

    first = soul()
    assert len(first) == 16
    old(root / "SOUL.md", "---\na: b\n---\ntext of SOUL.md\n")
    assert soul() == first
    old(root / "SOUL.md", "another\n")
    second = soul()
    (root / "SOUL.md").unlink()
    third = soul()
    (root / "SOUL.md").mkdir()
    assert len({first, second, third, soul()}) == 4


@pytest.mark.parametrize("name", ["SOUL.md", "extra.md"])
def test_a_link_to_private_memory_shows_nothing_in_a_shared_session(
    files: WorkspaceFiles, root: Path, name: str
) -> None:
    (root / name).unlink(missing_ok=True)
    (root / name).symlink_to("MEMORY.md")
    assert name in names(files, "full", True, (name,))
    assert name not in names(files, "full", False, (name, "memory/2026-11-15.md"))
    assert "memory/2026-11-15.md" not in names(files, "full", False, ("memory/2026-11-15.md",))


def test_an_unchanged_file_is_read_once_and_a_changed_one_again(
    files: WorkspaceFiles, root: Path, reads: list[str]
) -> None:
    for _ in range(3):
        files.bootstrap_files("full", private=True)
        files.read("SOUL.md")
    assert sorted(reads) == sorted(ALL[:-1])
    reads.clear()
    old(root / "SOUL.md", "changed\n", mtime=1_700_000_001)
    assert [file.text for file in files.bootstrap_files("full", private=True) if file.name == "SOUL.md"] == [
        "changed\n"
    ]
    assert reads == ["SOUL.md"]


def test_a_file_of_the_same_size_and_time_but_another_inode_is_read_again(files: WorkspaceFiles, root: Path) -> None:
    old(root / "a.md", "one")
    assert files.load("a.md").text == "one"
    old(root / "b.md", "two")
    (root / "b.md").replace(root / "a.md")
    assert files.load("a.md").text == "two"


def test_a_file_written_a_moment_ago_is_not_kept(files: WorkspaceFiles, root: Path, reads: list[str]) -> None:
    path = root / "hot.md"
    path.write_text("one")
    ahead = time.time_ns() + 3_600_000_000_000  # so that this test does not depend on its own speed
    os.utime(path, ns=(ahead, ahead))
    assert files.load("hot.md").text == "one"
    path.write_text("two")
    os.utime(path, ns=(ahead, ahead))
    assert files.load("hot.md").text == "two"


def test_heartbeat_is_read_anew_each_time(files: WorkspaceFiles, reads: list[str]) -> None:
    for _ in range(3):
        files.bootstrap_files("heartbeat", private=True)
    assert reads.count("HEARTBEAT.md") == 3
    assert reads.count("SOUL.md") == 1


def test_reading_answers_text_missing_or_unreadable(files: WorkspaceFiles, root: Path) -> None:
    (root / "odd.md").write_bytes(b"\xef\xbb\xbfcaf\xe9 \xc3\xa9")
    read = files.read("odd.md")
    assert isinstance(read, TextFile)
    assert read.text == "caf\ufffd é"
    assert files.read("none.md") == MissingFile("none.md")
    assert isinstance(files.read("."), Unreadable)


def test_the_cache_is_bounded_and_serves_many_threads(
    files: WorkspaceFiles, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palinurus.workspace.files.CACHED_BYTES", 50)
    for number in range(20):
        old(root / f"{number}.md", f"text {number:04}")
    wrong: list[str] = []

    def read_all() -> None:
        for _ in range(20):
            wrong.extend(f"{n}" for n in range(20) if files.load(f"{n}.md").text != f"text {n:04}")

    threads = [threading.Thread(target=read_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert files._cached_bytes <= 50
    assert files._cached_bytes == sum(key[2] for key in files._cache)


@pytest.mark.parametrize(
    "path",
    ["MEMORY.md", "memory.md", "./Memory.MD", "USER.md", "user.md", "memory", "memory/", "memory/2026-11-15.md",
     "MEMORY/sub/x.md", ".//memory/x", ".git/logs/HEAD"],
)  # fmt: skip
def test_private_paths_are_known_whatever_their_case(path: str) -> None:
    assert is_private(path)


@pytest.mark.parametrize("path", ["SOUL.md", "docs/USER.md", "memory-of-trees.md", "", ".", "notes/memory/x.md"])
def test_other_paths_are_not_private(path: str) -> None:
    assert not is_private(path)


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("---\na: 1\n---\nbody", "body"),
        ("---\r\na: 1\r\n---\r\n\r\nbody", "body"),
        ("---\n---\nbody", "body"),
        ("---\na: 1\n...\nbody\n---\n", "body\n---\n"),
        ("---\nnever closed\nbody", "---\nnever closed\nbody"),
        ("text\n---\na: 1\n---\n", "text\n---\na: 1\n---\n"),
        ("----\na\n----\n", "----\na\n----\n"),
        ("", ""),
    ],
)
def test_front_matter_is_only_a_closed_block_at_the_very_beginning(text: str, body: str) -> None:
    assert strip_front_matter(text) == body


@given(st.text(alphabet="-.a\n\r ", max_size=40))
def test_stripping_only_ever_removes_a_beginning(text: str) -> None:
    assert text.endswith(strip_front_matter(text))
