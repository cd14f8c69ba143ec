"""Documents, the pieces they are split into, and their form in an index.

A *document* is a file or a session. It is split into *pieces*, which are small (a line, a bullet) and are found and
cited, and into *passages* of some hundred tokens, whose words give the pieces context. Everything in an index is
derived from documents: deleting it loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

MEMORY = "memory"  # MEMORY.md, memory/, USER.md
SESSIONS = "sessions"  # messages of sessions; every other source is a collection of the user
Stamp = tuple[int, int, int, int]
"""Size, mtime in ns, inode, ctime in ns: compared before a file is read. Tools may set the mtime back, but not the
ctime. A plain tuple, because a scan makes thousands of them.
"""


class DocumentRef(Struct, frozen=True, order=True):
    """The source and path of a document."""

    source: str
    path: str  # the path in citations: `memory/2026-11-15.md`, or `<collection>/notes/a.md`


def is_conversation(path: str) -> bool:
    """Whether it is the path of a document that is not a file."""
    return path.startswith(f"{SESSIONS}/")


class MemoryDocument(Struct, frozen=True):
    ref: DocumentRef
    stamp: Stamp
    digest: bytes  # SHA-256 of the bytes
    text: str


class Passage(Struct, frozen=True):
    """Lines that belong together. Their words are indexed as one."""

    start_line: int
    end_line: int
    words: str  # for the text index


class Piece(Struct, frozen=True):
    """A few lines that are found, scored and cited together. `passage` is the number of its passage in the document."""

    start_line: int
    end_line: int
    text: str  # as quoted
    words: str  # for the text index: the text and its context (heading, date)
    meaning: str  # the text that is embedded: chunk.meaning_of(text)
    passage: int
    digest: bytes  # of `meaning`: pieces with equal text share a vector
    context: str = ""  # its context: headings, a parent bullet, the header of a table


class DocumentPieces(Struct, frozen=True):
    """A split document: pieces in the order of their lines, each line in at most one of them."""

    pieces: tuple[Piece, ...]
    passages: tuple[Passage, ...]


# -- what an index holds and gives back -------------------------------------------------------------------------------


class FileRow(Struct, frozen=True):
    """A document as indexed."""

    ref: DocumentRef
    stamp: Stamp
    digest: bytes
    indexed_at: int  # milliseconds
    pieces: int = 0
    recipe: str = ""  # digest of the splitting code: another one makes another index of the same text


class WordQuery(Struct, frozen=True):
    """The words of a question for a text index: lower case, without stop words, CJK as bigrams."""

    words: tuple[str, ...]


class SearchCandidate(Struct, frozen=True):
    """A piece that may answer, with its raw score in each ranking: larger is better, 0 is no match."""

    id: int  # pieces of one document have consecutive ids, in the order of their lines
    ref: DocumentRef
    start_line: int
    end_line: int
    text: str
    words: float  # BM25 of the piece
    passage_words: float  # BM25 of its passage
    cosine: float | None  # None: it has no vector yet
    context: str = ""  # its context: headings, a parent bullet, the header of a table
    late: float | None = None  # how near its words are to those of the question; None: not known


class CandidateSet(Struct, frozen=True):
    """The candidates for one question, and how complete they are."""

    candidates: tuple[SearchCandidate, ...]
    pieces: int  # in the index
    embedded: int  # of them with a vector in the searched space
    frequencies: tuple[int, ...] = ()  # number of pieces with each word of the query; empty: not known


class MissingVector(Struct, frozen=True):
    digest: bytes
    meaning: str


class IndexTotals(Struct, frozen=True):
    files: int
    pieces: int
    passages: int
    bytes_on_disk: int
    cached_vectors: int  # of all spaces
    embedded: Mapping[str, int]  # pieces with a vector, by space id
