"""One agent's memory: index, search, vectors and the file watcher.

Search is correct without any background work: each search compares the disk with the index first. The background work
only makes that comparison cheap, and computes vectors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from palinurus.domain.clock import Clock
from palinurus.domain.errors import PalinurusError, StorageError
from palinurus.memory.answer import IndexExport, MemoryStatus, OnProgress, SearchAnswer, SyncReport, VectorSpace
from palinurus.memory.document import MissingVector
from palinurus.memory.embedder import Embedder, EmbedderChain, Space
from palinurus.memory.fill import VectorBatches, VectorFiller
from palinurus.memory.index import MemoryIndex
from palinurus.memory.question import Question
from palinurus.memory.scan import FOLDER, Scanner
from palinurus.memory.search import MemorySearch, QueryHelpers
from palinurus.memory.settings import MemorySettings, Sync
from palinurus.memory.store import MemoryStore


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
        """Watches the current folders, updated for folders that appeared or disappeared."""
        alone, whole = ([folder for folder in kind if folder.is_dir()] for kind in self._scanner.folders())
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
        except (OSError, RuntimeError) as error:  # RuntimeError wraps the kernel's refusals
            self.trouble = f"files cannot be watched: {error}"
            log.info(self.trouble)
        finally:
            with suppress(RuntimeError):  # it was awaited when the task was cancelled
                await changes.aclose()


def _is_of_interest(_: Any, path: str) -> bool:
    """Whether a path matters: markdown, or the memory folder, which may have been missing before."""
    return path[-3:].lower() == ".md" or Path(path).name == FOLDER


log = logging.getLogger(__name__)
_NO_HELPERS = QueryHelpers()
OnSync = Callable[[SyncReport], None]
"""Called on the event loop for each sync that changed something. Neither blocks nor raises."""


class Memory:
    """The builtin engine. Implements backend.AgentMemory."""

    least_seconds = 0.0

    def __init__(
        self,
        settings: MemorySettings,
        store: MemoryStore,
        index: MemoryIndex,
        embedder: Embedder | EmbedderChain | None,
        clock: Clock,
        watcher: Watcher | None = None,
        batches: VectorBatches | None = None,
        helpers: QueryHelpers = _NO_HELPERS,
    ) -> None:
        self.settings = settings
        self.embedder = embedder
        self._store = store
        self._index = index
        self._watcher = watcher
        self._search = MemorySearch(index, store, embedder, settings, clock, self._nudge, helpers)
        share = settings.embed_share
        self._filler = VectorFiller(store, embedder, share=share, batches=batches) if embedder else None
        self._listeners: list[OnSync] = []
        self._keeping_up: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def serving(self) -> Embedder | None:
        """The embedder that makes vectors."""
        return self.embedder.serving if isinstance(self.embedder, EmbedderChain) else self.embedder

    @property
    def builtin(self) -> Memory:
        return self

    def own_path(self, path: str) -> str:
        return path

    async def search(self, question: Question) -> SearchAnswer:
        answer = await self._search.ask(question)
        if caught_up := answer.freshness.caught_up:
            self._tell(SyncReport(answer.freshness.compared, changed=caught_up))
        return answer

    async def sync(self, *, force: bool = False, progress: OnProgress | None = None) -> SyncReport:
        """Updates words and vectors, however long it takes. Errors of the embedder are in the report."""
        report = await self._sync(force=force, progress=progress)
        if self._filler is None:
            return report
        filled = await self._filler.run(progress)
        return msgspec.structs.replace(report, embedded=filled.embedded, embedder_trouble=filled.trouble)

    async def forget(self) -> SyncReport:
        """After words were forgotten in files and sessions: when this returns, no byte of the index has them."""
        report = await self._sync()
        await self._store.scrub()
        return report

    async def export(self, to: Path) -> IndexExport:
        """Writes the index, as it is after a look at the files, as a database of OpenClaw's form."""
        from palinurus.memory.export import export_index  # rarely wanted

        await self._sync()
        if self._store.path is None:
            raise StorageError("this index is in memory only and cannot be exported")
        return await asyncio.to_thread(export_index, self._store.path, to)

    async def read_conversation(self, path: str) -> str | None:
        """The text of a past session, by its path in citations; None if there is none."""
        return await self._index.read_conversation(path)

    async def status(self, *, deep: bool = False) -> MemoryStatus:
        made = self.serving.space if self.serving else None
        in_use = await self._store.space_in_use()
        if made and in_use and made.fits(Space.read(in_use)):
            made = Space.read(in_use)  # it may not know its dimensions yet
        status = await self._index.status(deep=deep, space=made)
        watching = self._watcher is not None and self._watcher.watching
        trouble = status.trouble or (self._filler.trouble if self._filler else "")
        used = Space.read(status.embedder) if status.embedder and made else made
        named = {"provider": used.provider, "model": used.model} if used else {"provider": "none"}
        fallback = self.embedder.fallback if isinstance(self.embedder, EmbedderChain) else None
        batched = self._filler is not None and self._filler.covered > 0
        return msgspec.structs.replace(
            status, watching=watching, trouble=trouble, fallback=fallback, by_batch=batched, **named
        )

    async def spaces(self) -> tuple[VectorSpace, ...]:
        """The one that is searched first."""
        totals, in_use = await self._store.totals(), await self._store.space_in_use()
        filling = self.serving.space if self.serving else None

        def told(id_: str, embedded: int) -> VectorSpace:
            space = Space.read(id_)
            state = "searched" if id_ == in_use else "filling" if filling and filling.fits(space) else "kept"
            return VectorSpace(id_, space.provider, space.model, space.dimensions, embedded, totals.pieces, state)

        found = [told(*each) for each in totals.embedded.items()]
        return tuple(sorted(found, key=lambda each: each.state != "searched"))

    def listen(self, on_sync: OnSync) -> Callable[[], None]:
        """Calls `on_sync` for each indexed change; returns a function that stops it."""
        self._listeners.append(on_sync)
        return lambda: self._listeners.remove(on_sync)

    def start(self) -> None:
        """Indexes now, and keeps up from then on. A second call does nothing."""
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
        """Indexes at start, after each change that the watcher reports, and at intervals."""
        pause = self.settings.sync.sweep_minutes * 60 or None  # None: only after a reported change
        if self._filler is not None:
            self._filler.start()
        while True:
            try:
                await self._sync(gentle=True)
            except StorageError as error:
                log.warning("memory could not be indexed: %s", error)
            except PalinurusError as error:  # a missing workspace: reported on a search, retried later
                log.info("memory was not indexed: %s", error)
            if self._watcher is None:
                if pause is None:
                    return
                await asyncio.sleep(pause)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):  # not wait_for, which may swallow a cancellation
                        await self._watcher.changed()

    async def _sync(
        self, *, force: bool = False, gentle: bool = False, progress: OnProgress | None = None
    ) -> SyncReport:
        report = await self._index.sync(force=force, gentle=gentle, progress=progress)
        if report.added or report.changed or report.removed:
            self._tell(report)
        return report

    def _tell(self, report: SyncReport) -> None:
        for listener in list(self._listeners):
            listener(report)
        self._nudge()

    def batched_embedder(self, space_id: str) -> Embedder | None:
        """The one whose batches fill this space; None if the config has another one by now."""
        space, chain = Space.read(space_id), self.embedder
        return chain.member_of(space) if isinstance(chain, EmbedderChain) else None

    async def unembedded(self, space: Space, limit: int) -> list[MissingVector]:
        return await self._store.unembedded(space, limit)

    async def put_vectors(self, space: Space, vectors: Sequence[tuple[bytes, bytes]]) -> None:
        """Vectors that a batch has made, by digest."""
        await self._store.put_vectors(space, vectors)

    def nudge(self) -> None:
        """After a batch has ended: the rest is made here, or by the next one."""
        self._nudge()

    def _nudge(self) -> None:
        if self._filler is not None:
            self._filler.nudge()
