"""A memory store in memory, held to the same contract suite as SQLite's. It looks at everything, every time."""

from __future__ import annotations

import asyncio
import math
import struct
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from palinurus.domain.errors import StorageError
from palinurus.memory.document import Chunked, Piece, Place
from palinurus.memory.embedder import Space
from palinurus.memory.stem import stem, words_of
from palinurus.memory.store import Candidate, FileRow, Looked, Totals, Unembedded, WordQuery

Key = TypeVar("Key", bound=Hashable)
NEIGHBOURS = 2
WHOLE = 5  # passages that are candidates as a whole


class Kept(Struct, frozen=True):
    row: FileRow
    cut: Chunked
    first: int  # id of its first piece


class VolatileMemory:
    """Implements memory.store.MemoryStore."""

    def __init__(self) -> None:
        self._kept: dict[Place, Kept] = {}
        self._vectors: dict[str, dict[bytes, tuple[float, ...]]] = {}  # by space id, by digest
        self._in_use = ""
        self._next = 1

    async def files(self) -> dict[Place, FileRow]:
        await asyncio.sleep(0)
        return {place: kept.row for place, kept in self._kept.items()}

    async def put(self, documents: Sequence[tuple[FileRow, Chunked]]) -> None:
        await asyncio.sleep(0)
        for row, cut in documents:
            self._kept.pop(row.place, None)  # what is new comes last
            self._kept[row.place] = Kept(msgspec.structs.replace(row, pieces=len(cut.pieces)), cut, self._next)
            self._next += len(cut.pieces)

    async def touch(self, rows: Sequence[FileRow]) -> None:
        await asyncio.sleep(0)
        for row in rows:
            if kept := self._kept.get(row.place):
                same = msgspec.structs.replace(kept.row, stamp=row.stamp)
                self._kept[row.place] = msgspec.structs.replace(kept, row=same)

    async def drop(self, places: Sequence[Place]) -> None:
        await asyncio.sleep(0)
        for place in places:
            self._kept.pop(place, None)

    async def prepare(self, query: WordQuery, *, limit: int, sources: Sequence[str] = ()) -> None:
        await asyncio.sleep(0)

    async def look(
        self, query: WordQuery, vector: bytes | None, space: Space | None, *, limit: int, sources: Sequence[str] = ()
    ) -> Looked:
        await asyncio.sleep(0)
        terms = [stem(word) for word in query.words]
        pieces = {id_: _terms(piece.words) for _, id_, piece in self._pieces()}
        words = _bm25(terms, pieces)
        passages = _bm25(terms, {key: _terms(said) for key, said in self._passages(sources)})
        cosines = self._cosines(vector, space)
        wanted = {id_ for kept, id_, _ in self._pieces() if not sources or kept.row.place.source in sources}
        found = {id_ for leg in (words, cosines) for id_ in _best({n: leg[n] for n in leg if n in wanted}, limit)}
        whole = set(_best(passages, WHOLE))
        return Looked(
            tuple(
                self._candidate(kept, id_, piece, words, passages, cosines)
                for kept, id_, piece in self._pieces()
                if _is_near(id_, found, kept) or (kept.first, piece.passage) in whole
            ),
            len(pieces),
            len(cosines),
            tuple(sum(term in said for said in pieces.values()) for term in terms),
        )

    async def pieces_of(self, place: Place) -> list[Candidate]:
        await asyncio.sleep(0)
        return [
            self._candidate(kept, id_, piece, {}, {}, {})
            for kept, id_, piece in self._pieces()
            if kept.row.place == place
        ]

    async def unembedded(self, space: Space, limit: int) -> list[Unembedded]:
        await asyncio.sleep(0)
        known = self._vectors.get(space.id, {})
        pieces = [piece for _, _, piece in self._pieces()]
        missing = {piece.digest: piece.meaning for piece in reversed(pieces) if piece.digest not in known}
        return [Unembedded(digest, meaning) for digest, meaning in missing.items()][:limit]

    async def put_vectors(self, space: Space, vectors: Sequence[tuple[bytes, bytes]]) -> None:
        await asyncio.sleep(0)
        numbers = {digest: _numbers(vector, space) for digest, vector in vectors}
        meant = {piece.digest for _, _, piece in self._pieces()}
        kept = {digest: vector for digest, vector in numbers.items() if digest in meant}
        self._vectors.setdefault(space.id, {}).update(kept)

    async def use_space(self, space: Space | None) -> None:
        await asyncio.sleep(0)
        self._in_use = space.id if space else ""
        if space is not None:
            self._vectors = {space.id: self._vectors.get(space.id, {})}

    async def space_in_use(self) -> str:
        await asyncio.sleep(0)
        return self._in_use

    async def totals(self) -> Totals:
        await asyncio.sleep(0)
        pieces = [piece for _, _, piece in self._pieces()]
        return Totals(
            len(self._kept),
            len(pieces),
            sum(len(kept.cut.passages) for kept in self._kept.values()),
            0,
            sum(len(vectors) for vectors in self._vectors.values()),
            {space: sum(piece.digest in known for piece in pieces) for space, known in self._vectors.items()},
        )

    async def scrub(self) -> None:
        await asyncio.sleep(0)
        meant = {piece.digest for _, _, piece in self._pieces()}
        for known in self._vectors.values():
            for digest in known.keys() - meant:
                del known[digest]

    async def clear(self) -> None:
        await asyncio.sleep(0)
        self._kept = {}

    async def close(self) -> None:
        await asyncio.sleep(0)

    def _pieces(self) -> Iterator[tuple[Kept, int, Piece]]:
        for kept in self._kept.values():
            for id_, piece in enumerate(kept.cut.pieces, start=kept.first):
                yield kept, id_, piece

    def _passages(self, sources: Sequence[str]) -> Iterator[tuple[tuple[int, int], str]]:
        for kept in self._kept.values():
            if not sources or kept.row.place.source in sources:
                yield from (((kept.first, number), each.words) for number, each in enumerate(kept.cut.passages))

    def _cosines(self, vector: bytes | None, space: Space | None) -> dict[int, float]:
        if vector is None or space is None or space.id != self._in_use:
            return {}
        asked, known = _numbers(vector, space), self._vectors[space.id]
        return {id_: _cosine(asked, known[piece.digest]) for _, id_, piece in self._pieces() if piece.digest in known}

    def _candidate(
        self,
        kept: Kept,
        id_: int,
        piece: Piece,
        words: dict[int, float],
        passages: dict[tuple[int, int], float],
        cosines: dict[int, float],
    ) -> Candidate:
        around = passages.get((kept.first, piece.passage), 0.0)
        lines = (piece.start_line, piece.end_line, piece.text)
        return Candidate(id_, kept.row.place, *lines, words.get(id_, 0.0), around, cosines.get(id_), piece.context)


