"""Sees when files change, as a hint that a sweep is worth its while. Right answers do not depend on it (promise 11).

The kernel tells of changes through `watchfiles`. They have settled when none came for 1.5 s, or after 15 s if they
do not stop. Where nothing can be watched (too many folders for the system's limit, a file system that tells nothing)
the periodic sweep is all there is, and `trouble` says why.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

from palinurus.config.remembering import Sync
from palinurus.memory.scan import FOLDER, Scanner

log = logging.getLogger(__name__)


class Watcher:
    """Watches one agent's folders."""

    def __init__(self, scanner: Scanner, sync: Sync) -> None:
        self._scanner = scanner
        self._sync = sync
        self._tasks: list[asyncio.Task[None]] = []
        self._watched: list[Path] = []
        self._seen = asyncio.Event()
        self.trouble = ""

    @property
    def watching(self) -> bool:
        return any(not task.done() for task in self._tasks)

    async def changed(self) -> None:
        """Returns when something has changed and settled since the last call. The first call starts the watch."""
        self.start()
        await self._seen.wait()
        self._seen.clear()

    def start(self) -> None:
        """Watch what there is now; folders that came or went since the last time are seen to."""
        alone, whole = (_existing(folders) for folders in self._scanner.folders())
        if self._tasks and self._watched == alone + whole:
            return
        self._cancel()
        self._watched = alone + whole
        self._tasks = [
            asyncio.get_running_loop().create_task(self._watch(folders, recursive), name="pal-memory-watch")
            for folders, recursive in ((alone, False), (whole, True))
            if folders
        ]

    async def close(self) -> None:
        tasks = self._cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _cancel(self) -> list[asyncio.Task[None]]:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        return tasks

    async def _watch(self, folders: list[Path], recursive: bool) -> None:
        import watchfiles

        changes = watchfiles.awatch(
            *folders,
            watch_filter=_is_of_interest,
            debounce=int(self._sync.settle_seconds * 1000),
            step=int(self._sync.debounce_seconds * 1000),
            recursive=recursive,
            rust_timeout=1_000,
        )
        try:
            async for _ in changes:
                self._seen.set()
        except (OSError, RuntimeError) as error:  # RuntimeError is what it makes of the kernel's refusals
            self.trouble = f"files cannot be watched: {error}"
            log.info(self.trouble)
        finally:
            with suppress(RuntimeError):  # it was being waited for when the task was cancelled
                await changes.aclose()


def _existing(folders: list[Path]) -> list[Path]:
    return [folder for folder in folders if folder.is_dir()]


def _is_of_interest(_: Any, path: str) -> bool:
    """Markdown, and the folder that may not have been there when the watch began."""
    return path[-3:].lower() == ".md" or Path(path).name == FOLDER
