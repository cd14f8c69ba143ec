"""A workspace and the index over it, for the tests of scanning and indexing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from palinurus.memory.chunk import chunk
from palinurus.memory.conversations import StoredDocuments
from palinurus.memory.document import DocumentRef, MemoryDocument
from palinurus.memory.index import MemoryIndex
from palinurus.memory.scan import Scanner
from palinurus.memory.settings import Collection, MemorySettings
from palinurus.memory.store import MemoryStore
from palinurus.memory.terms import word_query
from palinurus.testing.fakes import FakeClock


class Indexed:
    def __init__(
        self,
        root: Path,
        store: MemoryStore | None = None,
        *,
        collections: tuple[Collection, ...] = (),
        sources: tuple[str, ...] = ("memory",),
        conversations: StoredDocuments | None = None,
    ) -> None:
        self.root = root
        (root / "memory").mkdir(parents=True, exist_ok=True)
        self.store: MemoryStore = store or MemoryStore(None)
        self.settings = MemorySettings(sources=sources, collections=collections)
        self.scanner = Scanner(root, collections, sources=sources)
        self.index = MemoryIndex(
            self.store, self.scanner, FakeClock(), self.settings, conversations=conversations, agent="main"
        )

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    async def asks(self, question: str) -> list[str]:
        """What a search finds, having caught up with the disk first."""
        fresh = await self.index.catch_up(5)
        assert (fresh.state, fresh.behind) == ("fresh", ())
        looked = await self.store.look(word_query(question), None, None, limit=50)
        return sorted(f"{each.ref.path}: {each.text}" for each in looked.candidates if each.words > 0)

    async def equals_the_disk(self) -> None:
        """Every piece of every file, and nothing else."""
        found = await asyncio.to_thread(self.scanner.scan)
        texts = {path: self.scanner.read(path) for path in found.stamps}
        cut = {
            document.ref: [(piece.start_line, piece.text) for piece in _pieces(document)]
            for document in texts.values()
            if isinstance(document, MemoryDocument)
        }
        kept = {place: await self._kept(place) for place in await self.store.files()}
        assert kept == cut

    async def _kept(self, place: DocumentRef) -> list[tuple[int, str]]:
        return [(piece.start_line, piece.text) for piece in await self.store.pieces_of(place)]

    async def close(self) -> None:
        await self.index.close()
        await self.store.close()


def _pieces(document: MemoryDocument) -> tuple:  # type: ignore[type-arg]
    return chunk(document.text, document.ref.path, 400).pieces
