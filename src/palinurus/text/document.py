"""Reads markdown into lines.

The parser is given texts of strangers: nesting, tables and the length of what is parsed are bounded. What is beyond a
bound is text. Definitions of links are not used: they would be missing from the other messages of a reply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from palinurus.text.blocks import LONGEST_FENCE
from palinurus.text.cuts import find_cut
from palinurus.text.lines import BOLD, CODE, ITALIC, STRIKE, LineBlock, LineContainer, Span, TextLine, tidied

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token
from palinurus.text.lines import plain_text

WIDEST = 60  # columns are not filled beyond
_MOST_PADDING = 20_000  # characters, and as many as the table has itself: else it is not aligned


def aligned_rows(rows: Sequence[Sequence[Sequence[Span]]], aligns: Sequence[str]) -> list[list[str]]:
    """The lines of each row. Below the head there is a line."""
    texts = [[plain_text(cell) for cell in row] for row in rows]
    widths = [[_width(cell) for cell in row] for row in texts]
    columns = [min(WIDEST, max((row[n] for row in widths if n < len(row)), default=0)) for n in range(len(aligns))]
    filled = sum(sum(columns[: _last(row) + 1]) for row in texts)
    if filled > 2 * sum(map(sum, widths)) + _MOST_PADDING:
        columns = [0] * len(columns)
    lines = [[_row(row, width, columns, aligns)] for row, width in zip(texts, widths, strict=True)]
    if any(columns):
        lines[0].append("-+-".join("-" * max(1, column) for column in columns))
    return lines


def _row(cells: Sequence[str], widths: Sequence[int], columns: Sequence[int], aligns: Sequence[str]) -> str:
    shown = []
    for cell, width, column, align in zip(cells[: _last(cells) + 1], widths, columns, aligns, strict=False):
        space = max(0, column - width)
        left = {"right": space, "center": space // 2}.get(align, 0)
        shown.append(f"{' ' * left}{cell}{' ' * (space - left)}")
    return " | ".join(shown).rstrip()


def _last(cells: Sequence[str]) -> int:
    """The last cell that is not empty: rows end there."""
    return next((index for index in range(len(cells) - 1, -1, -1) if cells[index]), 0)


def _width(text: str) -> int:
    """Columns on the screen."""
    if text.isascii():
        return len(text)
    import wcwidth  # slow to import

    width = wcwidth.wcswidth(text)
    return width if width >= 0 else len(text)


MOST = 150_000  # characters that are parsed; the rest of a text becomes plain paragraphs
_PIECE = 8_000  # characters of a paragraph that are parsed at once
_DEEPEST = 16  # levels of the parser: a list takes two of them, a quotation one
_NESTED_LINKS = 10
_MOST_CELLS = 20_000  # of all tables; short rows are filled with empty ones
_STYLES = {"strong": BOLD, "em": ITALIC, "s": STRIKE}
_FENCE_INDENT = re.compile(r"[ \t]*")
_LANGUAGE = re.compile(r"[\w+#.-]{1,32}")
_UNUSABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufdd0]")
_LOOSE_ITEM = re.compile(r"\s{4,}(?=[-*+] |\d{1,9}[.)] )")
# CommonMark does not end **bold。**after a full stop that a letter follows, as it does without spaces between words.
_MARK_AFTER_STOP = re.compile(r"([\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\u2018-\u201f])(\*{1,3}|~~)(?=\w)")
_MARK_BEFORE_STOP = re.compile(r"(?<=\w)(\*{1,3}|~~)([\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\u2018-\u201f])")
_JOINT = "\ufdd0"  # counts as a letter for the parser

Rule = Callable[["StateBlock", int, int, bool], bool]


def read_markdown(markdown: str, opened: str = "") -> list[TextLine]:
    """The lines of a text that begins inside the code fence `opened`."""
    text = _UNUSABLE.sub("", markdown.replace("\r\n", "\n").replace("\r", "\n"))
    if opened:
        text = _reopened(text, opened)
    elif loose := _LOOSE_ITEM.match(text):
        text = text[loose.end() :]  # a block that begins in the middle of a list is no code
    if len(text) <= MOST:
        return _Reader(text).lines
    place = text.rfind("\n", 0, MOST) + 1 or MOST
    reader = _Reader(text[:place])
    reader.add_plain(text[place:])
    return reader.lines


def _reopened(text: str, opened: str) -> str:
    """Begins with the fence; both are moved to the left when it was part of a list."""
    indent = len(_FENCE_INDENT.match(opened).group())  # type: ignore[union-attr]
    if indent:
        text = re.sub(rf"^ {{1,{indent}}}", "", text, flags=re.MULTILINE)
    return f"{opened[indent:LONGEST_FENCE]}\n{text}"


@cache
def _parsers() -> tuple[MarkdownIt, MarkdownIt]:
    """For blocks, and for what is in them."""
    from markdown_it import MarkdownIt

    def parser(nesting: int) -> MarkdownIt:
        made = MarkdownIt("commonmark", {"html": False, "maxNesting": nesting}).enable(["table", "strikethrough"])
        made.disable(["html_block", "html_inline", "reference"])
        made.validateLink = lambda url: True  # type: ignore[method-assign]  # other schemes become text
        return made

    blocks, inline = parser(_DEEPEST + 4), parser(_NESTED_LINKS)
    from markdown_it.rules_block import blockquote, list_block, table

    paragraph = ["paragraph", "reference"]
    blocks.block.ruler.at("blockquote", _shallow(blockquote), {"alt": [*paragraph, "blockquote", "list"]})
    blocks.block.ruler.at("list", _shallow(list_block), {"alt": [*paragraph, "blockquote"]})
    blocks.block.ruler.at("table", _few_cells(table), {"alt": paragraph})
    return blocks, inline


def _shallow(rule: Rule) -> Rule:
    """The rule, up to a depth: beyond its own limit the parser drops text."""

    def bounded(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        return state.level < _DEEPEST and rule(state, start, end, silent)

    return bounded


def _few_cells(rule: Rule) -> Rule:
    def bounded(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        if state.env.get("cells", 0) > _MOST_CELLS:
            return False
        before = len(state.tokens)
        done = rule(state, start, end, silent)
        state.env["cells"] = state.env.get("cells", 0) + (len(state.tokens) - before) // 3
        return done

    return bounded


class _Reader:
    """Goes through the parser's tokens and collects lines."""

    def __init__(self, text: str) -> None:
        blocks, self._inline = _parsers()
        self.lines: list[TextLine] = []
        self._source = text.split("\n")
        self._path: list[LineContainer] = []
        self._lists: list[list[int]] = []  # id and next number of each list that is open
        self._shown = 0  # containers that have a line
        self._ids = iter(range(1, 1 << 62))
        tokens: list[Token] = []
        blocks.block.parse(text, blocks, {}, tokens)
        self._read(iter(tokens))

    def add_plain(self, text: str) -> None:
        for paragraph in re.split(r"\n[ \t]*\n", text):
            if paragraph.strip():
                block = LineBlock("paragraph", next(self._ids))
                self._add_lines([(Span(line),) for line in paragraph.strip("\n").split("\n")], block, gap=True)

    def _read(self, tokens: Iterator[Token]) -> None:
        read: dict[str, Callable[[Token], object]] = {
            "blockquote_open": self._open_quote,
            "blockquote_close": lambda _: self._close(),
            "bullet_list_open": lambda _: self._lists.append([next(self._ids), -1]),
            "bullet_list_close": lambda _: self._lists.pop(),
            "ordered_list_open": lambda token: self._lists.append([next(self._ids), int(token.attrs.get("start", 1))]),
            "ordered_list_close": lambda _: self._lists.pop(),
            "list_item_open": lambda _: self._open_item(),
            "list_item_close": self._close_item,
            "table_open": lambda token: self._read_table(token, tokens),
            "paragraph_open": lambda token: self._read_text(token, next(tokens)),
            "heading_open": lambda token: self._read_text(token, next(tokens)),
            "fence": self._read_code,
            "code_block": self._read_code,
            "hr": self._read_rule,
        }
        for token in tokens:
            if token.type in read:
                read[token.type](token)

    def _read_rule(self, token: Token) -> None:
        self._add_lines([()], LineBlock("rule", next(self._ids)), gap=self._gap(token))

    def _open_quote(self, token: Token) -> None:
        self._show_items(token)
        self._path.append(LineContainer("quote", next(self._ids)))

    def _open_item(self) -> None:
        opened = self._lists[-1]
        self._path.append(LineContainer("item", next(self._ids), opened[0], opened[1], len(self._lists) - 1))
        opened[1] += opened[1] >= 0

    def _close_item(self, token: Token) -> None:
        self._show_items(token)
        self._close()

    def _close(self) -> None:
        self._path.pop()
        self._shown = min(self._shown, len(self._path))

    def _show_items(self, token: Token) -> None:
        """An item that has no text, or begins with something else, has a line of its own for its mark."""
        if any(container.kind == "item" for container in self._path[self._shown :]):
            self._add_lines([()], LineBlock("paragraph", next(self._ids), is_tight=True), gap=self._gap(token))

    def _read_text(self, token: Token, inline: Token) -> None:
        level = int(token.tag[1]) if token.type == "heading_open" else 0
        block = LineBlock("heading" if level else "paragraph", next(self._ids), level, is_tight=token.hidden)
        self._add_lines(self._spans(inline.content), block, gap=self._gap(token))

    def _read_code(self, token: Token) -> None:
        self._show_items(token)
        language = _LANGUAGE.match(token.info.strip())
        block = LineBlock("code", next(self._ids), language=language.group() if language else "")
        rows = token.content.removesuffix("\n").split("\n")
        self._add_lines([(Span(row, CODE),) if row else () for row in rows], block, gap=self._gap(token))

    def _read_table(self, opened: Token, tokens: Iterator[Token]) -> None:
        self._show_items(opened)
        rows: list[list[tuple[Span, ...]]] = []
        aligns: list[str] = []
        for token in tokens:
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "inline":
                rows[-1].append(tidied([span for line in self._spans(token.content) for span in line]))
            elif token.type == "th_open":
                aligns.append(str(token.attrGet("style") or "").removeprefix("text-align:"))
            elif token.type == "table_close":
                break
        block = LineBlock("table", next(self._ids), aligns=tuple(aligns))
        for number, (cells, row) in enumerate(zip(rows, aligned_rows(rows, aligns), strict=True)):
            for index, text in enumerate(row):  # below the head there is a line
                shown = tuple(cells) if not index else ()
                line = TextLine((Span(text, CODE),) if text else (), block, cells=shown, is_head=not number)
                self._add(line, gap=self._gap(opened) and not number and not index)

    def _gap(self, token: Token) -> bool:
        """Whether there is a blank line before the block."""
        start = token.map[0] if token.map else 0
        return bool(self.lines) and start > 0 and not self._source[start - 1].strip(" \t>")

    def _add_lines(self, rows: Sequence[Sequence[Span]], block: LineBlock, *, gap: bool) -> None:
        for index, spans in enumerate(rows):
            self._add(TextLine(tuple(spans), block), gap=gap and not index)

    def _add(self, line: TextLine, *, gap: bool) -> None:
        path, fresh = tuple(self._path), self._shown
        self.lines.append(
            TextLine(line.spans, line.block, path, fresh, gap and bool(self.lines), line.cells, line.is_head)
        )
        self._shown = len(self._path)

    def _spans(self, content: str) -> list[tuple[Span, ...]]:
        lines: list[list[Span]] = [[]]
        for piece in _pieces(content):
            tokens: list[Token] = []
            self._inline.inline.parse(_with_joints(piece), self._inline, {}, tokens)
            _collect(tokens, lines)
        return [tidied(line) for line in lines]


