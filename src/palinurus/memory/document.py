"""What is searched, and what it is cut into.

A *document* is a file or a conversation. It is cut into *pieces*, which are small (a line, a bullet) and are what is
found and cited, and into *passages* of some hundred tokens, whose words tell what the pieces in them are about: index
small, score with context.
"""

from __future__ import annotations

from msgspec import Struct

MEMORY = "memory"  # MEMORY.md, memory/, USER.md
SESSIONS = "sessions"  # what was said; every other source is a collection of the owner's


class Place(Struct, frozen=True, order=True):
    """Where a document is."""

    source: str
    path: str  # as it is cited: `memory/2026-11-15.md`, or `<collection>/notes/a.md`


class Stamp(Struct, frozen=True):
    """What a sweep compares before it reads: another stamp means that the text may be another."""

    size: int
    mtime_ns: int
    inode: int = 0
    ctime_ns: int = 0  # tools may set the time of change back, but not this one


class Document(Struct, frozen=True):
    place: Place
    stamp: Stamp
    digest: bytes  # SHA-256 of the bytes
    text: str


class Passage(Struct, frozen=True):
    """Lines that belong together. Their words are indexed as one."""

    start_line: int
    end_line: int
    words: str  # for the text index


class Piece(Struct, frozen=True):
    """A few lines that are found, scored and cited together. `passage` is its passage's number in the document."""

    start_line: int
    end_line: int
    text: str  # as it is quoted
    words: str  # for the text index: the text, and what belongs to it although it stands elsewhere (heading, date)
    meaning: str  # what is embedded
    passage: int
    digest: bytes  # of `meaning`: pieces that mean the same share a vector
    context: str = ""  # what it hangs under: headings, a bullet, the header of a table


class Chunked(Struct, frozen=True):
    """A document cut up: pieces in the order of their lines, each line in at most one of them."""

    pieces: tuple[Piece, ...]
    passages: tuple[Passage, ...]
