"""One agent's index in its own file, `derived/memory/<agent>.sqlite`, which may be deleted at any time.

A damaged file, or one of an unknown schema, is discarded: the caller gets a StorageDamaged that says so, and the next
call finds an empty index, which the next sweep fills.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from palinurus.config.atomic import make_directory
from palinurus.domain.errors import StorageDamaged, StorageError
from palinurus.memory.chunk import meaning_of
from palinurus.memory.document import (
    CandidateSet,
    DocumentPieces,
    DocumentRef,
    FileRow,
    IndexTotals,
    MissingVector,
    SearchCandidate,
    WordQuery,
)
from palinurus.memory.embedder import Space
from palinurus.memory.look import Looker
from palinurus.memory.vectors import load_comparison, pack
from palinurus.storage.database import Database, MemoryDatabase
from palinurus.storage.migrations import Series, declare_series
from palinurus.storage.transaction import Transaction, Work, declare_queries

declare_queries("memory", __file__)
declare_series("memory", Series("memory", Path(__file__).parent / "sql" / "sqlite" / "memory_steps"))
T = TypeVar("T")
MANY_GONE = 5_000  # removed pieces before orphaned vectors are counted
MANY_WRITTEN = 10_000
KEPT_ORPHANS = 20_000  # orphaned vectors that are tolerated; their words may come back


class MemoryStore:
    """Failures are StorageErrors; after one, nothing of that call was stored."""

    def __init__(self, path: Path | None, *, readonly: bool = False, after: asyncio.Future[None] | None = None) -> None:
        """Without a path it is in memory.

        `after`: awaited before the file is opened, because another writer may still use it.
        """
        self.path = path
        self._after = after
        self._readonly = readonly
        self._database: Database | None = None
        self._looker = Looker()
        self._filled: dict[str, tuple[int, int]] = {}  # space: id ranges in which every piece has its vector
        self._gone = self._written = 0

    async def files(self) -> dict[DocumentRef, FileRow]:
        rows = await self._read(lambda tx: tx.all("memory.files"))
        found = [FileRow(DocumentRef(row[0], row[1]), row[2:6], *row[6:]) for row in rows]
        return {row.ref: row for row in found}

    async def put(self, documents: Sequence[tuple[FileRow, DocumentPieces]]) -> None:
        """Replaces documents, in one transaction. When it returns, their words are found.

        Cached vectors for a piece's digest are used at once.
        """
        await self._replace(lambda tx: _put(tx, documents))
        await self._checkpoint(sum(len(cut.pieces) for _, cut in documents))

    async def touch(self, rows: Sequence[FileRow]) -> None:
        """Updates the stamp of an unchanged text."""
        stamps = [(*row.stamp, row.ref.source, row.ref.path) for row in rows]
        await self._write(lambda tx: tx.many("memory.touch_file", stamps))

    async def drop(self, refs: Sequence[DocumentRef]) -> None:
        await self._replace(lambda tx: _drop(tx, refs))

    async def prepare(self, query: WordQuery, *, limit: int, sources: Sequence[str] = ()) -> None:
        """Prepares a search whose vector comes later. The result is the same without this call."""
        wanted = frozenset(sources)
        await self._read(lambda tx: self._looker.prepare(tx, query, limit, wanted))

    async def look(
        self, query: WordQuery, vector: bytes | None, space: Space | None, *, limit: int, sources: Sequence[str] = ()
    ) -> CandidateSet:
        """Candidates of both rankings, at most `limit` of each, unordered, with their neighbours.

        The neighbours are the two pieces before and the two after each match, in the same document: a piece is scored
        by the words around it too. `vector` None: keywords only. `sources` empty: all.
        """
        wanted = frozenset(sources)
        return await self._read(lambda tx: self._looker.look(tx, query, vector, space, limit, wanted))

    async def pieces_of(self, ref: DocumentRef) -> list[SearchCandidate]:
        """A document's pieces in order, without scores."""
        rows = await self._read(lambda tx: tx.all("memory.pieces_of_file", source=ref.source, path=ref.path))
        return [SearchCandidate(id_, ref, start, end, text, 0, 0, None, on or "") for id_, start, end, text, on in rows]

    async def unembedded(self, space: Space, limit: int, *, after: int = 0) -> list[MissingVector]:
        """Distinct texts without a vector in this space, those of the newest documents first; only of pieces `after`
        one."""
        return await self._read(lambda tx: self._unembedded(tx, space, limit, after))

    async def last_piece(self) -> int:
        return await self._read(lambda tx: int(tx.one("memory.next_ids")[0]) - 1)

    async def put_vectors(self, space: Space, vectors: Sequence[tuple[bytes, bytes]]) -> None:
        """Stores vectors by digest. All are of one space; one of another size is a StorageError and none is stored.

        A vector without a piece is not stored: its text was removed meanwhile, perhaps by `forget`.
        """
        packed = await asyncio.to_thread(_packed, space, vectors)
        await self._write(lambda tx: _put_vectors(tx, space, packed))
        await self._checkpoint(len(packed))

    async def use_space(self, space: Space | None, *, kept: Sequence[Space] = ()) -> None:
        """Searches in this space from now on, and in no other; the vectors of others are dropped, but for those `kept`.

        Until then a space that is being filled is a shadow: `look` still uses the old one.
        """
        dropped = await self._write(lambda tx: _use_space(tx, space, kept))
        self._looker.forget_vectors()
        self._filled = {}
        if dropped:
            await (await self._opened()).scrub(rewrite=True)  # gives their place on the disk back

    async def space_in_use(self) -> str:
        return await self._read(lambda tx: tx.value("memory.space_in_use") or "")

    async def totals(self) -> IndexTotals:
        return await self._read(lambda tx: _totals(tx, self.path))

    async def scrub(self) -> None:
        """Removes every trace of deleted text: its vectors, and its bytes in unused pages."""
        await self._write(lambda tx: tx.run("memory.scrub"))
        self._looker.forget_vectors()
        await (await self._opened()).scrub(rewrite=True)

    async def clear(self) -> None:
        """Deletes everything but cached vectors: what is indexed again need not be embedded again."""
        await self._write(lambda tx: tx.run("memory.clear"))

    async def close(self) -> None:
        if self._database is not None:
            database, self._database = self._database, None
            await database.close()

    async def _write(self, work: Work[T]) -> T:
        return await self._read(work, write=True)

    async def _read(self, work: Work[T], *, write: bool = False) -> T:
        database = await self._opened()
        try:
            return await (database.write(work) if write else database.read(work))
        except StorageError as error:
            # A file that SQLite cannot read, or that lacks a table or column, is damaged.
            lacks = any(text in str(error) for text in ("no such table", "no such column", "has no column"))
            if not lacks and not isinstance(error, StorageDamaged):
                raise
            raise await self._discarded(database, error) from error

    async def _replace(self, work: Work[int]) -> None:
        """`work` returns the number of removed pieces."""
        if await self._write(lambda tx: self._drop_orphans(tx, work(tx))):
            self._looker.forget_vectors()

    async def _checkpoint(self, rows: int) -> None:
        """After a large write, moves the log into the file, so that it does not use twice the space."""
        self._written += rows
        if self._written >= MANY_WRITTEN and self._database is not None:
            self._written = 0
            await self._database.scrub()

    async def _opened(self) -> Database:
        if self._after is not None:
            await asyncio.wait([self._after])
            self._after = None
        if self._database is None:
            try:
                self._database = self._open()
            except StorageDamaged as error:
                raise await self._discarded(None, error) from error
            self._looker, self._filled = Looker(), {}
        return self._database

    def _open(self) -> Database:
        if self.path is None:
            return MemoryDatabase("memory")
        if not self._readonly:
            make_directory(self.path.parent)
        return Database(self.path, "memory", readonly=self._readonly, derived=True)

    async def _discarded(self, database: Database | None, error: Exception) -> StorageDamaged:
        """The error to raise. Of several callers that meet the same damage the first discards the file."""
        if self._readonly:
            return StorageDamaged(f"the index {self.path} is damaged: {error}", hint="the gateway rebuilds it")
        if self._database is database and self.path is not None:
            await self.close()
            for suffix in ("", "-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        return StorageDamaged(f"the index {self.path} was damaged and is rebuilt", hint="nothing is lost with it")

    def _drop_orphans(self, tx: Transaction, pieces: int) -> bool:
        """Sometimes drops orphaned vectors; a moved file still finds its own."""
        self._gone += pieces
        if self._gone < MANY_GONE:
            return False
        self._gone = 0
        embedded = sum(count for _, count in tx.all("memory.spaces"))
        if tx.value("memory.vector_count") <= 2 * embedded + KEPT_ORPHANS:
            return False
        tx.run("memory.drop_orphans")
        return True

    def _unembedded(self, tx: Transaction, space: Space, limit: int, after: int) -> list[MissingVector]:
        """From the newest down, skipping ranges that are known to be complete."""
        row = tx.one("memory.space_named", name=space.id)
        last = tx.one("memory.next_ids")[0] - 1
        low, high = self._filled.get(space.id, (last + 1, last))
        values = {"space": row[0] if row else 0, "limit": 2 * limit}
        above = tx.all("memory.unembedded", first=max(high, after) + 1, last=last, **values)
        below = tx.all("memory.unembedded", first=after + 1, last=low - 1, **values)
        if not after:
            self._filled[space.id] = (below[0][0] + 1 if below else 1, high if above else last)
        found = {meaning: meaning_of(text) for _, meaning, text in above + below}
        return [MissingVector(meaning.to_bytes(8, signed=True), text) for meaning, text in found.items()][:limit]


# -- documents into rows ----------------------------------------------------------------------------------------------


def _put(tx: Transaction, documents: Sequence[tuple[FileRow, DocumentPieces]]) -> int:
    """Replaces documents; returns the number of removed pieces."""
    went = _drop(tx, [row.ref for row, _ in documents])
    new = _Rows(*tx.one("memory.next_ids"))
    first = new.piece
    for row, cut in documents:
        new.add(row, cut)
    for query, rows in new.rows.items():
        tx.many(f"memory.{query}", rows)
    tx.run("memory.set_ids", piece=new.piece, passage=new.passage, context=new.context)
    tx.run("memory.count_embedded", sign=1, first=first, last=new.piece - 1)
    return went


def _drop(tx: Transaction, refs: Sequence[DocumentRef]) -> int:
    """Returns the number of removed pieces."""
    went = 0
    for ref in refs:
        if row := tx.one("memory.file_parts", source=ref.source, path=ref.path):
            file, pieces, first, last = row
            tx.run("memory.count_embedded", sign=-1, first=first, last=last)
            tx.run("memory.drop_file", file=file)
            went += pieces
    return went


def _meaning_number(digest: bytes) -> int:
    """A 64-bit number that identifies a text: enough for millions, and small."""
    return int.from_bytes(digest[:8], signed=True)


class _Rows:
    """The rows of a batch of documents, by the query that writes them."""

    def __init__(self, piece: int, passage: int, context: int) -> None:
        self.piece, self.passage, self.context = piece, passage, context
        names = ("add_file", "add_context", "add_piece", "add_passage", "add_piece_words", "add_passage_words")
        self.rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in names}

    def add(self, row: FileRow, cut: DocumentPieces) -> None:
        contexts: dict[str, int] = {}
        begins: dict[int, int] = {}  # passage: its first piece
        pieces, words = self.rows["add_piece"], self.rows["add_piece_words"]
        for number, piece in enumerate(cut.pieces, start=self.piece):
            context = contexts.setdefault(piece.context, self.context + len(contexts)) if piece.context else None
            begins.setdefault(piece.passage, number)
            meaning = _meaning_number(piece.digest)
            pieces.append((number, piece.start_line, piece.end_line, piece.text, context, meaning))
            words.append((number, piece.words))
        self.rows["add_context"] += [(id_, text) for text, id_ in contexts.items()]
        self.rows["add_passage"] += [(self.passage + number, first) for number, first in begins.items()]
        self.rows["add_passage_words"] += [(self.passage + number, cut.passages[number].words) for number in begins]
        file = (row.ref.source, row.ref.path, *row.stamp, row.digest, row.indexed_at, row.recipe)
        parts = (self.piece, len(cut.pieces), self.passage, len(cut.passages), self.context, len(contexts))
        self.rows["add_file"].append(file + parts)
        self.piece += len(cut.pieces)
        self.passage += len(cut.passages)
        self.context += len(contexts)


