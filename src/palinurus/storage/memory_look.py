"""A look into one agent's memory, on the reader's thread: words, vectors, neighbours, and who they belong to.

What grows with the index is kept in bounds. Words that are in very many pieces are left out where rarer ones are in
the question, because ranking costs a microsecond for each piece that has a word; vectors are first compared by their
signs alone, which are few bytes, and only the nearest of those exactly.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import nlargest
from typing import Any

import apsw
from msgspec import Struct

from palinurus.memory.document import Place
from palinurus.memory.embedder import Space
from palinurus.memory.store import Candidate, Looked, WordQuery
from palinurus.storage.memory_rows import SQL, rows_of
from palinurus.storage.memory_signs import Signs, cosines_of, nearest_of
from palinurus.storage.memory_vectors import can_compare, query_bytes

NEIGHBOURS = 2  # on either side
RANKED = (2_000, 20_000)  # pieces that are ranked at most, in small and in large indexes: a microsecond each
POOL = 5  # candidates that are looked at for each that is wanted: a passage's words may lift a piece
PASSAGE_SHARE = 0.5  # of the score by which candidates are chosen
FEW = 2_000  # vectors that are compared exactly without further ado
WHOLE = 5  # passages that are candidates as a whole
NEAR = 10  # vectors that are compared exactly, for each that is wanted
_TOKENIZER = ("porter", ["unicode61", "remove_diacritics", "2"])

Scores = dict[int, float]


class Layout(Struct):
    """Which ids belong to which file and passage. Read anew when the index has changed."""

    version: int
    file_starts: list[int]
    file_counts: list[int]
    places: list[Place]
    passage_starts: list[int]
    passages: list[int]
    pieces: int

    def file_of(self, piece: int) -> int:
        return bisect_right(self.file_starts, piece) - 1

    def source_of(self, piece: int) -> str:
        return self.places[self.file_of(piece)].source

    def passage_of(self, piece: int) -> int:
        return self.passages[bisect_right(self.passage_starts, piece) - 1]

    def pieces_in(self, passage: int) -> range:
        at = bisect_right(self.passages, passage) - 1
        first = self.passage_starts[at]
        file = self.file_of(first)
        end = self.file_starts[file] + self.file_counts[file]
        return range(first, min(end, self.passage_starts[at + 1]) if at + 1 < len(self.passages) else end)


class Looker:
    """Looks through one connection, and remembers the layout and the last words between looks."""

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._words: _Words | None = None
        self._signs = Signs()

    def forget_vectors(self) -> None:
        """Some were deleted, and others may have got their ids."""
        self._signs = Signs()

    def prepare(self, connection: apsw.Connection, query: WordQuery, limit: int, sources: frozenset[str]) -> None:
        """Look for the words of a question whose vector is still on its way."""
        with _one_state(connection):
            self._words_of(connection, query, limit, sources)

    def look(
        self,
        connection: apsw.Connection,
        query: WordQuery,
        vector: bytes | None,
        space: Space | None,
        limit: int,
        sources: frozenset[str],
    ) -> Looked:
        with _one_state(connection):
            found = self._words_of(connection, query, limit, sources)
            layout, vectors = found.layout, _Vectors(connection, vector, space, self._signs)
            nearby = vectors.nearest(limit) if not sources else _nearest_of(vectors, layout, limit, sources)
            ids = sorted({*_with_neighbours({*found.best, *nearby}, layout), *found.whole})
            cosines = vectors.cosines(ids)
            rows = rows_of(connection, "pieces_by_id", (json.dumps(ids),))
            candidates = tuple(_candidate(row, layout, found, cosines) for row in rows)
            return Looked(candidates, layout.pieces, vectors.embedded, found.frequencies)

    def _words_of(self, connection: apsw.Connection, query: WordQuery, limit: int, sources: frozenset[str]) -> _Words:
        """As they were found just now, unless the index has changed since."""
        layout, known = self.layout(connection), self._words
        if known is None or known.layout is not layout or known.asked != (query, limit, sources):
            known = self._words = _Words(connection, query, layout, limit, sources)
        return known

    def layout(self, connection: apsw.Connection) -> Layout:
        version = connection.execute("PRAGMA data_version").get
        if self._layout is None or self._layout.version != version:
            self._layout = _read_layout(connection, version)
        return self._layout


@contextmanager
def _one_state(connection: apsw.Connection) -> Iterator[None]:
    """One state of the index for all that is looked up."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")