def _terms(text: str) -> Counter[str]:
    return Counter(stem(word) for word in words_of(text))


def _bm25(terms: Sequence[str], texts: dict[Key, Counter[str]]) -> dict[Key, float]:
    if not texts:
        return {}
    mean = sum(said.total() for said in texts.values()) / len(texts) or 1.0
    rarity = {term: _rarity(sum(term in said for said in texts.values()), len(texts)) for term in terms}
    scores = {
        key: sum(
            rarity[term] * said[term] * 2.2 / (said[term] + 1.2 * (0.25 + 0.75 * said.total() / mean))
            for term in terms
            if term in said
        )
        for key, said in texts.items()
    }
    return {key: score for key, score in scores.items() if score > 0}


def _rarity(having: int, of: int) -> float:
    return max(1e-6, math.log((of - having + 0.5) / (having + 0.5)))


def _best(scores: dict[Key, float], limit: int) -> list[Key]:
    return sorted(scores, key=scores.__getitem__, reverse=True)[:limit]


def _is_near(id_: int, found: set[int], kept: Kept) -> bool:
    last = kept.first + len(kept.cut.pieces) - 1
    return any(near in found for near in range(max(kept.first, id_ - NEIGHBOURS), min(last, id_ + NEIGHBOURS) + 1))


def _numbers(vector: bytes, space: Space) -> tuple[float, ...]:
    if len(vector) != 4 * space.dimensions:
        raise StorageError(f"a vector of {len(vector) // 4} numbers does not belong in {space.id}")
    numbers = struct.unpack(f"<{space.dimensions}f", vector)
    if not all(map(math.isfinite, numbers)):
        raise StorageError("a vector that is not a number cannot be kept")
    return numbers


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b) or 1.0)
