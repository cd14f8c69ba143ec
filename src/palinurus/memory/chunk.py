"""Splits markdown into pieces, which are found and cited, and passages, which give the pieces context.

A piece is a range of whole lines: a bullet with its continuation lines, a row of a table, a sentence or some of a
paragraph, some lines of code. Its context (the file's title, the headings above it, its parent bullet, the header of
its table) is added to its index words, not to its text. Pure: the same text gives the same pieces, in one pass over the
lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256

from msgspec import Struct

from palinurus.memory.document import DocumentPieces, Passage, Piece
from palinurus.memory.terms import date_in_path, day_words, spelled
from palinurus.text.words import index_words

BLOCK_CHARACTERS = 320  # prose and code are split before they get longer; a single line never is
SHORT_LINE = 45  # a shorter line was ended on purpose, and not wrapped
PARENT_CHARACTERS = 100  # of the parent bullet
ABOVE_CHARACTERS = 400  # of a heading or table header above a block
FRONT_MATTER_LINES = 200
_KIND = re.compile(
    r"[ \t]*(?:(?P<fence>`{3,}|~{3,})|(?P<heading>#{1,6})(?=[ \t]|$)|(?P<bullet>(?:[-*+]|\d{1,9}[.)])(?=[ \t]|$))"
    r"|(?P<row>\|)|(?P<underline>={2,}|-{2,})[ \t]*$|(?P<speaker>[*_]*[^\W\d_][\w .'’-]{0,30}[*_]*:[*_]*[ \t]))?"
)
_RULER = re.compile(r"[ \t:|-]+$")
_ENDED = (".", "!", "?", "…", ":", ";", "。", "！", "？", "：", '."', '!"', '?"', ".)", "”", "」")
_TELLING = re.compile(r"[^\W_]")


class MarkdownBlock(Struct):
    start: int
    end: int
    text: str
    context: str  # its context
    size: int
    heading: bool = False


def blocks_of(text: str) -> list[MarkdownBlock]:
    """Blocks in order, without comments and blocks that have no letter or digit."""
    blocks = _Gatherer().gather(lines_of(text))
    return [block for block in blocks if _TELLING.search(block.text) and not _is_comment(block)]


def lines_of(text: str) -> list[str]:
    """Lines as counted and cited. A lone carriage return ends a line only if the text has no line feeds."""
    return text.replace("\r\n", "\n").split("\n" if "\n" in text else "\r")


def _is_comment(block: MarkdownBlock) -> bool:
    """Whether it is a comment: a mark of ours or an editor's."""
    return block.text.startswith("<!--") and block.text.find("-->") == len(block.text) - 3


class _Gatherer:
    """One pass over the lines, with the current headings, parent bullets, table and fence."""

    def __init__(self) -> None:
        self._headings: list[tuple[int, str]] = []
        self._bullets: list[tuple[int, str]] = []
        self._header = ""
        self._fence = ""
        self._block: MarkdownBlock | None = None
        self._last = ""  # line of the open block
        self._further: list[str] = []  # the further lines of the open block
        self._blocks: list[MarkdownBlock] = []

    def gather(self, lines: list[str]) -> list[MarkdownBlock]:
        first = self._front_matter(lines)
        for number, line in enumerate(lines[first:], start=first + 1):
            if self._fence:
                self._code(number, line)
            elif not line or line.isspace():
                self._close()
                self._header = ""
            else:
                self._line(number, line)
        self._close()
        return self._blocks

    def _front_matter(self, lines: list[str]) -> int:
        """Between `---` and `---` at the very top; each of its lines is a block."""
        if not lines or lines[0].rstrip() != "---":
            return 0
        for end, line in enumerate(lines[1:FRONT_MATTER_LINES], start=1):
            if line.rstrip() in ("---", "..."):
                for number, field in enumerate(lines[1:end], start=2):
                    self._open(number, field)
                self._close()
                return end + 1
        return 0

    def _line(self, number: int, line: str) -> None:
        match = _KIND.match(line)
        kind = match.lastgroup if match else None
        if kind == "bullet":
            self._bullet(number, line)
        elif kind is None or kind == "speaker":
            self._prose(number, line, starts=kind is not None)
        elif kind == "heading":
            self._heading(number, line)
        elif kind == "row":
            self._row(number, line)
        elif kind == "fence":
            self._close()
            self._fence = line.strip()[:3]
        else:
            self._underline(number, line)

    def _heading(self, number: int, line: str) -> None:
        bare = line.strip()
        text = bare.lstrip("#")
        self._under(len(bare) - len(text), text.strip("# \t"), number, line)

    def _under(self, level: int, text: str, number: int, line: str) -> None:
        """Handles a heading, which is a separate block and the context of what follows."""
        self._close()
        self._bullets.clear()
        while self._headings and self._headings[-1][0] >= level:
            self._headings.pop()
        self._open(number, line).heading = True
        self._close()
        self._headings.append((level, text[:ABOVE_CHARACTERS]))

    def _underline(self, number: int, line: str) -> None:
        """`===` or `---` under a line makes it a heading; alone it is a horizontal rule."""
        block = self._block
        if block is None or block.start != block.end or block.end != number - 1 or self._bullets:
            self._close()
            return
        self._block = None
        self._under(1 if "=" in line else 2, block.text.strip(), block.start, block.text)
        self._blocks[-1].end = number
        self._blocks[-1].text = f"{block.text}\n{line}"

    def _bullet(self, number: int, line: str) -> None:
        depth = len(line) - len(line.lstrip(" \t"))
        while self._bullets and self._bullets[-1][0] >= depth:
            self._bullets.pop()
        self._open(number, line)
        self._bullets.append((depth, line.strip("-*+ \t")[:PARENT_CHARACTERS]))

    def _row(self, number: int, line: str) -> None:
        if self._header and _RULER.match(line):
            return
        if line[0] not in " \t":
            self._bullets.clear()
        block = self._open(number, line)
        if not self._header:
            self._header = " ".join(line.replace("|", " ").split())[:ABOVE_CHARACTERS]
        else:
            block.context = f"{block.context} > {self._header}" if block.context else self._header

    def _prose(self, number: int, line: str, *, starts: bool) -> None:
        block, inside = self._block, line[0] in " \t"
        wrapped = not starts and len(self._last) >= SHORT_LINE and not self._last.endswith(_ENDED)
        goes_on = wrapped or (inside and self._bullets)
        if block and goes_on and block.size + len(line) <= BLOCK_CHARACTERS:
            self._add(block, number, line)
            return
        if not inside:
            self._bullets.clear()
        self._open(number, line)

    def _code(self, number: int, line: str) -> None:
        if line.strip().startswith(self._fence):
            self._fence = ""
            self._close()
        elif self._block is None or self._block.size + len(line) > BLOCK_CHARACTERS:
            self._open(number, line)
        else:
            self._add(self._block, number, line)

    def _open(self, number: int, line: str) -> MarkdownBlock:
        """A new block, under its headings and its parent bullet."""
        self._close()
        above = " > ".join(text for _, text in (*self._headings, *self._bullets[-1:]))
        self._block = MarkdownBlock(number, number, line, above, len(line))
        self._last = line.rstrip()
        return self._block

    def _add(self, block: MarkdownBlock, number: int, line: str) -> None:
        self._further.append(line)
        block.end = number
        block.size += len(line)
        self._last = line.rstrip()

    def _close(self) -> None:
        if self._block is not None:
            if self._further:
                self._block.text = "\n".join([self._block.text, *self._further])
                self._further = []
            self._blocks.append(self._block)
            self._block = None


