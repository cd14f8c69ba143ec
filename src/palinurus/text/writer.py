"""How a line is written: what all dialects have in common, and plain text.

A line stands in frames, such as a code fence; they are closed at the end of a message and opened again in the next. All
other markup begins and ends in its line. So the size of a message is the sum of the sizes of what it is made of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import ClassVar

import msgspec
from msgspec import Struct

from palinurus.text.lines import BOLD, CODE, STYLES, LineContainer, Span, TextLine, plain_text

RULE = "———"
_FENCE_MARKS = re.compile("``(?=`)")
_WORD = re.compile(r"[^\W_]")


class LineFrame(Struct, frozen=True):
    """What is written before the first and after the last of some lines. Lines share frames of the same id."""

    id: tuple[str, int]
    open: str
    close: str


class InlinePiece(Struct, frozen=True):
    text: str
    opens: bool = False  # a mark that a letter before it would hide
    closes: bool = False  # a mark that a letter after it would hide


class DialectWriter:
    """Writes plain text. The dialects say how they differ from it."""

    marks: ClassVar[Mapping[int, tuple[str, str]]] = {}
    bullets: ClassVar[Sequence[str]] = ("-",)
    quote = "> "
    nests_quotes = True
    joint = ""  # written between a mark and a letter

    def frames(self, line: TextLine) -> tuple[LineFrame, ...]:
        return ()

    def skips(self, line: TextLine) -> bool:
        return False

    def visible(self, text: str) -> str:
        """What the network counts of something written."""
        return text

    def separator(self, before: TextLine, line: TextLine) -> str:
        if not line.gap:
            return "\n"
        shared = [each for each, other in zip(before.path, line.path, strict=False) if each == other]
        quotes = [each for each in shared if each.kind == "quote"]
        return f"\n{self.prefix(quotes, 0)}\n"

    def body(self, line: TextLine) -> str:
        prefix = self.prefix(line.path, line.fresh)
        match line.block.kind:
            case "code" | "table":
                return prefix + line.text
            case "rule":
                return prefix + RULE
            case "heading":
                return prefix + self.heading(line)
            case "paragraph":
                return prefix + self.inline(line.spans)

    def heading(self, line: TextLine) -> str:
        return self.inline([msgspec.structs.replace(span, style=span.style | BOLD) for span in line.spans])

    def prefix(self, path: Sequence[LineContainer], fresh: int) -> str:
        """What stands before a line: marks of quotations, and of the items that begin with it."""
        if not path:
            return ""
        parts = []
        quoted = next((index for index, container in enumerate(path) if container.kind == "quote"), -1)
        if not self.nests_quotes and quoted >= 0:  # a quotation begins where the line does
            parts.append(self.quote)
            path, fresh = path[quoted:], fresh - quoted
        for index, container in enumerate(path):
            if container.kind == "item":
                parts.append(f"{self.marker(container)} " if index >= fresh else "  ")
            elif self.nests_quotes:
                parts.append(self.quote)
        return "".join(parts)

    def marker(self, item: LineContainer) -> str:
        return f"{item.number}." if item.number >= 0 else self.bullets[min(item.depth, len(self.bullets) - 1)]

    def inline(self, spans: Sequence[Span]) -> str:
        if len(spans) == 1 and not spans[0].style and not spans[0].link:
            return self.literal(spans[0].text)  # most lines
        pieces = self._pieces(spans)
        out = [piece.text for piece in pieces[:1]]
        for before, piece in pairwise(pieces):
            if (piece.opens and _WORD.match(before.text[-1:])) or (before.closes and _WORD.match(piece.text)):
                out.append(self.joint)
            out.append(piece.text)
        return "".join(out)

    def _pieces(self, spans: Sequence[Span]) -> list[InlinePiece]:
        pieces: list[InlinePiece] = []
        opened: list[tuple[int, str]] = []  # styles, and what closes them
        for index, span in enumerate(spans):
            shown = self.style_of(span)
            while any(not shown & style for style, _ in opened):
                pieces.append(InlinePiece(opened.pop()[1], closes=True))
            for style in STYLES:
                if shown & style and style in self.marks and all(style != each for each, _ in opened):
                    start, end = self.marks_of(style, spans, index)
                    pieces.append(InlinePiece(start, opens=True))
                    opened.append((style, end))
            is_code = bool(span.style & CODE) and not span.link
            if text := self.span(span):
                pieces.append(InlinePiece(text, is_code, is_code))
        return pieces + [InlinePiece(end, closes=True) for _, end in reversed(opened)]

    def style_of(self, span: Span) -> int:
        return span.style

    def marks_of(self, style: int, spans: Sequence[Span], index: int) -> tuple[str, str]:
        """The marks of a style that begins with the span of that index."""
        return self.marks[style]

    def span(self, span: Span) -> str:
        if span.link:
            return self.link(span)
        return self.code(span.text) if span.style & CODE else self.literal(span.text)

    def literal(self, text: str) -> str:
        return text

    def code(self, text: str) -> str:
        return text

    def link(self, span: Span) -> str:
        return self.literal(plain_text((span,)))


class FencedWriter(DialectWriter):
    """Code and tables stand between two fences; they are not indented."""

    fence: ClassVar[tuple[str, str]] = ("```\n", "\n```")
    quotes_code = False

    def frames(self, line: TextLine) -> tuple[LineFrame, ...]:
        if line.block.kind not in ("code", "table"):
            return ()
        start, end = self.fence_of(line)
        quote = self._code_prefix(line)
        return (LineFrame(("code", line.block.id), quote + start, end.replace("\n", f"\n{quote}")),)

    def fence_of(self, line: TextLine) -> tuple[str, str]:
        return self.fence

    def body(self, line: TextLine) -> str:
        if line.block.kind in ("code", "table"):
            return self._code_prefix(line) + self.fenced(line.text)
        return super().body(line)

    def separator(self, before: TextLine, line: TextLine) -> str:
        if line.gap and not self.quotes_code and (self.frames(before) or self.frames(line)):
            return "\n\n"  # the fence ends the quotation
        return super().separator(before, line)

    def _code_prefix(self, line: TextLine) -> str:
        quoted = self.quotes_code and any(container.kind == "quote" for container in line.path)
        return self.quote if quoted else ""

    def fenced(self, text: str) -> str:
        """Code that does not close its fence."""
        return _FENCE_MARKS.sub("``\u200b", text)
