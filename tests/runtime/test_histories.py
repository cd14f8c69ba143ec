"""Runs that changed files end with a commit, which no run waits for."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from palinurus.config.home import find_home
from palinurus.domain.envelope import Inbound
from palinurus.operations.runs import converse
from palinurus.operations.table import LocalCaller
from palinurus.operations.workspace import restore_file, set_file
from palinurus.runtime.runtime import Runtime
from palinurus.workspace.history import WorkspaceHistory
from palinurus.workspace.seed import seed_workspace
from support.wire import Calls, Says, WireServer


@asynccontextmanager
async def living(tmp_path: Path, *, git: bool = True, **defaults: Any) -> AsyncIterator[Runtime]:
    root = tmp_path / "home"
    root.mkdir(exist_ok=True)
    if git and not seed_workspace(root / "workspace").git_initialised and not (root / "workspace" / ".git").exists():
        pytest.skip("git is not installed")
    if not git:
        seed_workspace(root / "workspace", git=False)
    config = {"agents": {"defaults": {"model": "embedded/scout", **defaults}}}
    (root / "palinurus.json").write_text(json.dumps(config))
    runtime = Runtime(find_home({"PALINURUS_HOME": str(root), "HOME": str(tmp_path)}), {})
    try:
        yield runtime
    finally:
        await asyncio.wait_for(runtime.close(), 60)


async def said(runtime: Runtime, text: str, key: str) -> str:
    result = await converse(LocalCaller(runtime.services), Inbound(text, key), lambda _: None)
    return result.run_id


async def test_what_a_run_wrote_is_in_a_commit_that_names_the_run(tmp_path: Path) -> None:
    async with living(tmp_path) as runtime:
        run = await said(runtime, "remember that the boat is called Aster", "k1")
    (commit,) = WorkspaceHistory(tmp_path / "home" / "workspace").log().commits
    assert commit.author == "main"
    assert commit.body == f"run {run} in agent:main:main"
    assert any(file.path.startswith("memory/") or file.path == "MEMORY.md" for file in commit.files)


async def test_several_runs_in_a_row_are_one_commit_and_words_alone_none(tmp_path: Path) -> None:
    async with living(tmp_path) as runtime:
        for number in range(3):
            await said(runtime, f"remember that the number {number} is lucky", f"k{number}")
    (commit,) = WorkspaceHistory(tmp_path / "home" / "workspace").log().commits
    assert len(commit.body.splitlines()) == 3
    async with living(tmp_path) as runtime:
        await said(runtime, "hello", "k9")
    assert len(WorkspaceHistory(tmp_path / "home" / "workspace").log().commits) == 1


async def test_a_moment_of_quiet_is_enough(tmp_path: Path) -> None:
    async with living(tmp_path) as runtime:
        runtime.services.histories._quiet = 0.01
        await said(runtime, "remember that the boat is called Aster", "k1")
        async with asyncio.timeout(60):
            while runtime.services.histories._tasks:
                await asyncio.wait(list(runtime.services.histories._tasks.values()))
        assert len(WorkspaceHistory(tmp_path / "home" / "workspace").log().commits) == 1


async def test_nothing_is_committed_when_it_is_switched_off_or_there_is_no_repository(tmp_path: Path) -> None:
    async with living(tmp_path, workspaceHistory="off") as runtime:
        await said(runtime, "remember that the boat is called Aster", "k1")
    assert WorkspaceHistory(tmp_path / "home" / "workspace").log().commits == ()
    other = tmp_path / "other"
    other.mkdir()
    async with living(other, git=False) as runtime:
        await said(runtime, "remember that the boat is called Aster", "k1")
    assert not (other / "home" / "workspace" / ".git").exists()


async def test_a_commit_that_fails_costs_a_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with living(tmp_path) as runtime:
        (tmp_path / "home" / "workspace" / ".git" / "index.lock").touch()
        await said(runtime, "remember that the boat is called Aster", "k1")
    assert "was not kept" in caplog.text


async def test_what_the_owner_edits_by_a_door_is_kept_as_theirs(tmp_path: Path) -> None:
    async with living(tmp_path) as runtime:
        await set_file(runtime.services, name="SOUL.md", content="Calm.\n")
    (commit,) = WorkspaceHistory(tmp_path / "home" / "workspace").log("SOUL.md").commits
    assert (commit.author, commit.body) == ("owner", "SOUL.md edited")
    async with living(tmp_path) as runtime:
        await set_file(runtime.services, name="SOUL.md", content="Spoilt.\n")
        await asyncio.to_thread(WorkspaceHistory(tmp_path / "home" / "workspace").commit)
        await restore_file(runtime.services, path="SOUL.md", commit=commit.id)
    newest = WorkspaceHistory(tmp_path / "home" / "workspace").log("SOUL.md").commits[0]
    assert newest.body == f"SOUL.md edited\nSOUL.md as it was at {commit.id[:10]}"


def git(root: Path, *arguments: str) -> str:
    """Git as the owner uses it, with their own name."""
    named = ["-c", "user.name=Owner", "-c", "user.email=owner@localhost"]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(root.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *named, *arguments], cwd=root, env=env, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def owned(tmp_path: Path) -> Path:
    """A workspace in a repository of its owner's, who is in the middle of some work."""
    root = tmp_path / "home" / "workspace"
    root.mkdir(parents=True)
    git(root, "init", "--quiet", "--initial-branch=main")
    (root / "thesis.tex").write_text("one\n")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message=Mine")
    (root / "staged.tex").write_text("staged\n")
    git(root, "add", "staged.tex")
    (root / "thesis.tex").write_text("one and a half\n")
    (root / "secrets.txt").write_text("hunter2\n")
    return root


