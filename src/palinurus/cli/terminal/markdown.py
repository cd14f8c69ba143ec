"""Markdown as lines of a terminal: blocks, tables, code. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from typing import Literal

from msgspec import Struct

from palinurus.cli.terminal.spans import Line, Span, harmless, inline, line_width, width_of, wrap

NARROWEST = 6  # a column below that is no column

SEPARATOR = " │ "

_BAR = re.compile(r"(?<!\\)\|")


def table_lines(text: str, width: int) -> list[Line]:
    """The table; or, where it cannot fit, each row as a list of `head: cell`."""
    head, delimiter, *body = text.split("\n")
    columns = len(cells(delimiter))
    rows = [(cells(row) + [""] * columns)[:columns] for row in (head, *body)]
    table = [[inline(cell, "strong" if number == 0 else "") for cell in row] for number, row in enumerate(rows)]
    widths = fitted([max(line_width(row[column]) for row in table) for column in range(columns)], width)
    if not widths:
        return _as_list(rows, width)
    signs = cells(delimiter)
    lines = _row(table[0], widths, signs)
    lines.append([("dim", "─┼─".join("─" * column for column in widths))])
    for row in table[1:]:
        lines += _row(row, widths, signs)
    return lines


def cells(row: str) -> list[str]:
    """The cells of a row. `\\|` is a bar in a cell."""
    inner = row.strip().removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return [cell.strip().replace("\\|", "|") for cell in _BAR.split(inner)]


def fitted(wanted: Sequence[int], width: int) -> list[int]:
    """Widths of columns that fit together: the widest give way. Empty when there are too many of them."""
    room = width - len(SEPARATOR) * (len(wanted) - 1)
    widths = [max(1, column) for column in wanted]
    if sum(min(column, NARROWEST) for column in widths) > room:
        return []
    excess = sum(widths) - room
    while excess > 0:
        widest = max(widths)
        second = max((column for column in widths if column < widest), default=NARROWEST)
        many = widths.count(widest)
        step = max(1, min(widest - max(second, NARROWEST), -(-excess // many)))
        for index, column in enumerate(widths):
            if column == widest and excess > 0:
                widths[index] -= min(step, excess)
                excess -= min(step, excess)
    return widths


def _row(row: Sequence[Sequence[Span]], widths: Sequence[int], signs: Sequence[str]) -> list[Line]:
    wrapped = [wrap(cell, column) for cell, column in zip(row, widths, strict=True)]
    lines: list[Line] = []
    for index in range(max(map(len, wrapped))):
        line: Line = []
        for number, (cell, column) in enumerate(zip(wrapped, widths, strict=True)):
            if number:
                line.append(("dim", SEPARATOR))
            last = number == len(widths) - 1
            line += _aligned(cell[index] if index < len(cell) else [], column, signs[number], last=last)
        lines.append(line)
    return lines


def _aligned(cell: Line, width: int, sign: str, *, last: bool) -> Line:
    space = max(0, width - line_width(cell))
    left = space if sign.endswith(":") and not sign.startswith(":") else 0
    if sign.startswith(":") and sign.endswith(":"):
        left = space // 2
    right = 0 if last else space - left
    return [*([("", " " * left)] if left else []), *cell, *([("", " " * right)] if right else [])]


def _as_list(rows: Sequence[Sequence[str]], width: int) -> list[Line]:
    head, *body = rows
    lines: list[Line] = []
    for row in body:
        if lines:
            lines.append([])
        for name, cell in zip(head, row, strict=True):
            lines += wrap([*inline(f"{name}: ", "strong"), *inline(cell)], width, (), [("", "  ")])
    return lines


Kind = Literal["text", "heading", "item", "quote", "rule", "table", "language", "code"]

FENCE = re.compile(r"\s*+(`{3,}+|~{3,}+)\s*+([\w+#.-]*+)[^`]*+$")

HEADING = re.compile(r" {0,3}(#{1,6})\s+(.*)$")

ITEM = re.compile(r"(\s*)([-*+]|\d{1,9}[.)])(?:\s+(.*))?$")

QUOTE = re.compile(r" {0,3}> ?(.*)$")

RULE = re.compile(r" {0,3}([-*_])(?:\s*\1){2,}\s*$")

DELIMITER = re.compile(r"\s*+\|?+\s*+:?-++:?\s*+(\|\s*+:?-++:?\s*+)*+\|?\s*+$")

LONGEST_TABLE = 40_000

LONGEST = 4_000  # characters of one block; more is cut, because an open block is drawn anew with each word


class Block(Struct, frozen=True):
    kind: Kind
    text: str
    indent: int = 0
    mark: str = ""  # of an item: its bullet or number; of a heading: its level
    spaced: bool = False  # a blank line stands before it


class BlockStream:
    """Takes text in any pieces; gives back the blocks that these complete."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._rest = ""  # of the line that is being written
        self._open: Block | None = None
        self._fence = ""  # the mark that ends the code
        self._fence_indent = 0
        self._spaced = False
        self._any = False

    def feed(self, text: str) -> list[Block]:
        *lines, rest = (self._rest + text).split("\n")
        *begun, self._rest = _cut(rest)
        done: list[Block] = []
        for piece in [*(piece for line in lines for piece in _cut(line.rstrip("\r"))), *begun]:
            self._line(piece, done)
        return done

    def finish(self) -> list[Block]:
        """The reply is over: what is open is complete. The stream is as new."""
        done: list[Block] = []
        if self._rest:
            self._line(self._rest, done)
        self._close(done)
        self._reset()
        return done

    @property
    def open(self) -> list[Block]:
        """What is still being written, as if it ended here."""
        return copy(self)._as_if_ended()  # noqa: SLF001  # a twin of its own class

    def _as_if_ended(self) -> list[Block]:
        done: list[Block] = []
        if self._rest and not _may_be_mark(self._rest):
            self._line(self._rest[-LONGEST:], done)
        self._close(done)
        return done

    def _line(self, line: str, done: list[Block]) -> None:
        if self._fence:
            self._code(line, done)
        elif not line.strip():
            self._close(done)
            self._spaced = self._any
        elif match := FENCE.match(line):
            self._close(done)
            self._fence, self._fence_indent = match[1], len(line) - len(line.lstrip())
            self._put(done, Block("language", match[2], self._fence_indent, spaced=self._any))
        elif self._open is not None and _goes_on(self._open, line):
            self._add(self._open, line, done)
        else:
            self._start(line, done)

    def _code(self, line: str, done: list[Block]) -> None:
        stripped = line.strip()
        if stripped.startswith(self._fence) and not stripped.strip(self._fence[0]):
            self._fence = ""
            self._spaced = True
        else:
            lead = len(line) - len(line.lstrip(" "))
            self._put(done, Block("code", line[min(lead, self._fence_indent) :], self._fence_indent))

    def _add(self, block: Block, line: str, done: list[Block]) -> None:
        if _begins_table(block, line):
            self._open_table(block, line, done)
            return
        if block.kind == "quote" and (match := QUOTE.match(line)):
            line = match[1]
        elif block.kind != "table":
            line = line.strip()
        self._open = Block(block.kind, f"{block.text}\n{line}", block.indent, block.mark, block.spaced)
        if len(self._open.text) > LONGEST and block.kind != "table":
            self._close(done)
        elif len(self._open.text) > LONGEST_TABLE:
            head, delimiter, _ = block.text.split("\n", 2)
            self._close(done)  # it goes on below, under the same head
            self._open = Block("table", f"{head}\n{delimiter}", block.indent)

    def _open_table(self, block: Block, line: str, done: list[Block]) -> None:
        """The last line of what looked like text is the head of a table."""
        before, _, header = block.text.rpartition("\n")
        if before:
            self._open = Block("text", before, block.indent, spaced=block.spaced)
            self._close(done)
        self._open = Block("table", f"{header}\n{line}", block.indent, spaced=bool(before) or block.spaced)

    def _start(self, line: str, done: list[Block]) -> None:
        self._close(done)
        spaced = self._spaced
        if RULE.match(line):
            self._put(done, Block("rule", "", spaced=spaced))
        elif match := HEADING.match(line):
            title = match[2].rstrip().rstrip("#").rstrip()
            self._put(done, Block("heading", title, mark=str(len(match[1])), spaced=self._any))
            self._spaced = True
        elif match := ITEM.match(line):
            self._open = Block("item", match[3] or "", len(match[1].expandtabs(4)), match[2], spaced)
        elif match := QUOTE.match(line):
            self._open = Block("quote", match[1], spaced=spaced)
        else:
            indent = len(line) - len(line.lstrip())
            self._open = Block("text", line.strip(), indent, spaced=spaced)
        if self._open is not None and len(self._open.text) > LONGEST:
            self._close(done)

    def _close(self, done: list[Block]) -> None:
        if self._open is not None:
            block, self._open = self._open, None
            self._put(done, block)

    def _put(self, done: list[Block], block: Block) -> None:
        done.append(block)
        self._any, self._spaced = True, False


