"""Markdown into pieces that are found and cited, and passages that tell what the pieces are about.

A piece is a range of whole lines: a bullet with the lines that continue it, a row of a table, a sentence or some of a
paragraph, some lines of code. What belongs to it although it stands elsewhere (the file's title, the headings above it,
the bullet it hangs under, the header of its table) is its context, and goes into its words, not into its text. Pure:
the same text gives the same pieces, in one pass over the lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256

from msgspec import Struct

from palinurus.memory.dates import date_in_path, day_words, spelled
from palinurus.memory.document import Chunked, Passage, Piece
from palinurus.memory.markdown import Block, blocks_of
from palinurus.memory.words import index_words

MEANING_CHARACTERS = 1_200  # the models read no further
CONTEXT_CHARACTERS = 240

_MARKER = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)]|#{1,6}|>)\s+(?:\[[ xX]\]\s+)?")
_DATE = re.compile(r"(?<!\d)\d{4}-?\d{2}-?\d{2}(?!\d)")


class _About(Struct, frozen=True):
    """What a file's name says about all that is in it."""

    title: str
    day: str  # in words; empty: not a dated file


def chunk(text: str, path: str, passage_tokens: int) -> Chunked:
    """`path` is the document's, as it is cited."""
    about = _about(path)
    blocks = blocks_of(text)
    pieces: list[Piece] = []
    passages: list[Passage] = []
    for number, together in enumerate(_together(blocks, passage_tokens * 4)):
        pieces += [_piece(block, about, number) for block in together]
        passages.append(_passage(together, about))
    return Chunked(tuple(pieces), tuple(passages))


def _together(blocks: list[Block], characters: int) -> Iterator[list[Block]]:
    """Neighbours up to a size. A heading starts a new passage, unless what came before it is still small."""
    passage: list[Block] = []
    size = 0
    for block in blocks:
        if passage and (size + block.size > characters or (block.heading and size * 2 > characters)):
            yield passage
            passage, size = [], 0
        passage.append(block)
        size += block.size
    if passage:
        yield passage


def _passage(blocks: list[Block], about: _About) -> Passage:
    lines = [about.title, about.day, blocks[0].context, *(block.text for block in blocks)]
    return Passage(blocks[0].start, blocks[-1].end, index_words("\n".join(line for line in lines if line)))


def _piece(block: Block, about: _About, passage: int) -> Piece:
    text = block.text
    above = f"{about.title} > {block.context}" if about.title and block.context else about.title or block.context
    context = above[:CONTEXT_CHARACTERS]
    meaning = _meaning(text)
    return Piece(
        block.start,
        block.end,
        text,
        index_words(f"{context}\n{text}" if context else text),
        meaning,
        passage,
        sha256(meaning.encode("utf-8", "replace")).digest()[:16],
        context,
    )


def _meaning(text: str) -> str:
    marker = _MARKER.match(text)
    return text[marker.end() if marker else 0 : MEANING_CHARACTERS].strip()


def _about(path: str) -> _About:
    day = date_in_path(path)
    stem = path.rpartition("/")[2].removesuffix(".md")
    title = " ".join(_DATE.sub(" ", stem).replace("-", " ").replace("_", " ").split())
    return _About("" if title.casefold() in _NAMELESS else title, f"{spelled(day)} {day_words(day)}" if day else "")


_NAMELESS = frozenset({"memory", "readme", "index", "notes", "user"})
