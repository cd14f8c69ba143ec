"""Searches one agent's index, on the reader thread: words, vectors, neighbours, and their documents.

The cost is bounded in large indexes. Words that occur in very many pieces are dropped if the question has rarer ones,
because ranking costs a microsecond for each matching piece; vectors are first compared by their signs only, which are
few bytes, and only the nearest of those exactly.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from heapq import nlargest
from typing import Any

from msgspec import Struct

from palinurus.domain.errors import StorageError
from palinurus.memory.document import CandidateSet, DocumentRef, SearchCandidate, WordQuery
from palinurus.memory.embedder import Space
from palinurus.memory.late import QueryTokens, late_scores
from palinurus.memory.vectors import Signs, cosines_of, load_comparison, nearest_of, query_bytes
from palinurus.storage.sqlite_extras import stemmed
from palinurus.storage.transaction import Transaction
from palinurus.text.words import folded

NEIGHBOURS = 2  # pieces on either side
RANKED = (2_000, 20_000)  # maximum pieces that are ranked, in small and in large indexes: a microsecond each
POOL = 5  # candidates per requested result: a passage's words may lift a piece
PASSAGE_SHARE = 0.5  # weight in the score that selects candidates
FEW = 2_000  # up to this number, all vectors are compared exactly
WHOLE = 5  # passages that are candidates as a whole
NEAR = 10  # vectors that are compared exactly, per requested result

Scores = dict[int, float]


class Layout(Struct):
    """Which ids belong to which file and passage. Reloaded when the index has changed."""

    version: tuple[int, int]
    file_starts: list[int]
    file_counts: list[int]
    refs: list[DocumentRef]
    passage_starts: list[int]
    passages: list[int]
    pieces: int

    def file_of(self, piece: int) -> int:
        return bisect_right(self.file_starts, piece) - 1

    def source_of(self, piece: int) -> str:
        return self.refs[self.file_of(piece)].source

    def passage_of(self, piece: int) -> int:
        return self.passages[bisect_right(self.passage_starts, piece) - 1]

    def pieces_in(self, passage: int) -> range:
        at = bisect_right(self.passages, passage) - 1
        first = self.passage_starts[at]
        file = self.file_of(first)
        end = self.file_starts[file] + self.file_counts[file]
        return range(first, min(end, self.passage_starts[at + 1]) if at + 1 < len(self.passages) else end)


class Looker:
    """Searches in one transaction, and caches the layout and the last words between searches."""

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._words: _Words | None = None
        self._signs = Signs()

    def forget_vectors(self) -> None:
        """Drops cached vectors: some were deleted, and their ids may be reused."""
        self._signs = Signs()

    def prepare(self, tx: Transaction, query: WordQuery, limit: int, sources: frozenset[str]) -> None:
        """Searches the words of a question while its vector is still being computed."""
        with tx.one_state():
            self._words_of(tx, query, limit, sources)

    def look(
        self,
        tx: Transaction,
        query: WordQuery,
        vector: bytes | None,
        space: Space | None,
        limit: int,
        sources: frozenset[str],
    ) -> CandidateSet:
        with tx.one_state():
            found = self._words_of(tx, query, limit, sources)
            layout, vectors = found.layout, _Vectors(tx, vector, space, self._signs)
            nearby = vectors.nearest(limit) if not sources else _nearest_of(vectors, layout, limit, sources)
            ids = sorted({*_with_neighbours({*found.best, *nearby}, layout), *found.whole})
            cosines, codes = vectors.cosines(ids)
            late = vectors.late(codes, found, query)
            rows = tx.all("memory.pieces_by_id", ids=json.dumps(ids))
            candidates = tuple(_candidate(row, layout, found, cosines, late) for row in rows)
            return CandidateSet(candidates, layout.pieces, vectors.embedded, found.frequencies)

    def _words_of(self, tx: Transaction, query: WordQuery, limit: int, sources: frozenset[str]) -> _Words:
        """The cached words, unless the index has changed since."""
        layout, known = self.layout(tx), self._words
        if known is None or known.layout is not layout or known.asked != (query, limit, sources):
            known = self._words = _Words(tx, query, layout, limit, sources)
        return known

    def layout(self, tx: Transaction) -> Layout:
        version = tx.version
        if self._layout is None or self._layout.version != version:
            self._layout = _read_layout(tx, version)
        return self._layout


class _Words:
    """The words of a question: how many pieces have each, and which pieces and passages match."""

    def __init__(self, tx: Transaction, query: WordQuery, layout: Layout, limit: int, sources: frozenset[str]) -> None:
        self.asked = (query, limit, sources)
        self.layout = layout
        terms = stemmed(tx, query.words)
        counts = [_count(tx, "piece_count", term) for term in terms]
        self.frequencies = tuple(counts)
        rows = max(RANKED[0], min(RANKED[1], layout.pieces // 10))
        self.passages: Scores = self._in_passages(tx, query.words, terms, rows // 2, len(layout.passages))
        self.pieces: Scores = {}
        kept, total = _rarest(query.words, counts, rows)
        if total > rows:
            self.pieces = dict(tx.all("memory.newest_pieces", words=kept, limit=rows))
        elif kept:  # other sources are filtered out afterwards, so then all are needed
            self.pieces = dict(tx.all("memory.best_pieces", words=kept, limit=rows if sources else limit * POOL))
        self.best: list[int] = self._choose(layout, limit, sources)
        theirs = [at for at in self.passages if not sources or layout.source_of(layout.pieces_in(at)[0]) in sources]
        best = nlargest(WHOLE, theirs, key=self.passages.__getitem__)
        # All pieces of the best passages: a date or a title may be in the passage's words only.
        self.whole = [piece for passage in best for piece in layout.pieces_in(passage)]

    def _in_passages(
        self, tx: Transaction, words: Sequence[str], terms: Sequence[str], rows: int, passages: int
    ) -> Scores:
        few = passages <= rows  # then no word can match too many
        counts = [bool(term) if few else _count(tx, "passage_count", term) for term in terms]
        kept, _ = _rarest(words, counts, rows)
        return dict(tx.all("memory.best_passages", words=kept, limit=rows)) if kept else {}

    def _choose(self, layout: Layout, limit: int, sources: frozenset[str]) -> list[int]:
        """Selects candidates by their own words and those of their passage."""
        pieces = {piece: self.pieces[piece] for piece in _wanted(self.pieces, layout, sources)}
        if len(pieces) <= limit:
            return list(pieces)
        own = max(pieces.values()) or 1.0
        shared = max(self.passages.values(), default=0.0) or 1.0
        of = layout.passage_of
        scored = {
            piece: score / own + PASSAGE_SHARE * self.passages.get(of(piece), 0.0) / shared
            for piece, score in pieces.items()
        }
        return nlargest(limit, scored, key=scored.__getitem__)


class _Vectors:
    """A question's vector and those of the space in use. In another space, or without a vector, nothing matches."""

    def __init__(self, tx: Transaction, vector: bytes | None, space: Space | None, signs: Signs) -> None:
        self._tx = tx
        self._signs = signs
        self.embedded = 0
        row = tx.one("memory.space_named", name=space.id) if space is not None else None
        if vector is None or row is None or not row[3]:
            return
        self._space, dimensions, embedded, _ = row
        end = 4 * dimensions if space is not None and space.has_tokens else len(vector)
        self._query, self._tokens = query_bytes(vector[:end], dimensions), QueryTokens.read(vector[end:])
        with suppress(StorageError):  # if vectors cannot be compared, keyword search still works
            load_comparison(tx)
            self.embedded = embedded

    def nearest(self, limit: int) -> list[int]:
        """The nearest pieces."""
        if not self.embedded:
            return []
        if self.embedded <= FEW:
            rows = self._tx.all("memory.nearest", query=self._query, space=self._space, limit=limit)
            ids = [id_ for (id_,) in rows]
        else:
            near = self._signs.nearest(self._tx, self._space, self._query, limit * NEAR)
            ids = nearest_of(self._tx, near, self._query, limit)
        return [piece for (piece,) in self._tx.all("memory.pieces_meaning", ids=json.dumps(ids))]

    def cosines(self, pieces: Sequence[int]) -> tuple[Scores, dict[int, bytes]]:
        """The cosines, and the codes of words."""
        if not self.embedded:
            return {}, {}
        if self.embedded > FEW or self._tokens is not None:
            return cosines_of(self._tx, self._space, pieces, self._query)
        ids = json.dumps(pieces)
        return dict(self._tx.all("memory.cosines", query=self._query, space=self._space, ids=ids)), {}

    def late(self, codes: dict[int, bytes], found: _Words, query: WordQuery) -> Scores:
        if not codes or self._tokens is None:
            return {}
        frequencies = dict(zip(map(folded, query.words), found.frequencies, strict=True))
        files = {piece: found.layout.file_of(piece) for piece in codes}
        return late_scores(self._tokens, frequencies, found.layout.pieces, codes, files)


