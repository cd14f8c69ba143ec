"""Figures and how they are shown: one table, each beside what it is compared with, and whether its target is met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """What was measured of ours and of others, in milliseconds where no unit is told.

    `limit` is in the same unit, or times the one that it is compared `against`: the best of the others, if not named.
    """

    name: str
    ours: float
    others: Mapping[str, float]
    limit: float | None = None
    limit_is_ratio: bool = False
    unit: str = "ms"
    more_is_better: bool = False
    against: str = ""

    @property
    def compared(self) -> float | None:
        """The figure that ours is compared with."""
        if self.against:
            return self.others.get(self.against)
        best = max if self.more_is_better else min
        return best(self.others.values(), default=None)

    @property
    def ratio(self) -> float | None:
        return self.ours / self.compared if self.compared else None

    @property
    def met(self) -> bool | None:
        """None when there is no target, or nobody to compare with."""
        value = self.ratio if self.limit_is_ratio else self.ours
        if self.limit is None or value is None:
            return None
        return value >= self.limit if self.more_is_better else value <= self.limit

    @property
    def target(self) -> str:
        if self.limit is None:
            return ""
        sign, unit = "≥" if self.more_is_better else "≤", f" {self.unit}".rstrip()
        if not self.limit_is_ratio:
            return f"{sign} {self.limit:g}{unit}"
        return f"{sign} {self.limit:.3g}×" + (f" {self.against}" if self.against else "")

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
    unit = "" if figure.unit == "ms" else f" {figure.unit}"
    return figure.name, f"{figure.ours:,.1f}{unit}", others, ratio, figure.target, _VERDICT[figure.met]
