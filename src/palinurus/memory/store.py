"""What the room needs of a keeper of its index. One contract suite holds every keeper to it.

One keeper holds one agent's memory. Everything in it is derived from files and transcripts: deleting it loses
nothing, and the next sweep makes it anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from palinurus.memory.document import Chunked, Place, Stamp
from palinurus.memory.embedder import Space


class FileRow(Struct, frozen=True):
    """A document as it was when it was indexed."""

    place: Place
    stamp: Stamp
    digest: bytes
    indexed_at: int  # milliseconds
    pieces: int = 0
    recipe: str = ""  # how it was cut up: another way of cutting makes another index of the same text


class Candidate(Struct, frozen=True):
    """A piece that may answer, with what each leg says about it. Scores are raw: larger is better, 0 is no match."""

    id: int  # pieces of one document have consecutive ids, in the order of their lines
    place: Place
    start_line: int
    end_line: int
    text: str
    words: float  # BM25 of the piece
    passage_words: float  # BM25 of its passage
    cosine: float | None  # None: it has no vector yet
    context: str = ""  # what it hangs under: headings, a bullet, the header of a table


class Looked(Struct, frozen=True):
    """What a look into the index gave, and how complete it is."""

    candidates: tuple[Candidate, ...]
    pieces: int  # in the index
    embedded: int  # of them with a vector in the space that was asked in
    frequencies: tuple[int, ...] = ()  # pieces that have each word of the query; empty: not known


class WordQuery(Struct, frozen=True):
    """The words of a question, ready for a text index: lower case, without stop words, CJK as bigrams."""

    words: tuple[str, ...]


class Unembedded(Struct, frozen=True):
    digest: bytes
    meaning: str


class Totals(Struct, frozen=True):
    files: int
    pieces: int
    passages: int
    bytes_on_disk: int
    cached_vectors: int  # of all spaces
    embedded: Mapping[str, int]  # pieces with a vector, by space id


class MemoryStore(Protocol):
    """Failures are StorageErrors; after one, nothing of that call was kept."""

    async def files(self) -> dict[Place, FileRow]: ...

    async def put(self, documents: Sequence[tuple[FileRow, Chunked]]) -> None:
        """Replace documents, in one transaction. When it returns, their words are found.

        Vectors that are known for a piece's digest are its own at once.
        """

    async def touch(self, rows: Sequence[FileRow]) -> None:
        """The text is the same, only the stamp is another."""

    async def drop(self, places: Sequence[Place]) -> None: ...

    async def prepare(self, query: WordQuery, *, limit: int, sources: Sequence[str] = ()) -> None:
        """Be ready for this look, which will come with a vector. It gives the same whether this was called or not."""

    async def look(
        self, query: WordQuery, vector: bytes | None, space: Space | None, *, limit: int, sources: Sequence[str] = ()
    ) -> Looked:
        """Candidates of both legs, at most `limit` of each, in no order, with their neighbours.

        The neighbours are the two pieces before and the two after each find, in the same document: a piece is judged
        by the words around it too. `vector` None: by words alone. `sources` empty: all.
        """

    async def pieces_of(self, place: Place) -> list[Candidate]:
        """A document's pieces in order, with no scores."""

    async def unembedded(self, space: Space, limit: int) -> list[Unembedded]:
        """Distinct meanings that have no vector in this space yet, those of the newest documents first."""

    async def put_vectors(self, space: Space, vectors: Sequence[tuple[bytes, bytes]]) -> None:
        """Digest and vector. All of one space; a vector of another size is a StorageError and none is kept.

        One that no piece has at this moment is not kept: its words went while it was made, perhaps to be forgotten.
        """

    async def use_space(self, space: Space | None) -> None:
        """Search in this space from now on, and in no other; vectors of others may be forgotten from then on.

        Until then a space that is being filled is a shadow: `look` still answers from the one in use.
        """

    async def space_in_use(self) -> str: ...

    async def totals(self) -> Totals: ...

    async def scrub(self) -> None:
        """What was dropped is nowhere any more: not as a vector, nor in bytes that are no longer used."""

    async def clear(self) -> None:
        """Forget everything but cached vectors: what is indexed again need not be embedded again."""

    async def close(self) -> None: ...