def _nearest_of(vectors: _Vectors, layout: Layout, limit: int, sources: frozenset[str]) -> list[int]:
    """The nearest pieces of these sources, among the ten times as many nearest of all."""
    pieces = list(_wanted(vectors.nearest(limit * 10), layout, sources))
    cosines, _ = vectors.cosines(pieces)
    return nlargest(limit, cosines, key=cosines.__getitem__)


def _read_layout(tx: Transaction, version: tuple[int, int]) -> Layout:
    files, passages = tx.all("memory.layout_files"), tx.all("memory.layout_passages")
    starts, counts = [row[0] for row in files], [row[1] for row in files]
    refs = [DocumentRef(row[2], row[3]) for row in files]
    return Layout(
        version, starts, counts, refs, [row[0] for row in passages], [row[1] for row in passages], sum(counts)
    )


def _count(tx: Transaction, query: str, term: str) -> int:
    return tx.value(f"memory.{query}", term=term) or 0 if term else 0


def _rarest(words: Sequence[str], counts: Sequence[int], rows: int) -> tuple[str, int]:
    """A query for as many of the words, the rarest first, as stay within so many rows; and its number of rows."""
    kept: list[str] = []
    total = 0
    for count, word in sorted(zip(counts, words, strict=True)):
        if count and (not kept or total + count <= rows):
            kept.append('"' + word.replace('"', '""').replace("\0", " ") + '"')
            total += count
    return " OR ".join(kept), total


def _wanted(pieces: Iterable[int], layout: Layout, sources: frozenset[str]) -> Iterable[int]:
    return (piece for piece in pieces if not sources or layout.source_of(piece) in sources)


def _with_neighbours(found: set[int], layout: Layout) -> set[int]:
    ids: set[int] = set()
    for piece in found:
        file = layout.file_of(piece)
        first = layout.file_starts[file]
        last = first + layout.file_counts[file] - 1
        ids.update(range(max(first, piece - NEIGHBOURS), min(last, piece + NEIGHBOURS) + 1))
    return ids


def _candidate(row: tuple[Any, ...], layout: Layout, found: _Words, cosines: Scores, late: Scores) -> SearchCandidate:
    piece, start, end, text, context = row
    ref = layout.refs[layout.file_of(piece)]
    words, around = found.pieces.get(piece, 0.0), found.passages.get(layout.passage_of(piece), 0.0)
    return SearchCandidate(
        piece, ref, start, end, text, words, around, cosines.get(piece), context or "", late.get(piece)
    )