def _goes_on(block: Block, line: str) -> bool:
    """Whether the line belongs to the block that is open."""
    if block.kind == "table":
        return "|" in line
    if block.kind == "quote":
        return QUOTE.match(line) is not None
    return _begins_table(block, line) or not any(mark.match(line) for mark in (RULE, HEADING, ITEM, QUOTE))


def _begins_table(block: Block, line: str) -> bool:
    """Whether the line is the delimiter below the head of a table."""
    is_row = block.kind == "text" and "|" in block.text.rpartition("\n")[2] and "|" in line
    return is_row and DELIMITER.match(line) is not None


def _cut(line: str) -> list[str]:
    """A line in pieces that are not too long: somebody writes without line breaks. At a space, where there is one."""
    pieces, at = [], 0
    while len(line) - at > LONGEST:
        cut = line.rfind(" ", at, at + LONGEST) + 1 or at + LONGEST
        pieces.append(line[at:cut])
        at = cut
    return [*pieces, line[at:]]


def _may_be_mark(rest: str) -> bool:
    """Whether the beginning of a line may yet become a fence, a heading or a bullet: shown a moment later."""
    return bool(re.fullmatch(r"\s*(`{1,2}|~{1,2}|#{1,6}\s*|[-*+]\s*|\d{1,9}[.)]?\s*|>|\|)", rest))