def _pieces(content: str) -> Iterator[str]:
    at = 0
    while len(content) - at > _PIECE:
        newline = content.rfind("\n", at + _PIECE // 2, at + _PIECE)
        end = newline if newline > 0 else at + find_cut(content[at : at + _PIECE + 1], _PIECE // 2, _PIECE)
        yield content[at:end]
        at = end
    yield content[at:]


def _with_joints(text: str) -> str:
    if text.isascii():
        return text
    return _MARK_BEFORE_STOP.sub(rf"\1{_JOINT}\2", _MARK_AFTER_STOP.sub(rf"\1{_JOINT}\2", text))


def _collect(tokens: Sequence[Token], lines: list[list[Span]]) -> None:
    """Adds the spans of the tokens to the last line, and further lines."""
    style, link = 0, ""
    for token in tokens:
        name, _, part = token.type.rpartition("_")
        if token.type in ("softbreak", "hardbreak"):
            lines.append([])
        elif name == "link":
            link = _attribute(token, "href") if part == "open" else ""
        elif name in _STYLES:
            style = style | _STYLES[name] if part == "open" else style & ~_STYLES[name]
        elif token.type == "image":
            address = _attribute(token, "src")
            lines[-1].append(Span(token.content.replace(_JOINT, "") or address, style, link or address))
        else:
            shown = style | CODE if token.type == "code_inline" else style
            lines[-1].append(Span(token.content.replace(_JOINT, "").replace("\n", " "), shown, link))


def _attribute(token: Token, name: str) -> str:
    value: Any = token.attrGet(name)
    return str(value or "").replace(_JOINT, "").replace("%EF%B7%90", "")
