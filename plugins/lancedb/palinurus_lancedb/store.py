"""The index of one agent's memory in LanceDB: tables of documents, pieces, passages, and vectors of each space.

It has the methods of `memory.store.MemoryStore`, so that scanning, splitting and scoring are those of the builtin
engine; finding words and vectors is LanceDB's. Everything in it is derived: a damaged one is thrown away.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palinurus.domain.errors import StorageDamaged, StorageError
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
from palinurus.memory.memory import Memory

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from lancedb import AsyncConnection, AsyncTable

NEIGHBOURS = 2  # pieces on either side, by whose words a piece is scored too
TIDY_AFTER = 200  # writes
MANY = 10_000_000  # rows: LanceDB returns ten unless it is told otherwise
IN_USE = "space.txt"
Rows = list[dict[str, Any]]


class LanceMemory(Memory):
    """The built-in engine over this store, with an embedder of its own."""

    async def close(self) -> None:
        await super().close()
        if self.serving is not None:
            await self.serving.close()


class LanceStore:
    """Failures are StorageErrors."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._tables: dict[str, AsyncTable] = {}
        self._database: AsyncConnection | None = None
        self._one_writer = asyncio.Lock()
        self._writes = 0

    async def files(self) -> dict[DocumentRef, FileRow]:
        rows = await self._all("files")
        found = [
            FileRow(DocumentRef(each["source"], each["path"]), tuple(each["stamp"]), each["digest"], each["indexed_at"],
                    each["pieces"], each["recipe"])
            for each in rows
        ]  # fmt: skip
        return {row.ref: row for row in found}

    async def put(self, documents: Sequence[tuple[FileRow, DocumentPieces]]) -> None:
        async with self._writing():
            await self._delete([row.ref for row, _ in documents])
            first = await self._next_id()
            pieces: Rows = []
            passages: Rows = []
            for row, cut in documents:
                place = {"source": row.ref.source, "path": row.ref.path}
                ids = range(first, first + len(cut.pieces))
                for number, piece in zip(ids, cut.pieces, strict=True):
                    pieces.append({**place, "id": number, "start": piece.start_line, "end": piece.end_line,
                                   "text": piece.text, "words": piece.words, "context": piece.context,
                                   "meaning": piece.meaning, "digest": piece.digest.hex()})  # fmt: skip
                for at, passage in enumerate(cut.passages):
                    own = [number for number, piece in zip(ids, cut.pieces, strict=True) if piece.passage == at]
                    passages.append({**place, "first": own[0], "last": own[-1], "words": passage.words})
                first += len(cut.pieces) + NEIGHBOURS  # so that no piece is a neighbour of another document's
            await self._add("files", [_file_row(row) for row, _ in documents])
            await self._add("pieces", pieces)
            await self._add("passages", passages)

    async def touch(self, rows: Sequence[FileRow]) -> None:
        async with self._writing():
            known = await self.files()
            rows = [row for row in rows if row.ref in known]
            if rows:
                await (await self._table("files")).delete(_where_refs([row.ref for row in rows]))
                await self._add("files", [_file_row(row) for row in rows])

    async def drop(self, refs: Sequence[DocumentRef]) -> None:
        async with self._writing():
            await self._delete(refs)

    async def prepare(self, query: WordQuery, *, limit: int, sources: Sequence[str] = ()) -> None:
        """LanceDB searches fast enough to begin when the index was compared."""

    async def look(
        self, query: WordQuery, vector: bytes | None, space: Space | None, *, limit: int, sources: Sequence[str] = ()
    ) -> CandidateSet:
        async with self._reading():
            text = " ".join(query.words).encode("utf-8", "replace").decode()
            words = {row["id"]: row["_score"] for row in await self._match("pieces", text, ["id"], limit, sources)}
            found = await self._match("passages", text, ["first", "last"], limit, sources)
            around = {n: row["_score"] for row in found for n in range(row["first"], row["last"] + 1)}
            near = await self._nearest(vector, space, limit, sources)
            wanted = {*words, *(n for row in found[:5] for n in range(row["first"], row["last"] + 1)), *near}
            rows = await self._with_neighbours(wanted)
            cosines = await self._cosines(rows, vector, space)
            candidates = tuple(
                SearchCandidate(
                    row["id"],
                    DocumentRef(row["source"], row["path"]),
                    row["start"],
                    row["end"],
                    row["text"],
                    words.get(row["id"], 0.0),
                    around.get(row["id"], 0.0),
                    cosines.get(row["digest"]),
                    row["context"],
                )
                for row in rows
            )
            totals = await self.totals()
            embedded = totals.embedded.get(space.id, 0) if space and vector and space.id == self._used() else 0
            return CandidateSet(candidates, totals.pieces, embedded)

    async def pieces_of(self, ref: DocumentRef) -> list[SearchCandidate]:
        rows = sorted(await self._all("pieces", _where_refs([ref])), key=lambda row: row["id"])
        return [
            SearchCandidate(row["id"], ref, row["start"], row["end"], row["text"], 0, 0, None, row["context"])
            for row in rows
        ]

    # -- vectors ------------------------------------------------------------------------------------------------------

    async def unembedded(self, space: Space, limit: int) -> list[MissingVector]:
        known = await self._digests(space)
        rows = await self._all("pieces", columns=["id", "digest", "meaning"])
        new = {row["digest"]: row["meaning"] for row in sorted(rows, key=lambda row: -row["id"])}
        missing = [(digest, meaning) for digest, meaning in new.items() if digest not in known]
        return [MissingVector(bytes.fromhex(digest), meaning) for digest, meaning in missing[:limit]]

    async def put_vectors(self, space: Space, vectors: Sequence[tuple[bytes, bytes]]) -> None:
        numbers = {digest.hex(): _numbers(vector, space) for digest, vector in vectors}
        async with self._writing():
            wanted = {row["digest"] for row in await self._all("pieces", columns=["digest"])}
            rows = [{"digest": digest, "vector": each} for digest, each in numbers.items() if digest in wanted]
            if rows:
                await self._add(_name_of(space.id), rows, schema=_vectors(space.id, space.dimensions))

    async def use_space(self, space: Space | None) -> None:
        async with self._writing():
            self._use(space.id if space else "")

    async def space_in_use(self) -> str:
        return self._used()

    async def totals(self) -> IndexTotals:
        pieces = [row["digest"] for row in await self._all("pieces", columns=["digest"])]
        files, passages = [await (await self._table(name)).count_rows() for name in ("files", "passages")]
        embedded: dict[str, int] = {}
        cached = 0
        for space_id, name in await self._spaces():
            known = {row["digest"] for row in await self._all(name, columns=["digest"])}
            embedded[space_id] = sum(digest in known for digest in pieces)
            cached += len(known)
        size = await asyncio.to_thread(_size, self.path)
        return IndexTotals(files, len(pieces), passages, size, cached, embedded)

    async def scrub(self) -> None:
        """LanceDB keeps old versions and deleted rows until it rewrites them: so every table is made anew."""
        async with self._writing():
            kept = {digest["digest"] for digest in await self._all("pieces", columns=["digest"])}
            tables = {name: await self._all(name) for name in ("files", "pieces", "passages")}
            spaces = [(space_id, name, await self._all(name)) for space_id, name in await self._spaces()]
            used = self._used()
            await self._throw_away()
            for name, rows in tables.items():
                await self._add(name, rows)
            for space_id, name, rows in spaces:
                if left := [row for row in rows if row["digest"] in kept]:
                    await self._add(name, left, schema=_vectors(space_id, len(left[0]["vector"])))
            self._use(used)

    async def clear(self) -> None:
        async with self._writing():
            for name in ("files", "pieces", "passages"):
                await (await self._table(name)).delete("true")

    async def close(self) -> None:
        async with self._one_writer:
            self._tables.clear()
            if self._database is not None:
                self._database.close()  # type: ignore[no-untyped-call]
            self._database = None

    # -- LanceDB ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _reading(self) -> AsyncGenerator[None]:
        try:
            yield
        except (RuntimeError, ValueError, OSError) as error:  # what LanceDB raises, whatever it is about
            if isinstance(error, OSError) and not self._database:
                raise StorageError(f"the memory index {self.path} cannot be used: {error}") from None
            await self._throw_away()
            said = str(error).partition("\n")[0][:200]
            raise StorageDamaged(f"the memory index {self.path} was damaged and is made anew: {said}") from error

    @asynccontextmanager
    async def _writing(self) -> AsyncGenerator[None]:
        async with self._one_writer, self._reading():
            yield
            self._writes += 1
            if self._writes % TIDY_AFTER == 0:
                for table in self._tables.values():
                    await table.optimize(cleanup_older_than=timedelta(minutes=10))

    async def _table(self, name: str, schema: pa.Schema | None = None) -> AsyncTable:
        """Of that name; made when it is not there."""
        if name in self._tables:
            return self._tables[name]
        if self._database is None:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            lancedb = await asyncio.to_thread(_import)
            self._database = await lancedb.connect_async(str(self.path))
        if name in (await self._database.list_tables()).tables:
            table = await self._database.open_table(name)
        else:
            table = await self._database.create_table(name, schema=schema or _schemas()[name])
            if name in ("pieces", "passages"):
                from lancedb.index import FTS

                words = FTS(base_tokenizer="simple", stem=True, remove_stop_words=False, with_position=False)
                await table.create_index("words", config=words)
        self._tables[name] = table
        return table

    async def _all(self, name: str, where: str = "", columns: list[str] | None = None) -> Rows:
        query = (await self._table(name)).query().limit(MANY)
        query = query.where(where) if where else query
        found = await (query.select(columns) if columns else query).to_arrow()
        rows: Rows = await asyncio.to_thread(found.to_pylist)
        return rows

    async def _add(self, name: str, rows: Rows, schema: pa.Schema | None = None) -> None:
        if not rows:
            return
        import pyarrow as pa

        table = await self._table(name, schema)
        data = await asyncio.to_thread(pa.Table.from_pylist, rows, schema=schema or _schemas()[name])
        await table.add(data)

    async def _delete(self, refs: Sequence[DocumentRef]) -> None:
        if refs:
            for name in ("files", "pieces", "passages"):
                await (await self._table(name)).delete(_where_refs(refs))

    async def _next_id(self) -> int:
        return max((row["id"] for row in await self._all("pieces", columns=["id"])), default=0) + NEIGHBOURS + 1

    async def _match(self, name: str, text: str, columns: list[str], limit: int, sources: Sequence[str]) -> Rows:
        if not text.strip():
            return []
        table = await self._table(name)
        query = table.query().nearest_to_text(text, columns="words").limit(limit).select([*columns, "_score"])
        if sources:
            query = query.where(f"source IN ({_listed(sources)})")
        rows: Rows = await query.to_list()
        return rows

    async def _nearest(
        self, vector: bytes | None, space: Space | None, limit: int, sources: Sequence[str]
    ) -> dict[int, float]:
        if vector is None or space is None or space.id != self._used():
            return {}
        wanted = _numbers(vector, space)
        table = await self._table(_name_of(space.id), _vectors(space.id, space.dimensions))
        more = limit * (10 if sources else 1)
        near = await table.query().nearest_to(wanted).distance_type("cosine").limit(more).to_list()
        distances = {row["digest"]: row["_distance"] for row in near}
        if not distances:
            return {}
        where = f"digest IN ({_listed(distances)})" + (f" AND source IN ({_listed(sources)})" if sources else "")
        rows = await self._all("pieces", where, ["id", "digest"])
        rows.sort(key=lambda row: distances[row["digest"]])
        return {row["id"]: 1 - distances[row["digest"]] for row in rows[:limit]}

    async def _with_neighbours(self, wanted: Iterable[int]) -> Rows:
        """Of one document only: between two documents ids are left out."""
        ids = {each + step for each in wanted for step in range(-NEIGHBOURS, NEIGHBOURS + 1)}
        return await self._all("pieces", f"id IN ({', '.join(map(str, sorted(ids)))})") if ids else []

    async def _cosines(self, rows: Rows, vector: bytes | None, space: Space | None) -> dict[str, float]:
        if vector is None or space is None or space.id != self._used() or not rows:
            return {}
        import numpy as np

        asked = np.array(_numbers(vector, space))
        where = f"digest IN ({_listed({row['digest'] for row in rows})})"
        found = await self._all(_name_of(space.id), where)
        return {row["digest"]: float(asked @ np.array(row["vector"])) for row in found}

    async def _digests(self, space: Space) -> set[str]:
        table = _name_of(space.id)
        if table not in [name for _, name in await self._spaces()]:
            return set()
        return {row["digest"] for row in await self._all(table, columns=["digest"])}

    async def _spaces(self) -> list[tuple[str, str]]:
        await self._table("files")
        assert self._database is not None
        names = [name for name in (await self._database.list_tables()).tables if name.startswith("vectors_")]
        return [((await (await self._table(each)).schema()).metadata[b"space"].decode(), each) for each in names]

    def _used(self) -> str:
        try:
            return (self.path / IN_USE).read_text()
        except FileNotFoundError:
            return ""

    def _use(self, space_id: str) -> None:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.path / IN_USE).write_text(space_id)

    async def _throw_away(self) -> None:
        self._tables.clear()
        if self._database is not None:
            self._database.close()  # type: ignore[no-untyped-call]
        self._database = None
        await asyncio.to_thread(shutil.rmtree, self.path, ignore_errors=True)


