"""Figures and how they are shown: one table, each beside what it is compared with, and whether its target is met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """Milliseconds of ours and of others. `limit` is milliseconds, or times the best of the others."""

    name: str
    ours: float
    others: Mapping[str, float]
    limit: float | None = None
    limit_is_ratio: bool = False

    @property
    def best(self) -> tuple[str, float] | None:
        return min(self.others.items(), key=lambda item: item[1]) if self.others else None

    @property
    def ratio(self) -> float | None:
        return self.ours / self.best[1] if self.best else None

    @property
    def met(self) -> bool | None:
        """None when there is no target, or nobody to compare with."""
        if self.limit is None:
            return None
        value = self.ratio if self.limit_is_ratio else self.ours
        return None if value is None else value <= self.limit

    @property
    def target(self) -> str:
        if self.limit is None:
            return ""
        return f"≤ {self.limit:g}×" if self.limit_is_ratio else f"≤ {self.limit:g} ms"

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "others": dict(self.others), "ratio": self.ratio, "met": self.met}


_HEAD = ("p50, milliseconds", "ours", "beside it", "ratio", "target", "")
_VERDICT = {True: "met", False: "MISSED", None: ""}


def render(figures: Sequence[Figure]) -> str:
    rows = [_HEAD, *(_row(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def _row(figure: Figure) -> tuple[str, ...]:
    others = ", ".join(f"{name} {value:,.1f}" for name, value in figure.others.items())
    ratio = f"{figure.ratio:.2f}×" if figure.ratio is not None else ""
    return figure.name, f"{figure.ours:,.1f}", others, ratio, figure.target, _VERDICT[figure.met]