# -- vectors ----------------------------------------------------------------------------------------------------------


def _packed(space: Space, vectors: Sequence[tuple[bytes, bytes]]) -> dict[int, tuple[bytes, bytes | None]]:
    """With the codes of their words, if there are any."""
    end, packed = 4 * space.dimensions if space.has_tokens else None, {}
    for digest, told in vectors:
        packed[_meaning_number(digest)] = pack(told[:end], space.dimensions), told[end:] or None if end else None
    return packed


def _put_vectors(tx: Transaction, space: Space, packed: dict[int, tuple[bytes, bytes | None]]) -> None:
    tx.run("memory.add_space", name=space.id, dimensions=space.dimensions)
    number, _, _, in_use = tx.one("memory.space_named", name=space.id)
    wanted = tx.all("memory.vectors_wanted", space=number, meanings=json.dumps(list(packed)))
    new = [meaning for (meaning,) in wanted]
    tx.many("memory.add_vector", [(number, meaning, *packed[meaning]) for meaning in new])
    tx.run("memory.add_embedded", space=number, meanings=json.dumps(new))
    if in_use:
        load_comparison(tx)
        tx.run("memory.add_signs", space=number)


def _use_space(tx: Transaction, space: Space | None, kept: Sequence[Space]) -> bool:
    """Sets the space in use. Vectors of no space in use stay for later. Returns whether some were dropped."""
    tx.run("memory.drop_signs")
    if space is None:
        tx.run("memory.use_space", name="")
        return False
    before = tx.value("memory.vector_count")
    tx.run("memory.drop_other_spaces", names=json.dumps([each.id for each in (space, *kept)]))
    tx.run("memory.add_space", name=space.id, dimensions=space.dimensions)
    tx.run("memory.use_space", name=space.id)
    load_comparison(tx)
    tx.run("memory.add_signs", space=tx.one("memory.space_named", name=space.id)[0])
    return bool(tx.value("memory.vector_count") < before)


def _totals(tx: Transaction, path: Path | None) -> IndexTotals:
    files, pieces, passages = tx.one("memory.counts")
    on_disk = (path, path.with_name(f"{path.name}-wal")) if path is not None else ()
    size = sum(file.stat().st_size for file in on_disk if file.exists())
    return IndexTotals(files, pieces, passages, size, tx.value("memory.vector_count"), dict(tx.all("memory.spaces")))