def _import() -> Any:
    import lancedb

    return lancedb


def _schemas() -> dict[str, pa.Schema]:
    import pyarrow as pa

    place = [("source", pa.string()), ("path", pa.string())]
    numbers = [(name, pa.int64()) for name in ("id", "start", "end")]
    texts = [(name, pa.string()) for name in ("text", "words", "context", "meaning", "digest")]
    file = [("stamp", pa.list_(pa.uint64(), 4)), ("digest", pa.binary()), ("indexed_at", pa.int64()),
            ("pieces", pa.int64()), ("recipe", pa.string())]  # fmt: skip
    passage = [("first", pa.int64()), ("last", pa.int64()), ("words", pa.string())]
    kinds = {"files": file, "pieces": [*numbers, *texts], "passages": passage}
    return {name: pa.schema([*place, *more]) for name, more in kinds.items()}


def _vectors(space_id: str, dimensions: int) -> pa.Schema:
    import pyarrow as pa

    fields = [("digest", pa.string()), ("vector", pa.list_(pa.float32(), dimensions))]
    return pa.schema(fields, metadata={"space": space_id})


def _file_row(row: FileRow) -> dict[str, Any]:
    return {"source": row.ref.source, "path": row.ref.path, "stamp": list(row.stamp), "digest": row.digest,
            "indexed_at": row.indexed_at, "pieces": row.pieces, "recipe": row.recipe}  # fmt: skip


def _where_refs(refs: Iterable[DocumentRef]) -> str:
    return " OR ".join(f"(source = {_quoted(each.source)} AND path = {_quoted(each.path)})" for each in refs)


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(map(_quoted, texts)) or "''"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name_of(space_id: str) -> str:
    return f"vectors_{hashlib.sha256(space_id.encode()).hexdigest()[:16]}"


def _numbers(vector: bytes, space: Space) -> list[float]:
    """Raises StorageError for what is no vector of this space."""
    import numpy as np

    size = 4 * space.dimensions
    whole = len(vector) == size or (space.has_tokens and len(vector) > size)  # token states, which are not kept here
    found = np.frombuffer(vector[:size], "<f4") if whole else None
    if found is None or not np.isfinite(found).all() or not found.any():
        raise StorageError(f"this is no vector of the space {space.id}", hint="check the embedder")
    numbers: list[float] = found.tolist()
    return numbers


def _size(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
