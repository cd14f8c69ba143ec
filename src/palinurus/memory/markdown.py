"""Lines of markdown, gathered into the smallest blocks that make sense alone.

Not a parser of all of markdown: it knows headings, bullets and what continues them, tables, fences, front matter, and
prose that an editor has wrapped. Whatever else there is, is prose. One pass; a block never crosses a blank line.
"""

from __future__ import annotations

import re

from msgspec import Struct

BLOCK_CHARACTERS = 320  # prose and code are cut before they get longer; a single line never is
SHORT_LINE = 45  # a line that ends earlier was ended on purpose, and not wrapped
PARENT_CHARACTERS = 100  # of the bullet that a block hangs under
ABOVE_CHARACTERS = 400  # of a heading, or of the head of a table, that a block hangs under
FRONT_MATTER_LINES = 200

_KIND = re.compile(
    r"[ \t]*(?:(?P<fence>`{3,}|~{3,})|(?P<heading>#{1,6})(?=[ \t]|$)|(?P<bullet>(?:[-*+]|\d{1,9}[.)])(?=[ \t]|$))"
    r"|(?P<row>\|)|(?P<underline>={2,}|-{2,})[ \t]*$|(?P<speaker>[*_]*[^\W\d_][\w .'’-]{0,30}[*_]*:[*_]*[ \t]))?"
)
_RULER = re.compile(r"[ \t:|-]+$")
_ENDED = (".", "!", "?", "…", ":", ";", "。", "！", "？", "：", '."', '!"', '?"', ".)", "”", "」")
_TELLING = re.compile(r"[^\W_]")


class Block(Struct):
    start: int
    end: int
    text: str
    context: str  # what it hangs under
    size: int
    heading: bool = False


def blocks_of(text: str) -> list[Block]:
    """In order. A block without a letter or digit cannot be found, and is none; nor is a comment."""
    blocks = _Gatherer().gather(lines_of(text))
    return [block for block in blocks if _TELLING.search(block.text) and not _is_comment(block)]


def lines_of(text: str) -> list[str]:
    """As they are counted and cited. A carriage return alone ends a line only where nothing else does."""
    return text.replace("\r\n", "\n").split("\n" if "\n" in text else "\r")


def _is_comment(block: Block) -> bool:
    """Whether it is no text but a mark of ours or an editor's."""
    return block.text.startswith("<!--") and block.text.find("-->") == len(block.text) - 3


class _Gatherer:
    """One pass over the lines. It remembers the headings above, the bullets it is inside of, the table, the fence."""

    def __init__(self) -> None:
        self._headings: list[tuple[int, str]] = []
        self._bullets: list[tuple[int, str]] = []
        self._header = ""
        self._fence = ""
        self._context = ""
        self._block: Block | None = None
        self._last = ""  # line of the open block
        self._further: list[str] = []  # the lines of the open block behind its first
        self._blocks: list[Block] = []

    def gather(self, lines: list[str]) -> list[Block]:
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
        """A heading is a block of its own, and above all that follows."""
        self._close()
        self._bullets.clear()
        while self._headings and self._headings[-1][0] >= level:
            self._headings.pop()
        self._renew()
        self._open(number, line)
        if self._block:
            self._block.heading = True
        self._close()
        self._headings.append((level, text[:ABOVE_CHARACTERS]))
        self._renew()

    def _underline(self, number: int, line: str) -> None:
        """`===` or `---` under a line makes it a heading; alone it is a ruler."""
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
        changed = False
        while self._bullets and self._bullets[-1][0] >= depth:
            self._bullets.pop()
            changed = True
        if changed:
            self._renew()
        self._open(number, line)
        self._bullets.append((depth, line.strip("-*+ \t")[:PARENT_CHARACTERS]))
        self._context = ""

    def _row(self, number: int, line: str) -> None:
        if self._header and _RULER.match(line):
            return
        if line[0] not in " \t":
            self._leave_list()
        self._open(number, line)
        if not self._header:
            self._header = " ".join(line.replace("|", " ").split())[:ABOVE_CHARACTERS]
        elif self._block:
            self._block.context = f"{self._block.context} > {self._header}" if self._block.context else self._header

    def _prose(self, number: int, line: str, *, starts: bool) -> None:
        block, inside = self._block, line[0] in " \t"
        if block is None and not inside:
            self._leave_list()
        if block and block.size + len(line) <= BLOCK_CHARACTERS and self._goes_on(inside=inside, starts=starts):
            self._add(block, number, line)
            return
        if not inside:
            self._leave_list()
        self._open(number, line)

    def _goes_on(self, *, inside: bool, starts: bool) -> bool:
        if inside and self._bullets:
            return True
        return not starts and len(self._last) >= SHORT_LINE and not self._last.endswith(_ENDED)

    def _code(self, number: int, line: str) -> None:
        if line.strip().startswith(self._fence):
            self._fence = ""
            self._close()
        elif self._block is None or self._block.size + len(line) > BLOCK_CHARACTERS:
            self._open(number, line)
        else:
            self._add(self._block, number, line)

    def _leave_list(self) -> None:
        if self._bullets:
            self._bullets.clear()
            self._renew()

    def _renew(self) -> None:
        self._context = ""

    def _above(self) -> str:
        """The headings and the bullet that a line hangs under, made once for all lines that hang there."""
        if not self._context:
            above = [text for _, text in self._headings]
            if self._bullets:
                above.append(self._bullets[-1][1])
            self._context = " > ".join(above)
        return self._context

    def _open(self, number: int, line: str) -> None:
        self._close()
        self._block = Block(number, number, line, self._above(), len(line))
        self._last = line.rstrip()

    def _add(self, block: Block, number: int, line: str) -> None:
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