WIDEST = 100  # columns of running text: longer lines are hard to read


def render(block: Block, width: int, *, open_ended: bool = False) -> list[Line]:
    """The lines of a block, with a blank one before it where there should be one."""
    block = Block(block.kind, harmless(block.text), min(block.indent, 12), block.mark, block.spaced)
    lines = _lines(block, max(16, width), open_ended=open_ended)
    return [[], *lines] if block.spaced and lines else lines


def render_text(text: str, width: int) -> list[Line]:
    """A whole text that is there already."""
    stream = BlockStream()
    return [line for block in [*stream.feed(text), *stream.finish()] for line in render(block, width)]


def plain(text: str, width: int) -> list[Line]:
    """Text that was laid out by whoever wrote it: nothing is marked up, and only what is too wide is wrapped."""
    lines = harmless(text).rstrip("\n").split("\n")
    return [piece for line in lines for piece in wrap([("", line)], width, (), [("", "    ")])]


def _lines(block: Block, width: int, *, open_ended: bool) -> list[Line]:
    before = " " * block.indent
    narrow, style = min(width, WIDEST), ""
    first: Line = [("", before)] if before else []
    rest, text = first, block.text
    match block.kind:
        case "rule":
            return [[("dim", "─" * min(width, 40))]]
        case "table":
            return table_lines(text, width)
        case "language":  # alone, without a frame: what is copied out of a listing should be the listing
            return [[("dim", f"{before}  {text or 'code'}")]]
        case "code":
            return [[("", f"{before}  "), ("listing", text)]]
        case "heading":
            narrow, first, rest, style = width, [], [], "heading" if block.mark in ("1", "2") else "strong"
        case "quote":
            first = rest = [("dim", "│ ")]
            style = "quote"
        case "item":
            mark = "•" if block.mark in "-*+" else block.mark
            if text[:4] in ("[ ] ", "[x] ", "[X] "):
                mark, text = "☐" if text[1] == " " else "☑", text[4:]
            first, rest = [("", before), ("bullet", f"{mark} ")], [("", before + " " * (width_of(mark) + 1))]
    return wrap(inline(text, style, open_ended=open_ended), narrow, first, rest)
