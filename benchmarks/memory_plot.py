"""A plot as SVG, by hand: lines over two logarithmic axes, which is all that growth needs to be seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 460, 340
LEFT, RIGHT, TOP, BOTTOM = 62, 20, 34, 78
COLOURS = ("#1f6feb", "#d1570b", "#1a7f37", "#8250df")
_STYLE = "text{font:12px sans-serif;fill:#57606a}.t{font-weight:bold}.g{stroke:#d0d7de;stroke-width:1}"


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str  # of the upright axis
    series: Mapping[str, Points]


def draw(panels: Sequence[Panel], across: str) -> str:
    """Side by side, on a white ground: a page in the dark shows it as well."""
    inner = "".join(
        f'<g transform="translate({at * WIDTH},0)">{"".join(_panel(panel, across))}</g>'
        for at, panel in enumerate(panels)
    )
    size = f'width="{WIDTH * len(panels)}" height="{HEIGHT}" viewBox="0 0 {WIDTH * len(panels)} {HEIGHT}"'
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>{ground}{inner}</svg>\n'


def _panel(panel: Panel, across: str) -> Iterator[str]:
    points = [point for line in panel.series.values() for point in line]
    horizontal = _Axis.around([x for x, _ in points], LEFT, WIDTH - RIGHT)
    upright = _Axis.around([y for _, y in points], HEIGHT - BOTTOM, TOP)
    yield f'<text class="t" x="{LEFT}" y="20">{escape(panel.title)}</text>'
    for value, at in horizontal.ticks():
        yield f'<line class="g" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        yield f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{_short(value)}</text>'
    for value, at in upright.ticks():
        yield f'<line class="g" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{_short(value)} {escape(panel.unit)}</text>'
    middle = (LEFT + WIDTH - RIGHT) // 2
    yield f'<text x="{middle}" y="{HEIGHT - BOTTOM + 34}" text-anchor="middle">{escape(across)}</text>'
    for number, (name, line) in enumerate(panel.series.items()):
        yield from _line(COLOURS[number % len(COLOURS)], [(horizontal.at(x), upright.at(y)) for x, y in line])
        x, y = LEFT + number % 2 * 190, HEIGHT - 24 + number // 2 * 16
        yield f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{COLOURS[number % len(COLOURS)]}"/>'
        yield f'<text x="{x + 15}" y="{y}">{escape(name)}</text>'


def _line(colour: str, points: Points) -> Iterator[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'


@dataclass(frozen=True)
class _Axis:
    """Whole powers of ten between two places on the paper."""

    low: int
    high: int
    begins: float
    ends: float

    @classmethod
    def around(cls, values: Sequence[float], begins: float, ends: float) -> _Axis:
        low, high = floor(log10(min(values)) + 1e-9), ceil(log10(max(values)) - 1e-9)
        return cls(low, max(high, low + 1), begins, ends)

    def at(self, value: float) -> float:
        return self.begins + (log10(value) - self.low) / (self.high - self.low) * (self.ends - self.begins)

    def ticks(self) -> Iterator[tuple[float, float]]:
        for power in range(self.low, self.high + 1):
            yield 10.0**power, self.at(10.0**power)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
