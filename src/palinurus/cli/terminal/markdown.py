"""A block of markdown as lines of a terminal. Pure."""

from __future__ import annotations

from collections.abc import Callable

from palinurus.cli.terminal.blocks import Block, BlockStream
from palinurus.cli.terminal.spans import Line, harmless, inline, width_of, wrap
from palinurus.cli.terminal.table import table_lines

WIDEST = 100  # columns of running text: longer lines are hard to read


def render(block: Block, width: int, *, open_ended: bool = False) -> list[Line]:
    """The lines of a block, with a blank one before it where there should be one."""
    block = Block(block.kind, harmless(block.text), min(block.indent, 12), block.mark, block.spaced)
    lines = _RENDERERS[block.kind](block, max(16, width), open_ended)
    return [[], *lines] if block.spaced and lines else lines


def render_text(text: str, width: int) -> list[Line]:
    """A whole text that is there already."""
    stream = BlockStream()
    return [line for block in [*stream.feed(text), *stream.finish()] for line in render(block, width)]


def plain(text: str, width: int) -> list[Line]:
    """Text that was laid out by whoever wrote it: nothing is marked up, and only what is too wide is wrapped."""
    lines = harmless(text).rstrip("\n").split("\n")
    return [piece for line in lines for piece in wrap([("", line)], width, (), [("", "    ")])]


def _text(block: Block, width: int, open_ended: bool) -> list[Line]:
    margin: Line = [("", " " * block.indent)] if block.indent else []
    return wrap(inline(block.text, open_ended=open_ended), min(width, WIDEST), margin, margin)


def _heading(block: Block, width: int, open_ended: bool) -> list[Line]:
    style = "heading" if block.mark in ("1", "2") else "strong"
    return wrap(inline(block.text, style, open_ended=open_ended), width)


def _item(block: Block, width: int, open_ended: bool) -> list[Line]:
    mark, text = "•" if block.mark in "-*+" else block.mark, block.text
    if text[:4] in ("[ ] ", "[x] ", "[X] "):
        mark, text = "☐" if text[1] == " " else "☑", text[4:]
    before = " " * block.indent
    first: Line = [("", before), ("bullet", f"{mark} ")]
    rest: Line = [("", before + " " * (width_of(mark) + 1))]
    return wrap(inline(text, open_ended=open_ended), min(width, WIDEST), first, rest)


def _quote(block: Block, width: int, open_ended: bool) -> list[Line]:
    bar: Line = [("dim", "│ ")]
    return wrap(inline(block.text, "quote", open_ended=open_ended), min(width, WIDEST), bar, bar)


def _rule(_: Block, width: int, __: bool) -> list[Line]:
    return [[("dim", "─" * min(width, 40))]]


def _table(block: Block, width: int, _: bool) -> list[Line]:
    return table_lines(block.text, width)


def _language(block: Block, _: int, __: bool) -> list[Line]:
    # The name stands alone, without a frame: what is copied out of a listing should be the listing.
    return [[("dim", " " * block.indent + f"  {block.text or 'code'}")]]


def _code(block: Block, _: int, __: bool) -> list[Line]:
    return [[("", " " * (block.indent + 2)), ("listing", block.text)]]


_RENDERERS: dict[str, Callable[[Block, int, bool], list[Line]]] = {
    "text": _text,
    "heading": _heading,
    "item": _item,
    "quote": _quote,
    "rule": _rule,
    "table": _table,
    "language": _language,
    "code": _code,
}
