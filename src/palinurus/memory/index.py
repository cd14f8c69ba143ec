"""Keeps the index equal to the disk: scan, read what changed, cut it up, put it into the store.

Work is done by sweeps, one at a time. A sweep compares the stamps of all files with those in the index and reads what
differs; the SHA-256 of the text decides whether it is indexed again. Nobody tells it what changed, so a watcher that
missed something, a crash or a deleted index cost nothing but a little more work. Whoever asks shares a sweep that
starts after the question came, and one who has no time left is told what the answer lacks while the sweep goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from palinurus.config.remembering import MemorySettings
from palinurus.domain.clock import Clock
from palinurus.domain.errors import StorageDamaged, StorageError
from palinurus.memory import chunk as cutting
from palinurus.memory import dates, markdown, words
from palinurus.memory.answer import Freshness
from palinurus.memory.chunk import chunk
from palinurus.memory.comparison import Comparison
from palinurus.memory.document import SESSIONS, Chunked, Document, Stamp
from palinurus.memory.embedder import Space
from palinurus.memory.report import MemoryStatus, OnProgress, Skipped, SyncReport
from palinurus.memory.scan import Scan, Scanner
from palinurus.memory.store import FileRow, MemoryStore
from palinurus.memory.sweep import Sweep
from palinurus.memory.walk import Raw

if TYPE_CHECKING:  # a cold search of files should not wait for what reads transcripts
    from palinurus.memory.unwritten import Elsewhere

BATCH_BYTES = 2_000_000  # of text that is written in one transaction
BATCH_FILES = 400


class Batch(Struct):
    """What reading some files gave."""

    cut: list[tuple[FileRow, Chunked]] = []
    same: list[FileRow] = []
    gone: list[str] = []
    skipped: list[Skipped] = []


class MemoryIndex:
    def __init__(
        self,
        store: MemoryStore,
        scanner: Scanner,
        clock: Clock,
        settings: MemorySettings,
        *,
        conversations: Elsewhere | None = None,
        agent: str = "",
        index_path: str = "",
    ) -> None:
        self._store = store
        self._scanner = scanner
        self._clock = clock
        self._settings = settings
        self._conversations = conversations
        self._agent = agent
        self._index_path = index_path
        self._recipe = recipe(settings.passage_tokens)
        self._rows: dict[str, FileRow] | None = None  # what is in the index, by path; None: not read yet
        self._stamps: dict[str, Raw] = {}  # the same, of those that need no other look
        self._next: Sweep | None = None  # has not started
        self._worker: asyncio.Task[None] | None = None
        self.last_sweep_at: int | None = None

    async def sync(
        self,
        *,
        force: bool = False,
        seconds: float | None = None,
        progress: OnProgress | None = None,
        gentle: bool = False,
    ) -> SyncReport:
        """Make the index equal to the disk; what time does not allow for is in `behind` and is done afterwards.

        `force` makes it anew. `gentle` lets conversations wait that have grown by little. Raises StorageError.
        """
        sweep = self._ask_for_sweep(force=force, gentle=gentle, progress=progress)
        await asyncio.wait([sweep.done], timeout=seconds)
        if sweep.error is not None:
            raise sweep.error
        return sweep.report()

    async def catch_up(self, seconds: float) -> Freshness:
        """For a question: compare, and index what has changed, within this time. Raises nothing: it is an answer."""
        sweep = self._ask_for_sweep()
        await asyncio.wait([sweep.done], timeout=max(0.0, seconds))
        return sweep.freshness()

    async def status(self, *, deep: bool = False, space: Space | None = None) -> MemoryStatus:
        """How the index stands beside the disk, looked at now. `space` is the embedder's. Raises StorageError."""
        return await Comparison(self._store, self._scanner, self._conversations, self._settings).status(
            deep=deep,
            space=space,
            agent=self._agent,
            index_path=self._index_path,
            last_sweep_at=self.last_sweep_at,
        )

    async def said(self, path: str) -> str | None:
        """What is searched although it is no file."""
        document = await self._conversations.look(path) if self._conversations else None
        return document.text if document else None

    def reload(self) -> None:
        """Forget what was known of the index: somebody met a damaged one. The next sweep reads it anew."""
        self._rows = None

    async def close(self) -> None:
        """Stops after what is being written. Whoever waits for a sweep is told."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.cancel()
            self._scanner.stop()
            await asyncio.wait([worker])
        if self._next is not None:
            self._next.end(_closed())
            self._next = None

    def _ask_for_sweep(self, *, force: bool = False, gentle: bool = False, progress: OnProgress | None = None) -> Sweep:
        """One that starts from now on: a sweep that is under way may have passed by what has just been written."""
        if self._next is None:
            self._next = Sweep()
        sweep = self._next
        sweep.force |= force
        sweep.gentle &= gentle
        if progress is not None:
            sweep.listeners.append(progress)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work(), name="pal-memory-sweep")
        return sweep

    async def _work(self) -> None:
        while self._next is not None:
            sweep, self._next = self._next, None
            try:
                await self._run(sweep)
                sweep.end()
            except asyncio.CancelledError:
                sweep.end(_closed())
                raise
            except Exception as error:  # noqa: BLE001  # handed to whoever waits for the sweep
                self._rows = None
                sweep.end(error)

    async def _run(self, sweep: Sweep) -> None:
        try:
            await self._sweep(sweep)
        except StorageDamaged as error:  # it has been thrown away; once more, from nothing
            self._rows = None
            sweep.trouble = error.message
            await self._sweep(sweep)

    async def _sweep(self, sweep: Sweep) -> None:
        if sweep.force:
            await self._store.clear()
            self._rows = None
        rows = await self._known()
        found = await self._found(sweep)
        sweep.compared = len(found)
        todo: list[str] = []
        if found != self._stamps:
            todo = [path for path, stamp in found.items() if self._stamps.get(path) != stamp]
            todo.sort(key=lambda path: found[path][1], reverse=True)  # the newest first, should time be short
        gone = [path for path in rows if path not in found] if todo or len(rows) != len(found) else []
        gone = [path for path in gone if not path.startswith(tuple(sweep.unseen))]
        sweep.behind = dict.fromkeys([*gone, *todo])
        sweep.swept = True
        await self._drop(sweep, gone)
        await self._index(sweep, todo, found)
        self.last_sweep_at = self._clock.now_ms()

    async def _known(self) -> dict[str, FileRow]:
        if self._rows is None:
            rows = await self._store.files()
            self._rows = {place.path: row for place, row in rows.items()}
            self._stamps = {path: _raw(row.stamp) for path, row in self._rows.items() if row.recipe == self._recipe}
        return self._rows

    async def _found(self, sweep: Sweep) -> dict[str, Raw]:
        scan: Scan = await asyncio.to_thread(self._scanner.scan)
        sweep.skipped, sweep.unseen, sweep.missing = list(scan.skipped), scan.unseen, scan.missing
        if self._conversations is None:
            return scan.stamps
        talks = await self._conversations.stamps()
        return scan.stamps | (await self._conversations.due(talks, self._stamps) if sweep.gentle else talks)

    async def _drop(self, sweep: Sweep, paths: Sequence[str]) -> None:
        rows = await self._known()
        known = [path for path in paths if path in rows]
        if known:
            await self._store.drop([rows[path].place for path in known])
        for path in known:
            del rows[path]
            self._stamps.pop(path, None)
        for path in paths:
            sweep.behind.pop(path, None)
        sweep.removed += len(known)

    async def _index(self, sweep: Sweep, todo: list[str], found: dict[str, Raw]) -> None:
        done = 0
        for paths in _batches(todo, found):
            talks = [await self._conversations.read(path) for path in paths if self._conversations and _is_talk(path)]
            batch = await asyncio.to_thread(self._read, [path for path in paths if not _is_talk(path)], talks)
            await self._keep(sweep, batch)
            for path in paths:
                sweep.behind.pop(path, None)
            done += len(paths)
            sweep.tell("text", done, len(todo))

    def _read(self, paths: list[str], talks: Sequence[Document | None]) -> Batch:
        """In a thread."""
        batch = Batch()
        for path in paths:
            found = self._scanner.read(path)
            if isinstance(found, Document):
                self._judge(found, batch)
            elif isinstance(found, Skipped):
                batch.skipped.append(found)
                batch.gone.append(path)
            else:
                batch.gone.append(path)
        for talk in talks:
            if talk is not None:
                self._judge(talk, batch)
        return batch

    def _judge(self, document: Document, batch: Batch) -> None:
        row = (self._rows or {}).get(document.place.path)
        if row is not None and row.digest == document.digest and row.recipe == self._recipe:
            batch.same.append(msgspec.structs.replace(row, stamp=document.stamp))
            return
        cut = chunk(document.text, document.place.path, self._settings.passage_tokens)
        now, pieces = self._clock.now_ms(), len(cut.pieces)
        batch.cut.append((FileRow(document.place, document.stamp, document.digest, now, pieces, self._recipe), cut))

    async def _keep(self, sweep: Sweep, batch: Batch) -> None:
        rows = await self._known()
        if batch.cut:
            await self._store.put(batch.cut)
        if batch.same:
            await self._store.touch(batch.same)
        for row, cut in batch.cut:
            if row.place.path in rows:
                sweep.changed += 1
            else:
                sweep.added += 1
            sweep.pieces += len(cut.pieces)
        for row in [*(row for row, _ in batch.cut), *batch.same]:
            rows[row.place.path] = row
            self._stamps[row.place.path] = _raw(row.stamp)
        sweep.skipped += batch.skipped
        await self._drop(sweep, batch.gone)


def recipe(passage_tokens: int) -> str:
    """How texts are cut up, told from other ways: by the code that does it, so that nobody can forget to say so."""
    code = sha256(b"".join(Path(module.__file__ or "").read_bytes() for module in (cutting, markdown, words, dates)))
    return f"{code.hexdigest()[:12]}/{passage_tokens}"


def _closed() -> StorageError:
    return StorageError("the index was closed before its files were compared", hint="ask again")


def _raw(stamp: Stamp) -> Raw:
    return (stamp.size, stamp.mtime_ns, stamp.inode, stamp.ctime_ns)


def _is_talk(path: str) -> bool:
    return path.startswith(f"{SESSIONS}/")


def _batches(paths: Sequence[str], stamps: dict[str, Raw]) -> list[list[str]]:
    batches: list[list[str]] = [[]]
    size = 0
    for path in paths:
        if batches[-1] and (size > BATCH_BYTES or len(batches[-1]) >= BATCH_FILES):
            batches.append([])
            size = 0
        batches[-1].append(path)
        size += stamps[path][0]
    return [batch for batch in batches if batch]
