"""One agent's memory: index, search, vectors and the watch over its files, joined. What the doors hold.

Search is right without any of the background work: each question compares the disk with the index first. The work
behind only makes that comparison cheap, and fills in vectors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

import msgspec

from palinurus.config.remembering import MemorySettings
from palinurus.domain.clock import Clock
from palinurus.domain.errors import PalinurusError, StorageError
from palinurus.memory.answer import Answer
from palinurus.memory.embedder import Embedder
from palinurus.memory.fill import VectorFiller
from palinurus.memory.index import MemoryIndex
from palinurus.memory.question import Question
from palinurus.memory.report import MemoryStatus, OnProgress, SyncReport
from palinurus.memory.search import MemorySearch
from palinurus.memory.store import MemoryStore
from palinurus.memory.watch import Watcher

log = logging.getLogger(__name__)
Heard = Callable[[SyncReport], None]
"""Told on the event loop of each sync that changed something. Neither blocks nor raises."""


class Memory:
    def __init__(
        self,
        settings: MemorySettings,
        store: MemoryStore,
        index: MemoryIndex,
        embedder: Embedder | None,
        clock: Clock,
        watcher: Watcher | None = None,
    ) -> None:
        self.settings = settings
        self.embedder = embedder
        self._store = store
        self._index = index
        self._watcher = watcher
        self._search = MemorySearch(index, store, embedder, settings, clock)
        self._filler = VectorFiller(store, embedder, share=settings.embed_share) if embedder else None
        self._listeners: list[Heard] = []
        self._keeping_up: asyncio.Task[None] | None = None
        self._closed = False

    async def search(self, question: Question) -> Answer:
        answer = await self._search.ask(question)
        if caught_up := answer.freshness.caught_up:
            self._tell(SyncReport(answer.freshness.compared, changed=caught_up))
        return answer

    async def sync(self, *, force: bool = False, progress: OnProgress | None = None) -> SyncReport:
        """Bring words and vectors up to date, however long it takes. Trouble of the embedder is in the report."""
        report = await self._sync(force=force, progress=progress)
        if self._filler is None:
            return report
        filled = await self._filler.run(progress)
        return msgspec.structs.replace(report, embedded=filled.embedded, embedder_trouble=filled.trouble)

    async def forget(self) -> SyncReport:
        """After words were taken out of files and conversations: when this returns, no byte of the index has them."""
        report = await self._sync()
        await self._store.scrub()
        return report

    async def said(self, path: str) -> str | None:
        """The text of a past conversation, by the path under which it is cited; None when there is none."""
        return await self._index.said(path)

    async def status(self, *, deep: bool = False) -> MemoryStatus:
        status = await self._index.status(deep=deep, space=self.embedder.space if self.embedder else None)
        return msgspec.structs.replace(
            status,
            watching=self._watcher is not None and self._watcher.watching,
            trouble=status.trouble or (self._filler.trouble if self._filler else ""),
        )

    def listen(self, told: Heard) -> Callable[[], None]:
        """Be told of what is indexed; call what is returned to hear no more."""
        self._listeners.append(told)
        return lambda: self._listeners.remove(told)

    def start(self) -> None:
        """Index now, and keep up from then on. A second call does nothing."""
        if self._keeping_up is None and not self._closed and self.settings.enabled:
            self._keeping_up = asyncio.create_task(self._keep_up())

    async def close(self) -> None:
        self._closed = True
        if self._keeping_up is not None:
            self._keeping_up.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping_up
        if self._watcher is not None:
            await self._watcher.close()
        if self._filler is not None:
            await self._filler.stop()
        await self._index.close()
        await self._store.close()

    async def _keep_up(self) -> None:
        """At start, whenever the watcher has seen a change, and now and then all the same."""
        pause = self.settings.sync.sweep_minutes * 60 or None  # none: only when the watcher has seen a change
        if self._filler is not None:
            self._filler.start()
        while True:
            await self._try_sync()
            if self._watcher is None:
                if pause is None:
                    return
                await asyncio.sleep(pause)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):  # not wait_for, which may forget that we are to end
                        await self._watcher.changed()

    async def _try_sync(self) -> None:
        try:
            await self._sync(gentle=True)
        except StorageError as error:
            log.warning("memory could not be indexed: %s", error)
        except PalinurusError as error:  # a workspace that is gone: said when somebody asks, looked for again later
            log.info("memory was not indexed: %s", error)

    async def _sync(
        self, *, force: bool = False, gentle: bool = False, progress: OnProgress | None = None
    ) -> SyncReport:
        report = await self._index.sync(force=force, gentle=gentle, progress=progress)
        if report.added or report.changed or report.removed:
            self._tell(report)
        return report

    def _tell(self, report: SyncReport) -> None:
        for told in list(self._listeners):
            told(report)
        if self._filler is not None:
            self._filler.nudge()
