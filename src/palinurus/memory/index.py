"""Keeps the index equal to the disk: scans, reads what changed, splits it, and stores it.

Work is done by sweeps, one at a time. A sweep compares the stamps of all files with those in the index and reads what
differs; the SHA-256 of the text decides whether it is indexed again. It relies on no change notification, so a watcher
that missed something, a crash or a deleted index cost only a little more work. Callers share a sweep that starts after
their call; a caller that runs out of time learns what the answer lacks while the sweep continues.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.domain.errors import PalinurusError, StorageDamaged, StorageError
from palinurus.memory import chunk as cutting
from palinurus.memory import terms
from palinurus.memory.answer import (
    Difference,
    IndexFreshness,
    MemoryStatus,
    OnProgress,
    Progress,
    SkippedFile,
    SyncReport,
)
from palinurus.memory.chunk import chunk
from palinurus.memory.document import SESSIONS, DocumentPieces, FileRow, MemoryDocument, Stamp, is_conversation
from palinurus.memory.embedder import Space
from palinurus.memory.scan import Scanner
from palinurus.memory.settings import BUILTIN, MemorySettings
from palinurus.memory.store import MemoryStore

if TYPE_CHECKING:  # a cold search of files should not wait for the import of session code
    from palinurus.memory.conversations import StoredDocuments

NAMED_BEHIND = 5  # maximum paths named as behind
NAMED_DIFFERENCES = 50
BATCH_BYTES = 2_000_000  # bytes of text in one transaction
BATCH_FILES = 400


class Sweep:
    """One comparison of the disk with the index, in progress or done."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.force = False
        self.gentle = True  # sessions that grew by little may wait
        self.listeners: list[OnProgress] = []
        self.began = time.perf_counter()
        self.swept = False  # the differences are known
        self.compared = self.added = self.changed = self.removed = self.pieces = 0
        self.behind: dict[str, None] = {}
        self.skipped: list[SkippedFile] = []
        self.unseen: dict[str, str] = {}  # paths that could not be read; the index is trusted for them
        self.missing = ""  # a missing root
        self.trouble = ""
        self.error: Exception | None = None

    def end(self, error: Exception | None = None) -> None:
        self.error = error
        self.done.set_result(None)

    def report(self) -> SyncReport:
        return SyncReport(
            compared=self.compared,
            added=self.added,
            changed=self.changed,
            removed=self.removed,
            pieces=self.pieces,
            skipped=tuple(self.skipped),
            behind=tuple(self.behind),
            took_ms=round((time.perf_counter() - self.began) * 1000, 1),
            trouble=self.trouble,
        )

    def freshness(self) -> IndexFreshness:
        behind, caught_up = tuple(self.behind), self.added + self.changed + self.removed
        state = "unswept" if not self.swept else "stale" if behind or self.unseen or self.error else "fresh"
        return IndexFreshness(state, self.compared, caught_up, behind[:NAMED_BEHIND], len(behind), why=self._why())

    def _why(self) -> str:
        if isinstance(self.error, PalinurusError):
            return self.error.message
        if not self.swept:
            return "there was no time to look at the files"
        if self.behind:
            return "there was no time to read all that has changed"
        for path, reason in self.unseen.items():
            return f"{path} could not be looked at: {reason}"
        return self.trouble or (f"not there: {self.missing}" if self.missing else "")


class Batch(Struct):
    """The result of reading some files."""

    cut: list[tuple[FileRow, DocumentPieces]] = []
    same: list[FileRow] = []
    gone: list[str] = []
    skipped: list[SkippedFile] = []


