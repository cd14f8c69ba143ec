"""Markdown cut into blocks while it arrives. Pure.

A block that is complete is never touched again, so it can be printed and scroll away; the one that is still being
written is shown as it stands. Code comes line by line: a long listing need not wait for its end.
"""

from __future__ import annotations

import re
from copy import copy
from typing import Literal

from msgspec import Struct

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
        done: list[Block] = []
        for line in lines:
            for piece in _cut(line.rstrip("\r")):
                self._line(piece, done)
        *pieces, self._rest = _cut(rest)
        for piece in pieces:
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
        elif self._open is not None and self._goes_on(self._open, line):
            self._add(line, done)
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

    def _goes_on(self, block: Block, line: str) -> bool:
        """Whether the line belongs to the block that is open."""
        if block.kind == "table":
            return "|" in line
        if block.kind == "quote":
            return QUOTE.match(line) is not None
        if block.kind == "text" and "|" in block.text.rpartition("\n")[2] and "|" in line and DELIMITER.match(line):
            return True
        return not (RULE.match(line) or HEADING.match(line) or ITEM.match(line) or QUOTE.match(line))

    def _add(self, line: str, done: list[Block]) -> None:
        block = self._open
        if block is None:
            return
        last = block.text.rpartition("\n")[2]
        if block.kind == "text" and "|" in last and "|" in line and DELIMITER.match(line):
            self._open_table(block, last, line, done)
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

    def _open_table(self, block: Block, header: str, line: str, done: list[Block]) -> None:
        """The last line of what looked like text is the head of a table."""
        before = block.text[: -len(header)].rstrip("\n")
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
            self._put(
                done,
                Block("heading", match[2].rstrip().rstrip("#").rstrip(), mark=str(len(match[1])), spaced=self._any),
            )
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