MEANING_CHARACTERS = 1_200  # the models read no further
CONTEXT_CHARACTERS = 240
_MARKER = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)]|#{1,6}|>)\s+(?:\[[ xX]\]\s+)?")
_DATE = re.compile(r"(?<!\d)\d{4}-?\d{2}-?\d{2}(?!\d)")


def chunk(text: str, path: str, passage_tokens: int, overlap_tokens: int | None = None) -> DocumentPieces:
    """Splits a document. `path` is the path in citations. With an overlap the pieces are windows of so many tokens."""
    if overlap_tokens is not None:
        return _windows(text, path, passage_tokens * 4, overlap_tokens * 4)
    title, day = _title(path), date_in_path(path)
    dated = f"{spelled(day)} {day_words(day)}" if day else ""
    pieces: list[Piece] = []
    passages: list[Passage] = []
    for number, together in enumerate(_together(blocks_of(text), passage_tokens * 4)):
        pieces += [_piece(block, title, number) for block in together]
        lines = [title, dated, together[0].context, *(block.text for block in together)]
        words = index_words("\n".join(line for line in lines if line))
        passages.append(Passage(together[0].start, together[-1].end, words))
    return DocumentPieces(tuple(pieces), tuple(passages))


def _together(blocks: list[MarkdownBlock], characters: int) -> Iterator[list[MarkdownBlock]]:
    """Joins neighbours up to a size. A heading starts a new passage, unless the previous one is still small."""
    passage: list[MarkdownBlock] = []
    size = 0
    for block in blocks:
        if passage and (size + block.size > characters or (block.heading and size * 2 > characters)):
            yield passage
            passage, size = [], 0
        passage.append(block)
        size += block.size
    if passage:
        yield passage


def _windows(text: str, path: str, size: int, overlap: int) -> DocumentPieces:
    """Whole lines up to a size, each window beginning with the last lines of the one before."""
    title, lines = _title(path), lines_of(text)
    pieces: list[Piece] = []
    first = 0
    while first < len(lines):
        last, room = first + 1, size - len(lines[first])
        while last < len(lines) and room > len(lines[last]):
            room -= len(lines[last]) + 1
            last += 1
        together = "\n".join(lines[first:last])
        if _TELLING.search(together):
            block = MarkdownBlock(first + 1, last, together, "", len(together))
            pieces.append(_piece(block, title, len(pieces)))
        again, room = last, overlap if last < len(lines) else 0
        while again - 1 > first and room > len(lines[again - 1]):
            again -= 1
            room -= len(lines[again]) + 1
        first = again
    passages = (Passage(piece.start_line, piece.end_line, piece.words) for piece in pieces)
    return DocumentPieces(tuple(pieces), tuple(passages))


def _piece(block: MarkdownBlock, title: str, passage: int) -> Piece:
    context = " > ".join(each for each in (title, block.context) if each)[:CONTEXT_CHARACTERS]
    words = index_words(f"{context}\n{block.text}" if context else block.text)
    meaning = meaning_of(block.text)
    digest = sha256(meaning.encode("utf-8", "replace")).digest()[:16]
    return Piece(block.start, block.end, block.text, words, meaning, passage, digest, context)


def meaning_of(text: str) -> str:
    marker = _MARKER.match(text)
    return text[marker.end() if marker else 0 : MEANING_CHARACTERS].strip()


def _title(path: str) -> str:
    stem = path.rpartition("/")[2].removesuffix(".md")
    title = " ".join(_DATE.sub(" ", stem).replace("-", " ").replace("_", " ").split())
    return "" if title.casefold() in _NAMELESS else title


_NAMELESS = frozenset({"memory", "readme", "index", "notes", "user"})