class MemoryIndex:
    def __init__(
        self,
        store: MemoryStore,
        scanner: Scanner,
        clock: Clock,
        settings: MemorySettings,
        *,
        conversations: StoredDocuments | None = None,
        agent: str = "",
    ) -> None:
        self._store = store
        self._scanner = scanner
        self._clock = clock
        self._settings = settings
        self._conversations = conversations
        self._agent = agent
        self._recipe = recipe(settings)
        self._rows: dict[str, FileRow] | None = None  # the index content by path; None: not read yet
        self._stamps: dict[str, Stamp] = {}  # the same, of those split by the current code
        self._next: Sweep | None = None  # has not started
        self._worker: asyncio.Task[None] | None = None
        self._last_sweep_at: int | None = None

    async def sync(
        self,
        *,
        force: bool = False,
        seconds: float | None = None,
        progress: OnProgress | None = None,
        gentle: bool = False,
    ) -> SyncReport:
        """Makes the index equal to the disk; what exceeds the time is in `behind` and is done afterwards.

        `force` rebuilds it. `gentle` skips sessions that have grown by little. Raises StorageError.
        """
        sweep = self._ask_for_sweep(force=force, gentle=gentle, progress=progress)
        await asyncio.wait([sweep.done], timeout=seconds)
        if sweep.error is not None:
            raise sweep.error
        return sweep.report()

    async def catch_up(self, seconds: float) -> IndexFreshness:
        """Before a search: compares, and indexes changes, within this time. Raises nothing."""
        sweep = self._ask_for_sweep()
        await asyncio.wait([sweep.done], timeout=max(0.0, seconds))
        return sweep.freshness()

    async def read_conversation(self, path: str) -> str | None:
        """The text of a document that is not a file; None if there is none."""
        document = await self._read_stored(path)
        return document.text if document else None

    def reload(self) -> None:
        """Drops the cached state of a damaged index. The next sweep reads it again."""
        self._rows = None

    async def close(self) -> None:
        """Stops after the current write. Callers that wait for a sweep get an error."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.cancel()
            self._scanner.stop()
            await asyncio.wait([worker])
        if self._next is not None:
            self._next.end(_closed())
            self._next = None

    # -- sweeps -------------------------------------------------------------------------------------------------------

    def _ask_for_sweep(self, *, force: bool = False, gentle: bool = False, progress: OnProgress | None = None) -> Sweep:
        """A sweep that starts from now on: one in progress may have missed the latest writes."""
        sweep = self._next = self._next or Sweep()
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
                try:
                    await self._sweep(sweep)
                except StorageDamaged as error:  # the index was discarded; start again from nothing
                    self._rows = None
                    sweep.trouble = error.message
                    await self._sweep(sweep)
                sweep.end()
            except asyncio.CancelledError:
                sweep.end(_closed())
                raise
            except Exception as error:  # noqa: BLE001  # handed to whoever waits for the sweep
                self._rows = None
                sweep.end(error)

    async def _sweep(self, sweep: Sweep) -> None:
        if sweep.force:
            await self._store.clear()
            self._rows = None
        rows = await self._known()
        found = await self._found(sweep)
        sweep.compared = len(found)
        changed, gone = list[str](), list[str]()
        if found != self._stamps or len(rows) != len(found):  # else nothing has changed, and all know each other
            changed = [path for path, stamp in found.items() if self._stamps.get(path) != stamp]
            changed.sort(key=lambda path: found[path][1], reverse=True)  # the newest first, in case time is short
            unseen = tuple(sweep.unseen)
            gone = [path for path in rows if path not in found and not path.startswith(unseen)]
        sweep.behind = dict.fromkeys([*gone, *changed])
        sweep.swept = True
        await self._drop(sweep, gone)
        await self._index(sweep, changed, found)
        self._last_sweep_at = self._clock.now_ms()

    async def _known(self) -> dict[str, FileRow]:
        if self._rows is None:
            rows = await self._store.files()
            self._rows = {ref.path: row for ref, row in rows.items()}
            self._stamps = {path: row.stamp for path, row in self._rows.items() if row.recipe == self._recipe}
        return self._rows

    async def _found(self, sweep: Sweep) -> dict[str, Stamp]:
        scan = await asyncio.to_thread(self._scanner.scan)
        sweep.skipped, sweep.unseen, sweep.missing = list(scan.skipped), scan.unseen, scan.missing
        if self._conversations is None:
            return scan.stamps
        stored = await self._conversations.stamps()
        return scan.stamps | (await self._conversations.due(stored, self._stamps) if sweep.gentle else stored)

    async def _drop(self, sweep: Sweep, paths: Sequence[str]) -> None:
        rows = await self._known()
        known = [path for path in paths if path in rows]
        if known:
            await self._store.drop([rows[path].ref for path in known])
        for path in known:
            del rows[path]
            self._stamps.pop(path, None)
        for path in paths:
            sweep.behind.pop(path, None)
        sweep.removed += len(known)

    async def _index(self, sweep: Sweep, changed: list[str], found: dict[str, Stamp]) -> None:
        done = 0
        for paths in _batches(changed, found):
            files = [path for path in paths if not is_conversation(path)]
            stored = [await self._read_stored(path, indexing=True) for path in paths if is_conversation(path)]
            batch = await asyncio.to_thread(self._read, files, stored)
            await self._put(sweep, batch)
            for path in paths:
                sweep.behind.pop(path, None)
            done += len(paths)
            for listener in sweep.listeners:
                listener(Progress("text", done, len(changed)))

    async def _read_stored(self, path: str, *, indexing: bool = False) -> MemoryDocument | None:
        return await self._conversations.read(path, indexing=indexing) if self._conversations else None

    def _read(self, paths: list[str], stored: Sequence[MemoryDocument | None]) -> Batch:
        """Runs in a thread."""
        batch = Batch()
        for path in paths:
            found = self._scanner.read(path)
            if isinstance(found, MemoryDocument):
                self._cut(found, batch)
                continue
            batch.gone.append(path)
            if found is not None:
                batch.skipped.append(found)
        for document in stored:
            if document is not None:
                self._cut(document, batch)
        return batch

    def _cut(self, document: MemoryDocument, batch: Batch) -> None:
        row = (self._rows or {}).get(document.ref.path)
        if row is not None and row.digest == document.digest and row.recipe == self._recipe:
            batch.same.append(msgspec.structs.replace(row, stamp=document.stamp))
            return
        cut = self._chunked(document)
        now, pieces = self._clock.now_ms(), len(cut.pieces)
        batch.cut.append((FileRow(document.ref, document.stamp, document.digest, now, pieces, self._recipe), cut))

    def _chunked(self, document: MemoryDocument) -> DocumentPieces:
        settings = self._settings
        return chunk(document.text, document.ref.path, settings.passage_tokens, settings.overlap_tokens)

    async def _put(self, sweep: Sweep, batch: Batch) -> None:
        rows = await self._known()
        if batch.cut:
            await self._store.put(batch.cut)
        if batch.same:
            await self._store.touch(batch.same)
        new = sum(row.ref.path not in rows for row, _ in batch.cut)
        sweep.added += new
        sweep.changed += len(batch.cut) - new
        sweep.pieces += sum(len(cut.pieces) for _, cut in batch.cut)
        for row in [*(row for row, _ in batch.cut), *batch.same]:
            rows[row.ref.path] = row
            self._stamps[row.ref.path] = row.stamp
        sweep.skipped += batch.skipped
        await self._drop(sweep, batch.gone)

    # -- status: computed on each call, because a stored flag may be wrong ---------------------------------------------

    async def status(self, *, deep: bool = False, space: Space | None = None) -> MemoryStatus:
        """The current difference between index and disk. `space` is the embedder's. Raises StorageError."""
        scan = await asyncio.to_thread(self._scanner.scan)
        stored = await self._conversations.stamps() if self._conversations else {}
        rows = {ref.path: row for ref, row in (await self._store.files()).items()}
        unseen = tuple(scan.unseen)
        seen = {path: row for path, row in rows.items() if path in scan.stamps or not path.startswith(unseen)}
        differences = await self._differences(scan.stamps | stored, seen, deep)
        totals, in_use = await self._store.totals(), await self._store.space_in_use()
        embedded = totals.embedded.get(in_use, 0)
        shadow = space.id if space is not None and space.id != in_use else ""
        return MemoryStatus(
            agent=self._agent,
            enabled=self._settings.enabled,
            files=totals.files,
            pieces=totals.pieces,
            passages=totals.passages,
            text_bytes=sum(row.stamp[0] for row in rows.values() if row.ref.source != SESSIONS),
            index_bytes=totals.bytes_on_disk,
            sources=dict(Counter(row.ref.source for row in rows.values())),
            embedder=in_use,
            embedded=embedded,
            to_embed=totals.pieces - embedded if in_use or space else 0,
            shadow=shadow,
            shadow_embedded=totals.embedded.get(shadow, 0),
            differences=tuple(differences[:NAMED_DIFFERENCES]),
            difference_count=len(differences),
            deep=deep,
            skipped=scan.skipped,
            last_sweep_at=self._last_sweep_at,
            index_path=str(self._store.path or ""),
            backend=BUILTIN,
        )

    async def _differences(self, found: dict[str, Stamp], rows: dict[str, FileRow], deep: bool) -> list[Difference]:
        differences = {path: "gone from the disk" for path in rows if path not in found}
        for path, stamp in found.items():
            row = rows.get(path)
            if row is None:
                differences[path] = "missing in the index"
            elif (deep or row.stamp != stamp) and (what := await self._difference(path, row, deep)):
                differences[path] = what
        return [Difference(path, what) for path, what in sorted(differences.items())]

    async def _difference(self, path: str, row: FileRow, deep: bool) -> str:
        """The difference after reading the file: another stamp alone is none."""
        reading = self._read_stored(path) if is_conversation(path) else asyncio.to_thread(self._scanner.read, path)
        document = await reading
        if not isinstance(document, MemoryDocument):
            return "gone from the disk"
        if document.digest != row.digest:
            return "changed"
        return "other pieces than the text has" if deep and not await self._has_its_pieces(document) else ""

    async def _has_its_pieces(self, document: MemoryDocument) -> bool:
        cut = await asyncio.to_thread(self._chunked, document)
        stored = await self._store.pieces_of(document.ref)
        known = attrgetter("start_line", "end_line", "text", "context")
        return list(map(known, cut.pieces)) == list(map(known, stored))


def recipe(settings: MemorySettings) -> str:
    """Identifies how texts are split, by a digest of the code, so that no version number is forgotten."""
    code = sha256(b"".join(Path(module.__file__ or "").read_bytes() for module in (cutting, terms)))
    overlap = "" if settings.overlap_tokens is None else f"/{settings.overlap_tokens}"
    return f"{code.hexdigest()[:12]}/{settings.passage_tokens}{overlap}"


def _closed() -> StorageError:
    return StorageError("the index was closed before its files were compared", hint="ask again")


def _batches(paths: Sequence[str], stamps: dict[str, Stamp]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for path in paths:
        if batch and (size > BATCH_BYTES or len(batch) >= BATCH_FILES):
            yield batch
            batch, size = [], 0
        batch.append(path)
        size += stamps[path][0]
    if batch:
        yield batch
