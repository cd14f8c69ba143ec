"""How memory grows: the same measurements over notes of 10,000, 100,000 and 1,000,000 lines, and a plot of them.

    python -m benchmarks.memory_curve --svg docs/memory-speed.svg --out curve.json      about ten minutes

Processor time, because it bears a busy machine; of one process, in which the index is made, looked through for changes
and asked. Its vectors are random (benchmarks/warm_memory.py says why).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import memory_corpus
from benchmarks.memory_plot import Panel, draw
from benchmarks.warm_memory import AgentMemories

SIZES = (10_000, 100_000, 1_000_000)
QUESTIONS = 40
Row = dict[str, float]


async def grow(folder: Path, lines: int) -> Row:
    corpus = memory_corpus.write_corpus(folder / "notes", lines)
    index = folder / "index.sqlite"
    memory = AgentMemories(index, corpus.workspace)
    row: Row = {"lines": corpus.lines, "text MB": corpus.characters / 1e6}
    row["made"] = await _spent(memory.index.sync)
    row["no change"] = await _spent(memory.index.sync)
    memory_corpus.change(corpus, 0.05, 1)
    row["5 % changed"] = await _spent(memory.index.sync)
    row["words MB"] = await _closed(memory, index)
    memory = AgentMemories(index, corpus.workspace)
    row["vectors filled"] = await _spent(memory.fill)
    row["words and vectors MB"] = await _closed(memory, index)
    memory = AgentMemories(index, corpus.workspace)
    await memory.load_model()
    questions = corpus.questions[:QUESTIONS]
    for kind, queries, by_words in (
        ("rare word", corpus.rare[:QUESTIONS], True),
        ("question by words", questions, True),
        ("question by words and vectors", questions, False),
    ):
        await memory.timed(queries[0], by_words=by_words)  # warms up
        taken = [await memory.timed(query, by_words=by_words) for query in queries]
        row[kind] = median(cpu for _, cpu in taken)
        row[f"{kind}, wall"] = median(wall for wall, _ in taken)
    await memory.close()
    return row


async def _spent(work: Callable[[], Awaitable[Any]]) -> float:
    """Seconds of the processor."""
    began = time.process_time()
    await work()
    return time.process_time() - began


async def _closed(memory: AgentMemories, index: Path) -> float:
    """Megabytes on the disk, with nothing left in the log."""
    await memory.close()
    return index.stat().st_size / 1e6


def plot(rows: Sequence[Row]) -> str:
    def series(*names: str) -> dict[str, list[tuple[float, float]]]:
        return {name: [(row["lines"], row[name]) for row in rows] for name in names}

    return draw(
        [
            Panel("Text index, seconds of CPU", "s", series("made", "5 % changed", "no change")),
            Panel(
                "One search, milliseconds of CPU, p50",
                "ms",
                series("rare word", "question by words", "question by words and vectors"),
            ),
            Panel("On the disk", "MB", series("text MB", "words MB", "words and vectors MB")),
        ],
        "lines of notes",
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory_curve", description="Measure how memory grows.")
    parser.add_argument("--lines", type=int, nargs="+", default=SIZES)
    parser.add_argument("--svg", type=Path, help="draw the plot into this file")
    parser.add_argument("--out", type=Path, help="write the figures as JSON to this file")
    options = parser.parse_args()
    rows = []
    for lines in options.lines:
        with tempfile.TemporaryDirectory(prefix="pal-curve-", ignore_cleanup_errors=True) as folder:
            rows.append(asyncio.run(grow(Path(folder), lines)))
        print(json.dumps({name: round(value, 3) for name, value in rows[-1].items()}), file=sys.stderr)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    if options.svg:
        options.svg.write_text(plot(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
