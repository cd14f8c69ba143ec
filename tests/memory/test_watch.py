"""The watcher is a hint: it comes soon after a change, once for many, and whatever is not markdown is passed by."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palinurus.memory.memory import Watcher
from palinurus.memory.scan import Scanner
from palinurus.memory.settings import Sync

QUICK = Sync(debounce_seconds=0.05, settle_seconds=0.5)


@pytest.fixture
async def watcher(workspace: Path) -> AsyncIterator[Watcher]:
    made = Watcher(Scanner(workspace, sources=("memory",)), QUICK)
    yield made
    await made.close()


async def hint(watcher: Watcher, cause: Path, text: str = "- x\n") -> None:
    """Waits for the hint; the watch may begin a moment after it was asked for, so the cause is repeated."""
    waiting = asyncio.create_task(watcher.changed())
    async with asyncio.timeout(60):
        while not waiting.done():
            cause.parent.mkdir(exist_ok=True)
            cause.write_text(text)
            await asyncio.wait([waiting], timeout=0.3)
    await waiting


async def test_a_change_of_a_file_in_the_workspace_is_seen(watcher: Watcher, workspace: Path) -> None:
    await hint(watcher, workspace / "MEMORY.md")
    assert watcher.watching
    assert watcher.trouble == ""


async def test_a_folder_that_came_later_is_watched_too(watcher: Watcher, workspace: Path) -> None:
    await hint(watcher, workspace / "memory" / "a.md")
    await hint(watcher, workspace / "memory" / "deep" / "b.md")


async def test_what_is_no_markdown_is_no_hint(watcher: Watcher, workspace: Path) -> None:
    await hint(watcher, workspace / "MEMORY.md")
    for number in range(30):  # late hints of the first change may come, but no more than it had causes
        waiting = asyncio.create_task(watcher.changed())
        (workspace / f"{number}.txt").write_text("x")
        await asyncio.wait([waiting], timeout=0.5)
        if not waiting.done():
            break
    assert not waiting.done()
    waiting.cancel()


async def test_a_closed_watcher_watches_nothing(watcher: Watcher) -> None:
    watcher.start()
    assert watcher.watching
    await watcher.close()
    assert not watcher.watching


async def test_where_nothing_is_there_to_be_watched_nothing_is(tmp_path: Path) -> None:
    watcher = Watcher(Scanner(tmp_path / "nowhere", sources=("memory",)), QUICK)
    watcher.start()
    assert not watcher.watching
    await watcher.close()
