"""Runs that changed files end with a commit, which no run waits for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from palinurus.config.home import find_home
from palinurus.domain.envelope import Inbound
from palinurus.operations.agent_files import SET, SetFile
from palinurus.operations.converse import converse
from palinurus.operations.table import LocalCaller
from palinurus.operations.workspace import RESTORE, RestoreFile
from palinurus.wiring.runtime import Runtime
from palinurus.workspace.history import History
from palinurus.workspace.seed import seed_workspace


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
        await asyncio.wait_for(runtime.close(), 20)


async def said(runtime: Runtime, text: str, key: str) -> str:
    result = await converse(LocalCaller(runtime.house), Inbound(text, key), lambda _: None)
    return result.run_id


async def test_what_a_run_wrote_is_in_a_commit_that_names_the_run(tmp_path: Path) -> None:
    async with living(tmp_path) as runtime:
        run = await said(runtime, "remember that the boat is called Aster", "k1")
    (commit,) = History(tmp_path / "home" / "workspace").log().commits
    assert commit.author == "main"
    assert commit.body == f"run {run} in agent:main:main"
    assert any(file.path.startswith("memory/") or file.path == "MEMORY.md" for file in commit.files)


async def test_several_runs_in_a_row_are_one_commit_and_words_alone_none(tmp_path: Path) -> None:
    async with living(tmp_path) as runtime:
        for number in range(3):
            await said(runtime, f"remember that the number {number} is lucky", f"k{number}")
    (commit,) = History(tmp_path / "home" / "workspace").log().commits
    assert len(commit.body.splitlines()) == 3
    async with living(tmp_path) as runtime:
        await said(runtime, "hello", "k9")
    assert len(History(tmp_path / "home" / "workspace").log().commits) == 1


async def test_a_moment_of_quiet_is_enough(tmp_path: Path) -> None:
    async with living(tmp_path) as runtime:
        runtime._histories._quiet = 0.01
        await said(runtime, "remember that the boat is called Aster", "k1")
        async with asyncio.timeout(10):
            while runtime._histories._tasks:
                await asyncio.wait(list(runtime._histories._tasks.values()))
        assert len(History(tmp_path / "home" / "workspace").log().commits) == 1


async def test_nothing_is_committed_when_it_is_switched_off_or_there_is_no_repository(tmp_path: Path) -> None:
    async with living(tmp_path, workspaceHistory="off") as runtime:
        await said(runtime, "remember that the boat is called Aster", "k1")
    assert History(tmp_path / "home" / "workspace").log().commits == ()
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
        await SET.handler(runtime.house, SetFile("SOUL.md", "Calm.\n"))
    (commit,) = History(tmp_path / "home" / "workspace").log("SOUL.md").commits
    assert (commit.author, commit.body) == ("owner", "SOUL.md edited")
    async with living(tmp_path) as runtime:
        await SET.handler(runtime.house, SetFile("SOUL.md", "Spoilt.\n"))
        await asyncio.to_thread(History(tmp_path / "home" / "workspace").commit)
        await RESTORE.handler(runtime.house, RestoreFile("SOUL.md", commit.id))
    newest = History(tmp_path / "home" / "workspace").log("SOUL.md").commits[0]
    assert newest.body == f"SOUL.md edited\nSOUL.md as it was at {commit.id[:10]}"