class _Words:
    """The words of a question: in how many pieces each is, and which pieces and passages have them."""

    def __init__(
        self, connection: apsw.Connection, query: WordQuery, layout: Layout, limit: int, sources: frozenset[str]
    ) -> None:
        self.asked = (query, limit, sources)
        self.layout = layout
        terms = _terms(connection, query.words)
        counts = [_count(connection, "piece_count", term) for term in terms]
        self.frequencies = tuple(counts)
        rows = max(RANKED[0], min(RANKED[1], layout.pieces // 10))
        self.passages: Scores = self._in_passages(connection, query.words, terms, rows // 2, len(layout.passages))
        self.pieces: Scores = self._in_pieces(connection, query.words, counts, rows, limit * POOL, sources)
        self.best: list[int] = self._choose(layout, limit, sources)
        theirs = [at for at in self.passages if not sources or layout.source_of(layout.pieces_in(at)[0]) in sources]
        best = nlargest(WHOLE, theirs, key=self.passages.__getitem__)
        # All pieces of the best passages: a date or a title may stand in the passage's words only.
        self.whole = [piece for passage in best for piece in layout.pieces_in(passage)]

    def _in_pieces(
        self,
        connection: apsw.Connection,
        words: Sequence[str],
        counts: Sequence[int],
        rows: int,
        pool: int,
        sources: frozenset[str],
    ) -> Scores:
        kept, total = _rarest(words, counts, rows)
        if not kept:
            return {}
        if total > rows:
            return dict(rows_of(connection, "newest_pieces", (kept, rows)))
        # What is of another source is left out afterwards, so then all are needed.
        return dict(rows_of(connection, "best_pieces", (kept, rows if sources else pool)))

    def _in_passages(
        self, connection: apsw.Connection, words: Sequence[str], terms: Sequence[str], rows: int, passages: int
    ) -> Scores:
        few = passages <= rows  # then no word can have too many
        counts = [bool(term) if few else _count(connection, "passage_count", term) for term in terms]
        kept, _ = _rarest(words, counts, rows)
        return dict(rows_of(connection, "best_passages", (kept, rows))) if kept else {}

    def _choose(self, layout: Layout, limit: int, sources: frozenset[str]) -> list[int]:
        """By their own words and those of their passage."""
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
        return sorted(scored, key=scored.__getitem__, reverse=True)[:limit]


class _Vectors:
    """A question's vector beside those of the space in use. In another space, or without a vector, nothing is near."""

    def __init__(self, connection: apsw.Connection, vector: bytes | None, space: Space | None, signs: Signs) -> None:
        self._connection = connection
        self._signs = signs
        self.embedded = 0
        row = rows_of(connection, "space_named", (space.id,)) if space is not None else []
        if vector is None or not row or not row[0][3]:
            return
        self._space, dimensions, embedded, _ = row[0]
        self._query = query_bytes(vector, dimensions)
        if can_compare(connection):
            self.embedded = embedded

    def nearest(self, limit: int) -> list[int]:
        """Pieces."""
        if not self.embedded:
            return []
        values: dict[str, Any] = {"query": self._query, "space": self._space, "limit": limit}
        if self.embedded <= FEW:
            ids = [id_ for (id_,) in rows_of(self._connection, "nearest", values)]
        else:
            near = self._signs.nearest(self._connection, self._space, self._query, limit * NEAR)
            ids = nearest_of(self._connection, near, self._query, limit)
        return [piece for (piece,) in self._connection.execute(SQL["pieces_meaning"], (json.dumps(ids),))]

    def cosines(self, pieces: Sequence[int]) -> Scores:
        if not self.embedded:
            return {}
        if self.embedded > FEW:
            return cosines_of(self._connection, self._space, pieces, self._query)
        values = {"query": self._query, "space": self._space, "ids": json.dumps(pieces)}
        return dict(rows_of(self._connection, "cosines", values))


def _nearest_of(vectors: _Vectors, layout: Layout, limit: int, sources: frozenset[str]) -> list[int]:
    """The nearest pieces of these sources, if they are among the nearest of all by ten times."""
    pieces = list(_wanted(vectors.nearest(limit * 10), layout, sources))
    cosines = vectors.cosines(pieces)
    return sorted(cosines, key=cosines.__getitem__, reverse=True)[:limit]


def _read_layout(connection: apsw.Connection, version: int) -> Layout:
    files = rows_of(connection, "layout_files")
    passages = rows_of(connection, "layout_passages")
    return Layout(
        version,
        [row[0] for row in files],
        [row[1] for row in files],
        [Place(row[2], row[3]) for row in files],
        [row[0] for row in passages],
        [row[1] for row in passages],
        sum(row[1] for row in files),
    )


def _terms(connection: apsw.Connection, words: Sequence[str]) -> list[str]:
    """As the index holds them: stemmed, without accents. A word that is none to the index is empty."""
    tokenizer = connection.fts5_tokenizer(*_TOKENIZER)
    return [_term(tokenizer, word) for word in words]


def _term(tokenizer: Any, word: str) -> str:
    tokens = tokenizer(
        word.encode("utf-8", "replace"),
        apsw.FTS5_TOKENIZE_QUERY,
        None,
        include_offsets=False,
        include_colocated=False,
    )
    return tokens[0] if tokens else ""


def _count(connection: apsw.Connection, query: str, term: str) -> int:
    return connection.execute(SQL[query], (term,)).get or 0 if term else 0


def _rarest(words: Sequence[str], counts: Sequence[int], rows: int) -> tuple[str, int]:
    """A query for as many of the words, the rarest first, as stay within so many rows; and the rows it has."""
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


def _candidate(row: tuple[Any, ...], layout: Layout, found: _Words, cosines: Scores) -> Candidate:
    piece, start, end, text, context = row
    place = layout.places[layout.file_of(piece)]
    words, around = found.pieces.get(piece, 0.0), found.passages.get(layout.passage_of(piece), 0.0)
    return Candidate(piece, place, start, end, text, words, around, cosines.get(piece), context or "")
