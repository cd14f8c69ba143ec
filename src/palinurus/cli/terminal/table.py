"""A table of markdown, laid out for the width that there is. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from palinurus.cli.terminal.spans import Line, Span, inline, line_width, wrap

NARROWEST = 6  # a column below that is no column
SEPARATOR = " │ "
_BAR = re.compile(r"(?<!\\)\|")


def table_lines(text: str, width: int) -> list[Line]:
    """The table; or, where it cannot fit, each row as a list of `head: cell`."""
    head, delimiter, *body = text.split("\n")
    columns = len(cells(delimiter))
    rows = [_filled(cells(row), columns) for row in (head, *body)]
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


def _filled(row: list[str], columns: int) -> list[str]:
    return (row + [""] * columns)[:columns]


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
