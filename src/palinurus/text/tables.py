"""Tables as lines of aligned text, for networks that have none. Wide characters count as wide."""

from __future__ import annotations

from collections.abc import Sequence

from palinurus.text.lines import Span, plain_text

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
