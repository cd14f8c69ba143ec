"""How the index stands beside the disk: computed anew each time, because a flag that says healthy may be wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from palinurus.config.remembering import MemorySettings
from palinurus.memory.chunk import chunk
from palinurus.memory.document import SESSIONS, Document, Stamp
from palinurus.memory.embedder import Space
from palinurus.memory.report import Difference, MemoryStatus
from palinurus.memory.scan import Scanner
from palinurus.memory.store import FileRow, MemoryStore
from palinurus.memory.walk import Raw

if TYPE_CHECKING:  # a cold search of files should not wait for what reads transcripts
    from palinurus.memory.unwritten import Elsewhere

TOLD = 50  # differences that are named


class Comparison:
    """Reads, and changes nothing."""

    def __init__(
        self, store: MemoryStore, scanner: Scanner, conversations: Elsewhere | None, settings: MemorySettings
    ) -> None:
        self._store = store
        self._scanner = scanner
        self._conversations = conversations
        self._settings = settings

    async def status(
        self, *, deep: bool, space: Space | None, agent: str, index_path: str, last_sweep_at: int | None
    ) -> MemoryStatus:
        scan = await asyncio.to_thread(self._scanner.scan)
        talks = await self._conversations.stamps() if self._conversations else {}
        rows = {place.path: row for place, row in (await self._store.files()).items()}
        unseen = tuple(scan.unseen)
        seen = {path: row for path, row in rows.items() if path in scan.stamps or not path.startswith(unseen)}
        differences = await self._differences(scan.stamps | talks, seen, deep)
        totals, in_use = await self._store.totals(), await self._store.space_in_use()
        embedded = totals.embedded.get(in_use, 0)
        shadow = space.id if space is not None and space.id != in_use else ""
        return MemoryStatus(
            agent=agent,
            enabled=self._settings.enabled,
            files=totals.files,
            pieces=totals.pieces,
            passages=totals.passages,
            text_bytes=sum(row.stamp.size for row in rows.values() if row.place.source != SESSIONS),
            index_bytes=totals.bytes_on_disk,
            sources=dict(Counter(row.place.source for row in rows.values())),
            embedder=in_use,
            embedded=embedded,
            to_embed=totals.pieces - embedded if in_use else 0,
            shadow=shadow,
            shadow_embedded=totals.embedded.get(shadow, 0),
            differences=tuple(differences[:TOLD]),
            difference_count=len(differences),
            deep=deep,
            skipped=scan.skipped,
            last_sweep_at=last_sweep_at,
            index_path=index_path,
        )

    async def _differences(self, found: dict[str, Raw], rows: dict[str, FileRow], deep: bool) -> list[Difference]:
        differences = [Difference(path, "gone from the disk") for path in rows if path not in found]
        for path, stamp in found.items():
            row = rows.get(path)
            if row is None:
                differences.append(Difference(path, "missing in the index"))
            elif deep or row.stamp != Stamp(*stamp):
                differences += await self._difference(path, row, deep)
        return sorted(differences, key=lambda difference: difference.path)

    async def _difference(self, path: str, row: FileRow, deep: bool) -> Sequence[Difference]:
        """By reading: another stamp alone is none."""
        document = await self._read(path)
        if document is None:
            return [Difference(path, "gone from the disk")]
        if document.digest != row.digest:
            return [Difference(path, "changed")]
        if deep and not await self._has_its_pieces(document):
            return [Difference(path, "other pieces than the text has")]
        return []

    async def _read(self, path: str) -> Document | None:
        if self._conversations and path.startswith(f"{SESSIONS}/"):
            return await self._conversations.look(path)
        found = await asyncio.to_thread(self._scanner.read, path)
        return found if isinstance(found, Document) else None

    async def _has_its_pieces(self, document: Document) -> bool:
        place, tokens = document.place, self._settings.passage_tokens
        cut = await asyncio.to_thread(chunk, document.text, place.path, tokens)
        kept = await self._store.pieces_of(place)
        return [(piece.start_line, piece.end_line, piece.text, piece.context) for piece in cut.pieces] == [
            (piece.start_line, piece.end_line, piece.text, piece.context) for piece in kept
        ]
