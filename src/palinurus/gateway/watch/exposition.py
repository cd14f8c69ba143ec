"""Figures in the text format of Prometheus (version 0.0.4): counters, gauges, histograms.

What stands in a label may come from outside (the name of a tool that a model made up), so the values of each label are
few: past a cap, and for anything that is not a plain name, they are called `other`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"
MOST = 100  # values of one label
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_PLAIN = re.compile(r"[A-Za-z0-9/_][A-Za-z0-9 /:@+._{}-]{0,79}")


class Family(Protocol):
    """All lines of one name."""

    def lines(self) -> Iterator[str]: ...


class Few:
    """The values that a label has had so far."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: set[str] = set()

    def of(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= self._most or not _PLAIN.fullmatch(value):
            return OTHER
        self._known.add(value)
        return value


def few_of(few: Sequence[Few], labels: Sequence[str]) -> tuple[str, ...]:
    return tuple(known.of(label) for known, label in zip(few, labels, strict=True))


class Counter:
    """Only ever goes up."""

    kind = "counter"

    def __init__(self, name: str, about: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.about = about
        self._labels = tuple(labels)
        self._few = tuple(Few() for _ in labels)
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def add(self, *labels: str, by: float = 1) -> None:
        key = labels if labels in self._values else few_of(self._few, labels)
        self._values[key] = self._values.get(key, 0) + by

    def lines(self) -> Iterator[str]:
        yield from head(self.name, self.about, self.kind)
        for key, value in self._values.items():
            yield sample(self.name, dict(zip(self._labels, key, strict=True)), value)


class Histogram:
    """How often a figure was how large."""

    def __init__(self, name: str, about: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS) -> None:
        self.name = name
        self.about = about
        self._labels = tuple(labels)
        self._few = tuple(Few() for _ in labels)
        self._buckets = tuple(buckets)
        self._counts: dict[tuple[str, ...], list[int]] = {}  # one more than there are buckets
        self._sums: dict[tuple[str, ...], float] = {}
        if not labels:
            self._counts[()], self._sums[()] = [0] * (len(self._buckets) + 1), 0.0

    def observe(self, value: float, *labels: str) -> None:
        key = labels if labels in self._counts else few_of(self._few, labels)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = [0] * (len(self._buckets) + 1)
        counts[bisect_left(self._buckets, value)] += 1
        self._sums[key] = self._sums.get(key, 0.0) + value

    def lines(self) -> Iterator[str]:
        yield from head(self.name, self.about, "histogram")
        for key, counts in self._counts.items():
            labels = dict(zip(self._labels, key, strict=True))
            so_far = 0
            for limit, count in zip((*map(number, self._buckets), "+Inf"), counts, strict=True):
                so_far += count
                yield sample(f"{self.name}_bucket", {**labels, "le": limit}, so_far)
            yield sample(f"{self.name}_sum", labels, self._sums[key])
            yield sample(f"{self.name}_count", labels, so_far)


class Reading:
    """What is looked up when somebody asks: a gauge, or a counter that somebody else keeps."""

    def __init__(self, name: str, about: str, value: float | Mapping[str, float], label: str = "", kind: str = "gauge"):
        self.name = name
        self.about = about
        self._kind = kind
        self._values = {"": value} if isinstance(value, int | float) else dict(value)
        self._label = label

    def lines(self) -> Iterator[str]:
        yield from head(self.name, self.about, self._kind)
        for which, value in self._values.items():
            yield sample(self.name, {self._label: which} if self._label else {}, value)


def head(name: str, about: str, kind: str) -> Iterator[str]:
    told = about.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {name} {told}"
    yield f"# TYPE {name} {kind}"


def sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {number(value)}" if inside else f"{name} {number(value)}"


def number(value: float) -> str:
    if value != value:  # the one number that is not itself
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def rendered(families: Sequence[Family]) -> str:
    return "".join(f"{line}\n" for family in families for line in family.lines())
