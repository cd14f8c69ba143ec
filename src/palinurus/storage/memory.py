"""One agent's memory in a file of its own, `derived/memory/<agent>.sqlite`, which may be deleted at any time.

A file that is damaged, or of a form that this release does not know, is thrown away: whoever was asking gets a
StorageDamaged that says so, and finds an empty index at the next call, which the next sweep fills.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from palinurus.config.atomic import make_directory
from palinurus.domain.errors import StorageDamaged, StorageError
from palinurus.memory.document import Chunked, Place
from palinurus.memory.embedder import Space
from palinurus.memory.store import Candidate, FileRow, Looked, Totals, Unembedded, WordQuery
from palinurus.storage.database import Database, Work
from palinurus.storage.memory_look import Looker
from palinurus.storage.memory_rows import (
    SQL,
    drop,
    embedded_text,
    file_row,
    meaning_digest,
    meaning_number,
    put,
    rows_of,
    touch,
    value_of,
)
from palinurus.storage.memory_vectors import learn_to_compare, pack

T = TypeVar("T")
MANY_GONE = 5_000  # pieces that went before it is asked whether too many vectors belong to nobody
MANY_WRITTEN = 10_000
KEPT_ORPHANS = 20_000  # vectors of words that no file holds any more; they may come back


class SqliteMemory:
    """Implements memory.store.MemoryStore."""

    def __init__(self, path: Path, *, readonly: bool = False, after: asyncio.Future[None] | None = None) -> None:
        """`after`: the file is not touched before this is done, because somebody may still write to it."""
        self.path = path
        self._after = after
        self._readonly = readonly
        self._database: Database | None = None
        self._looker = Looker()
        self._filled: dict[str, tuple[int, int]] = {}  # space: ids between which every piece has its vector
        self._gone = self._written = 0

    async def files(self) -> dict[Place, FileRow]:
        rows = await self._read(lambda connection: rows_of(connection, "files"))
        found = [file_row(row) for row in rows]
        return {row.place: row for row in found}

    async def put(self, documents: Sequence[tuple[FileRow, Chunked]]) -> None:
        await self._replace(lambda connection: put(connection, documents))
        await self._tidy(sum(len(cut.pieces) for _, cut in documents))

    async def touch(self, rows: Sequence[FileRow]) -> None:
        await self._write(lambda connection: touch(connection, rows))

    async def drop(self, places: Sequence[Place]) -> None:
        await self._replace(lambda connection: drop(connection, places))

    async def prepare(self, query: WordQuery, *, limit: int, sources: Sequence[str] = ()) -> None:
        wanted = frozenset(sources)
        await self._read(lambda connection: self._looker.prepare(connection, query, limit, wanted))

    async def look(
        self, query: WordQuery, vector: bytes | None, space: Space | None, *, limit: int, sources: Sequence[str] = ()
    ) -> Looked:
        wanted = frozenset(sources)
        return await self._read(lambda connection: self._looker.look(connection, query, vector, space, limit, wanted))

    async def pieces_of(self, place: Place) -> list[Candidate]:
        return await self._read(lambda connection: _pieces_of(connection, place))

    async def unembedded(self, space: Space, limit: int) -> list[Unembedded]:
        return await self._read(lambda connection: self._unembedded(connection, space, limit))

    async def put_vectors(self, space: Space, vectors: Sequence[tuple[bytes, bytes]]) -> None:
        packed = await asyncio.to_thread(_packed, space, vectors)
        await self._write(lambda connection: _put_vectors(connection, space, packed))
        await self._tidy(len(packed))

    async def use_space(self, space: Space | None) -> None:
        await self._write(lambda connection: _use_space(connection, space))
        self._looker.forget_vectors()
        self._filled = {}

    async def space_in_use(self) -> str:
        return await self._read(lambda connection: value_of(connection, "space_in_use") or "")

    async def totals(self) -> Totals:
        return await self._read(lambda connection: _totals(connection, self.path))

    async def scrub(self) -> None:
        await self._write(lambda connection: rows_of(connection, "scrub"))
        self._looker.forget_vectors()
        await (await self._opened()).scrub(rewrite=True)

    async def clear(self) -> None:
        await self._write(lambda connection: rows_of(connection, "clear"))

    async def close(self) -> None:
        if self._database is not None:
            database, self._database = self._database, None
            await database.close()

    async def _read(self, work: Work[T]) -> T:
        database = await self._opened()
        try:
            return await database.read(work)
        except (StorageError, apsw.SQLError) as error:
            if not _is_damage(error):
                raise
            raise await self._discarded(database, error) from error

    async def _write(self, work: Work[T]) -> T:
        database = await self._opened()
        try:
            return await database.write(work)
        except (StorageError, apsw.SQLError) as error:
            if not _is_damage(error):
                raise
            raise await self._discarded(database, error) from error

    async def _replace(self, work: Work[int]) -> None:
        """`work` tells how many pieces have gone."""
        if await self._write(lambda connection: self._lost(connection, work(connection))):
            self._looker.forget_vectors()

    async def _tidy(self, rows: int) -> None:
        """After much was written, the log goes back into the file, so that it does not take its room twice."""
        self._written += rows
        if self._written >= MANY_WRITTEN and self._database is not None:
            self._written = 0
            await self._database.scrub()

    async def _opened(self) -> Database:
        if self._after is not None:
            await asyncio.wait([self._after])
            self._after = None
        if self._database is None:
            if not self._readonly:
                make_directory(self.path.parent)
            try:
                self._database = Database(self.path, "memory", readonly=self._readonly, derived=True)
            except StorageDamaged as error:
                raise await self._discarded(None, error) from error
            self._looker, self._filled = Looker(), {}
        return self._database

    async def _discarded(self, database: Database | None, error: Exception) -> StorageDamaged:
        """What to say. Of several who meet the same damage the first throws the file away."""
        if self._readonly:
            return StorageDamaged(f"the index {self.path} is damaged: {error}", hint="its holder makes it anew")
        if self._database is database:
            await self.close()
            for suffix in ("", "-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        return StorageDamaged(f"the index {self.path} was damaged and is made anew", hint="nothing is lost with it")

    def _lost(self, connection: apsw.Connection, pieces: int) -> bool:
        """Now and then the vectors of what has gone are forgotten; a file that was only moved finds its own again."""
        self._gone += pieces
        if self._gone < MANY_GONE:
            return False
        self._gone = 0
        vectors = value_of(connection, "vector_count")
        embedded = sum(count for _, count in connection.execute(SQL["spaces"]))
        if vectors <= 2 * embedded + KEPT_ORPHANS:
            return False
        rows_of(connection, "drop_orphans")
        return True

    def _unembedded(self, connection: apsw.Connection, space: Space, limit: int) -> list[Unembedded]:
        """From the newest down; what was seen to be complete is not gone through again."""
        row = rows_of(connection, "space_named", (space.id,))
        last = rows_of(connection, "next_ids")[0][0] - 1
        low, high = self._filled.get(space.id, (last + 1, last))
        values = {"space": row[0][0] if row else 0, "limit": 2 * limit}
        above = rows_of(connection, "unembedded", {**values, "first": high + 1, "last": last})
        below = rows_of(connection, "unembedded", {**values, "first": 1, "last": low - 1})
        self._filled[space.id] = (below[0][0] + 1 if below else 1, high if above else last)
        found = {meaning: embedded_text(text, embed) for _, meaning, text, embed in above + below}
        return [Unembedded(meaning_digest(meaning), text) for meaning, text in found.items()][:limit]


def _is_damage(error: Exception) -> bool:
    """A file that SQLite cannot read; or one of the right form that lacks a part of it."""
    lacks = any(said in str(error) for said in ("no such table", "no such column", "has no column"))
    return isinstance(error, StorageDamaged) or lacks


def _pieces_of(connection: apsw.Connection, place: Place) -> list[Candidate]:
    for _, first, pieces, *_rest in rows_of(connection, "file_parts", (place.source, place.path)):
        rows = connection.execute(SQL["pieces_between"], (first, first + pieces - 1))
        return [Candidate(id_, place, start, end, text, 0, 0, None, on or "") for id_, start, end, text, on in rows]
    return []


def _packed(space: Space, vectors: Sequence[tuple[bytes, bytes]]) -> dict[int, bytes]:
    return {meaning_number(digest): pack(vector, space.dimensions) for digest, vector in vectors}


def _put_vectors(connection: apsw.Connection, space: Space, packed: dict[int, bytes]) -> None:
    connection.execute(SQL["add_space"], (space.id, space.dimensions))
    number, _, _, in_use = rows_of(connection, "space_named", (space.id,))[0]
    asked = {"space": number, "meanings": json.dumps(list(packed))}
    wanted: list[Any] = connection.execute(SQL["vectors_wanted"], asked).fetchall()
    new = {meaning: packed[meaning] for (meaning,) in wanted}
    connection.executemany(SQL["add_vector"], [(number, meaning, vector) for meaning, vector in new.items()])
    connection.execute(SQL["add_embedded"], {"space": number, "meanings": json.dumps(list(new))})
    if in_use:
        learn_to_compare(connection)
        connection.execute(SQL["add_signs"], (number,))


def _use_space(connection: apsw.Connection, space: Space | None) -> None:
    """Without one the vectors stay, for the day on which it is used again."""
    connection.execute(SQL["drop_signs"])
    if space is None:
        connection.execute(SQL["use_space"], ("",))
        return
    connection.execute(SQL["drop_other_spaces"], (space.id,))
    connection.execute(SQL["add_space"], (space.id, space.dimensions))
    connection.execute(SQL["use_space"], (space.id,))
    learn_to_compare(connection)
    connection.execute(SQL["add_signs"], rows_of(connection, "space_named", (space.id,))[0][:1])


def _totals(connection: apsw.Connection, path: Path) -> Totals:
    files, pieces, passages = rows_of(connection, "counts")[0]
    size = sum(file.stat().st_size for file in (path, path.with_name(f"{path.name}-wal")) if file.exists())
    embedded = dict(rows_of(connection, "spaces"))
    return Totals(files, pieces, passages, size, value_of(connection, "vector_count"), embedded)
