"""How others search: chunks of 400 tokens that overlap, BM25 over them, vectors over them, and the usual mixture.

The chunking, the AND query and the weights are OpenClaw's; OR, stemming and stop words make BM25 as good as it gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from palinurus.memory.embedder import Embedder
from palinurus.memory.terms import word_query

CHARACTERS, OVERLAP = 1_600, 320
CANDIDATES = 200
VECTOR_WEIGHT, TEXT_WEIGHT = 0.7, 0.3
_TABLE = "CREATE VIRTUAL TABLE chunks USING fts5(text, tokenize = 'porter unicode61 remove_diacritics 2')"
_MATCHES = "SELECT rowid, -rank FROM chunks WHERE chunks MATCH ? ORDER BY rank LIMIT ?"

Found = list[tuple[str, int, int]]


class Chunks:
    def __init__(self, workspace: Path, embedder: Embedder) -> None:
        self._embedder = embedder
        self._texts: list[str] = []
        self._places: Found = []
        for file in sorted((workspace / "memory").rglob("*.md")):
            lines = file.read_text(encoding="utf-8").splitlines()
            for first, last in cut(lines):
                self._places.append((str(file.relative_to(workspace)), first + 1, last))
                self._texts.append("\n".join(lines[first:last]))
        self._index = apsw.Connection(":memory:")
        self._index.execute(_TABLE)
        self._index.executemany("INSERT INTO chunks (rowid, text) VALUES (?, ?)", list(enumerate(self._texts)))
        self._vectors: Any = None

    async def embed(self) -> None:
        import numpy as np  # only these baselines need it

        size = self._embedder.space.dimensions  # token states stand behind
        vectors = [np.frombuffer(vector, "<f4", size) for vector in await self._embedder.embed(self._texts)]
        self._vectors = np.stack(vectors)

    async def by_any(self, query: str) -> Found:
        scores = self._matches(query, " OR ")
        return [self._places[number] for number in sorted(scores, key=scores.__getitem__, reverse=True)]

    async def by_vector(self, query: str) -> Found:
        cosines = await self._cosines(query)
        return [self._places[int(number)] for number in (-cosines).argsort()[:CANDIDATES]]

    async def by_all_and_vector(self, query: str) -> Found:
        cosines = await self._cosines(query)
        text = {number: score / (1 + score) for number, score in self._matches(query, " AND ").items()}
        both = {*text, *(int(number) for number in (-cosines).argsort()[:CANDIDATES])}
        mixed = {n: VECTOR_WEIGHT * float(cosines[n]) + TEXT_WEIGHT * text.get(n, 0.0) for n in both}
        return [self._places[number] for number in sorted(mixed, key=mixed.__getitem__, reverse=True)]

    def _matches(self, query: str, operator: str) -> dict[int, float]:
        words: Sequence[str] = word_query(query).words
        if operator == " AND ":  # every word of the question, as it stands
            words = ["".join(filter(str.isalnum, word)) for word in query.split()]
        match = operator.join(f'"{word}"' for word in words if word)
        found: Any = self._index.execute(_MATCHES, (match, CANDIDATES)).fetchall() if match else ()
        return dict(found)

    async def _cosines(self, query: str) -> Any:
        import numpy as np

        asked = await self._embedder.embed_query(query)
        return self._vectors @ np.frombuffer(asked, "<f4", self._embedder.space.dimensions)


def cut(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Ranges of lines that hold so many characters, each beginning with the last lines of the one before."""
    first = 0
    while first < len(lines):
        last, size = first, 0
        while last < len(lines) and (last == first or size + len(lines[last]) + 1 <= CHARACTERS):
            size += len(lines[last]) + 1
            last += 1
        yield first, last
        if last == len(lines):
            return
        back, kept = last, 0
        while back - 1 > first and kept < OVERLAP:
            back -= 1
            kept += len(lines[back]) + 1
        first = back
