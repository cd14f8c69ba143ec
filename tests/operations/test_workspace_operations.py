"""The workspace through its operations: looked at inside its walls, and an old version put back."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from palinurus.config.home import Home
from palinurus.domain.errors import BadRequest, NotFound, OutsideWorkspace, PalinurusError, Stale, WorkspaceError
from palinurus.operations.workspace import commit_files, list_folder, read_text, restore_file, show_diff, show_log
from palinurus.testing.harness import Harness
from palinurus.workspace.seed import _git_init

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def kept(workspace: Path) -> Path:
    """The workspace as a repository that has no commit yet."""
    if not _git_init(workspace):
        pytest.skip("git is not installed")
    return workspace


async def test_a_folder_is_listed_with_directories_first_and_nothing_hidden(pal: Harness, home: Home) -> None:
    root = pal.files.boundary.root
    (root / "memory").mkdir()
    (root / "memory" / "2026-11-16.md").write_text("- one\n")
    (root / ".secret").write_text("x")
    (root / "out").symlink_to("/etc/passwd")
    services = pal.services(home)
    listed = await list_folder(services)
    assert [entry.name for entry in listed.entries][:2] == ["memory", "AGENTS.md"]
    assert {entry.name: entry.size for entry in listed.entries}["SOUL.md"] == len("# Soul\nCurious and calm.\n")
    assert ".secret" not in {entry.name for entry in listed.entries}
    assert {entry.name: entry.size for entry in listed.entries}["out"] == 0
    below = await list_folder(services, path="memory")
    assert [(entry.path, entry.is_directory) for entry in below.entries] == [("memory/2026-11-16.md", False)]
    with pytest.raises(NotFound):
        await list_folder(services, path="nowhere")


async def test_a_text_is_read_with_its_hash_and_what_is_no_text_is_named(pal: Harness, home: Home) -> None:
    root, services = pal.files.boundary.root, pal.services(home)
    read = await read_text(services, path="SOUL.md")
    assert read.text == (root / "SOUL.md").read_text()
    assert read.hash == hashlib.sha256((root / "SOUL.md").read_bytes()).hexdigest()
    (root / "picture.png").write_bytes(b"\x89PNG\0\0")
    assert (await read_text(services, path="picture.png")).binary
    (root / "long.txt").write_text("a" * (1024 * 1024 + 5))
    long = await read_text(services, path="long.txt")
    assert (long.truncated, len(long.text), long.size) == (True, 1024 * 1024, 1024 * 1024 + 5)


@pytest.mark.parametrize(
    "path",
    ["../x", "/etc/passwd", "memory/../../x", ".git/config", ".pal/backups", "a\0b", "out", ".GIT/config", "\ud800"],
)
async def test_nothing_outside_is_reached_by_any_operation(pal: Harness, home: Home, path: str, kept: Path) -> None:
    (kept / "out").symlink_to("/etc/passwd")
    services = pal.services(home)
    for asked in (
        read_text(services, path=path),
        restore_file(services, path=path, commit="abcdef12"),
    ):
        with pytest.raises(PalinurusError):
            await asked
    if path != "out":
        for looked in (
            list_folder(services, path=path),
            show_log(services, path=path),
            show_diff(services, path=path),
        ):
            with pytest.raises((OutsideWorkspace, BadRequest)):
                await looked


async def test_without_a_history_the_log_says_why(pal: Harness, home: Home) -> None:
    log = await show_log(pal.services(home))
    assert (log.git, log.commits) == (False, ())
    assert log.why
    with pytest.raises(NotFound, match="no history"):
        await show_diff(pal.services(home))


async def test_a_file_is_put_back_and_what_it_held_is_kept(pal: Harness, home: Home, kept: Path) -> None:
    services = pal.services(home)
    before = (kept / "SOUL.md").read_text()
    first = (await commit_files(services, message="As it was")).commit
    assert first is not None
    (kept / "SOUL.md").write_text("Spoilt.\n")
    log = await show_log(services)
    assert (log.git, log.changed, [commit.subject for commit in log.commits]) == (True, 1, ["As it was"])
    diff = await show_diff(services, commit=first.id, path="SOUL.md", now=True)
    assert "+Spoilt." in diff.text

    wrong = hashlib.sha256(b"something else").hexdigest()
    with pytest.raises(Stale):
        await restore_file(services, path="SOUL.md", commit=first.id, expected_hash=wrong)
    assert (kept / "SOUL.md").read_text() == "Spoilt.\n"

    done = await restore_file(services, path="SOUL.md", commit=first.id)
    assert (kept / "SOUL.md").read_text() == before
    assert done.changed
    assert (kept / done.backup).read_text() == "Spoilt.\n"
    again = await restore_file(services, path="SOUL.md", commit=first.id, expected_hash=wrong)
    assert (again.changed, again.backup) == (False, "")


async def test_a_file_that_was_deleted_comes_back_as_private_as_it_should_be(
    pal: Harness, home: Home, kept: Path
) -> None:
    services = pal.services(home)
    first = (await commit_files(services)).commit
    assert first is not None
    (kept / "MEMORY.md").unlink()
    await restore_file(services, path="MEMORY.md", commit=first.id[:10])
    assert (kept / "MEMORY.md").read_text() == "# Memory\nThe boat is called Aster.\n"
    assert (kept / "MEMORY.md").stat().st_mode & 0o777 == 0o600


async def test_nothing_is_put_back_through_a_link_into_what_is_ours(pal: Harness, home: Home, kept: Path) -> None:
    services = pal.services(home)
    (kept / "hook.md").write_text("#!/bin/sh\n")
    first = (await commit_files(services)).commit
    assert first is not None
    (kept / "hook.md").unlink()
    (kept / "hook.md").symlink_to(".git/hooks/pre-commit")
    with pytest.raises(WorkspaceError):
        await restore_file(services, path="hook.md", commit=first.id)
    assert not (kept / ".git" / "hooks" / "pre-commit").exists()