async def test_in_a_repository_of_the_owners_nothing_is_committed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = owned(tmp_path)
    index = (root / ".git" / "index").read_bytes()
    with caplog.at_level("INFO"):
        async with living(tmp_path) as runtime:
            await said(runtime, "remember that the boat is called Aster", "k1")
    assert git(root, "log", "--format=%s") == "Mine\n"
    assert (root / ".git" / "index").read_bytes() == index
    assert "not one that Palinurus made" in caplog.text


async def test_where_the_owner_allows_it_only_what_the_tools_wrote_is_committed(tmp_path: Path) -> None:
    root = owned(tmp_path)
    git(root, "config", "palinurus.history", "true")
    seed_workspace(root, git=False)
    (root / "SOUL.md").write_text("the owner's own\n")
    async with living(tmp_path) as runtime:
        await said(runtime, "remember that the boat is called Aster", "k1")
    assert git(root, "log", "--format=%an").splitlines() == ["main", "Owner"]
    taken = git(root, "show", "--format=", "--name-only").split()
    assert any(path.startswith("memory/") for path in taken)
    assert not {"staged.tex", "thesis.tex", "secrets.txt", "SOUL.md"} & set(taken)
    left = git(root, "status", "--porcelain").splitlines()
    assert {"A  staged.tex", " M thesis.tex", "?? secrets.txt", "?? SOUL.md"} <= set(left)
    assert not any("memory/" in line for line in left)
    assert git(root, "fsck", "--strict") == ""


async def test_what_the_owner_does_by_hand_in_a_repository_of_ours_stays_theirs(tmp_path: Path) -> None:
    root = tmp_path / "home" / "workspace"
    async with living(tmp_path) as runtime:
        await said(runtime, "remember that the boat is called Aster", "k1")
    (root / "plan.md").write_text("staged\n")
    git(root, "add", "plan.md")
    (root / "SOUL.md").write_text("edited by hand\n")
    (root / "secrets.txt").write_text("hunter2\n")
    async with living(tmp_path) as runtime:
        await said(runtime, "remember that the bicycle is green", "k2")
    assert set(git(root, "status", "--porcelain").splitlines()) == {"A  plan.md", " M SOUL.md", "?? secrets.txt"}
    (newest, first) = WorkspaceHistory(root).log().commits
    assert all(file.path.startswith("memory/") for file in newest.files)
    assert {"SOUL.md", "AGENTS.md"} <= {file.path for file in first.files}  # as we made them


async def test_what_looks_like_a_secret_is_left_out_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = "sk-" + "abcdefghij0123456789" * 2
    files = {"secrets.txt": "hunter2", "notes/api-key.md": "x", "plan.md": "paint it"}
    calls = [Calls(("write", {"path": path, "content": text})) for path, text in files.items()]
    edit = Calls(("edit", {"path": "config.py", "old": "red", "new": "green"}))
    async with WireServer(*calls, edit, Says("done")) as server:
        provider = {"baseUrl": server.base_url, "models": [{"id": "test", "contextWindow": 32000}]}
        root = tmp_path / "home" / "workspace"
        async with living(tmp_path, model="mine/test") as runtime:
            (root / "config.py").write_text(f"KEY, COLOUR = '{key}', 'red'\n")
            config = json.loads((tmp_path / "home" / "palinurus.json").read_text())
            config["models"] = {"providers": {"mine": provider}}
            (tmp_path / "home" / "palinurus.json").write_text(json.dumps(config))
            await said(runtime, "write them", "k1")
    taken = git(root, "log", "--format=", "--name-only").split()
    assert "plan.md" in taken
    assert not {"secrets.txt", "notes/api-key.md", "config.py"} & set(taken)
    assert "green" in (root / "config.py").read_text()
    for line in ("secrets.txt, because its name looks like a secret", "config.py, because something in it looks like"):
        assert line in caplog.text
    assert key not in caplog.text


async def test_a_repository_that_an_older_version_made_is_still_ours(tmp_path: Path) -> None:
    root = tmp_path / "home" / "workspace"
    async with living(tmp_path) as runtime:
        await said(runtime, "remember that the boat is called Aster", "k1")
    git(root, "config", "--unset", "palinurus.history")
    async with living(tmp_path) as runtime:
        await said(runtime, "remember that the bicycle is green", "k2")
    assert len(WorkspaceHistory(root).log().commits) == 2
