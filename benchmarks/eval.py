"""What memory search finds, on conversations and questions that nobody here wrote.

    EVAL_DATA=folder python -m benchmarks.eval            five minutes, most of them for the baselines' vectors
    EVAL_DATA=folder python -m benchmarks.eval --quick    without the baselines that need vectors

The folder has `make-locomo`, which makes workspaces with questions, and `score`, which says how much of the evidence
lies within so many tokens of the answers. Each question goes through the search that the tool uses, over a real index
with the embedded model; the baselines are computed in the same run over the same files. Nothing of the data stays.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.eval_baselines import Chunks
from palinurus.domain.clock import SystemClock, local_time
from palinurus.extensions.knowledge.facts import read_facts
from palinurus.extensions.knowledge.recall import RecallQuestion, RecallScope, recall_facts
from palinurus.extensions.knowledge.store import KnowledgeStore
from palinurus.memory.answer import SearchAnswer
from palinurus.memory.embedder import Embedder
from palinurus.memory.embedders.embedded import EmbeddedModel
from palinurus.memory.fill import VectorFiller
from palinurus.memory.index import MemoryIndex
from palinurus.memory.question import Question
from palinurus.memory.scan import Scanner
from palinurus.memory.search import MemorySearch
from palinurus.memory.settings import MemorySettings, SearchLimits
from palinurus.memory.store import MemoryStore

TOKENS = 2_000
LIMITS = SearchLimits(tokens=TOKENS, seconds=30)
MEASURES = ("any@1000", "all@1000", "any@2000", "all@2000")
OURS, OURS_BY_WORDS = "hybrid, as the tool searches", "the same by words alone"
RECALLED = "pal memory recall"
BM25 = "BM25, 400-token chunks, OR"
TARGETS = {
    RECALLED: (94.0, 83.5, 96.2, 88.2),
    OURS: (94.0, 83.5, 96.2, 88.2),
    OURS_BY_WORDS: (90.3, 79.2, 94.2, 85.4),
}
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}

Found = list[tuple[str, int, int]]
"""Path, first line, last line; best first."""
Rows = list[dict[str, float]]


@dataclass(frozen=True)
class Conversation:
    workspace: Path
    queries: tuple[str, ...]
    categories: tuple[int, ...]

    @classmethod
    def read(cls, workspace: Path) -> Conversation:
        lines = (workspace / "cases.jsonl").read_text(encoding="utf-8").splitlines()
        cases = [json.loads(line) for line in lines]
        return cls(workspace, tuple(case["query"] for case in cases), tuple(case["category"] for case in cases))

    def scored(self, scorer: ModuleType, answers: Iterable[Found]) -> Rows:
        """One row for each question of the categories that count."""
        lines = [
            json.dumps({"results": [{"path": path, "startLine": a, "endLine": b} for path, a, b in found]})
            for found in answers
        ]
        (self.workspace / "answers.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        rows: Rows = scorer.score(self.workspace)
        kept = [category for category in self.categories if category in CATEGORIES]
        return [row | {"category": category} for row, category in zip(rows, kept, strict=True)]


class Recalled:
    """The same through `pal memory recall`, with the facts of these files."""

    def __init__(self, workspace: Path, ours: Ours) -> None:
        self._workspace, self._ours, self._store = workspace, ours, KnowledgeStore(None)

    async def build(self) -> None:
        files = [f"memory/{path.name}" for path in sorted((self._workspace / "memory").glob("*.md"))]
        read = {path: ("", read_facts(path, (self._workspace / path).read_text(encoding="utf-8"))) for path in files}
        await self._store.replace(read, (), ())

    async def ask(self, query: str) -> Found:
        asked, today = RecallQuestion(query, budget_tokens=TOKENS), local_time(SystemClock()).date()
        searching = self._ours.search(Question(query, LIMITS))
        answer = await recall_facts(self._store, asked, RecallScope(), searching, today)
        return [(result.path, result.start_line, result.end_line) for result in answer.results]


class Ours:
    """The search of the tool, over an index of its own."""

    def __init__(self, workspace: Path, embedder: Embedder) -> None:
        settings, clock = MemorySettings(), SystemClock()
        self._store = MemoryStore(workspace / "index.sqlite")
        self._filler = VectorFiller(self._store, embedder)
        self._index = MemoryIndex(self._store, Scanner(workspace, (), sources=settings.sources), clock, settings)
        self._search = MemorySearch(self._index, self._store, embedder, settings, clock)

    async def build(self) -> None:
        await self._index.sync()
        filled = await self._filler.run()
        if filled.trouble:
            raise SystemExit(f"no vectors: {filled.trouble}")

    async def search(self, question: Question) -> SearchAnswer:
        answer = await self._search.ask(question)
        if answer.freshness.vectors not in ("complete", "off"):
            raise SystemExit(f"vectors are {answer.freshness.vectors}: {answer.freshness.why}")
        return answer

    async def ask(self, query: str, *, by_words: bool) -> Found:
        answer = await self.search(Question(query, LIMITS, keyword_only=by_words))
        return [(result.path, result.start_line, result.end_line) for result in answer.results]

    async def close(self) -> None:
        await self._index.close()
        await self._store.close()


async def measure(out: Path, scorer: ModuleType, *, quick: bool) -> dict[str, dict[str, Rows]]:
    """Rows by who answered, by conversation."""
    rows: dict[str, dict[str, Rows]] = {}
    embedder = EmbeddedModel()
    try:
        for workspace in sorted(path.parent for path in out.glob("*/cases.jsonl")):
            conversation = Conversation.read(workspace)
            print(f"{workspace.name}: {len(conversation.queries)} questions", file=sys.stderr, flush=True)
            for name, answer in (await answerers(workspace, embedder, quick=quick)).items():
                answers = [await answer(query) for query in conversation.queries]
                rows.setdefault(name, {})[workspace.name] = conversation.scored(scorer, answers)
    finally:
        await embedder.close()
    return rows


async def answerers(
    workspace: Path, embedder: Embedder, *, quick: bool
) -> dict[str, Callable[[str], Awaitable[Found]]]:
    ours, chunks = Ours(workspace, embedder), Chunks(workspace, embedder)
    await ours.build()
    recalled = Recalled(workspace, ours)
    await recalled.build()

    async def by_both(query: str) -> Found:
        return await ours.ask(query, by_words=False)

    async def by_words(query: str) -> Found:
        return await ours.ask(query, by_words=True)

    named: dict[str, Callable[[str], Awaitable[Found]]] = {
        RECALLED: recalled.ask,
        OURS: by_both,
        OURS_BY_WORDS: by_words,
        BM25: chunks.by_any,
    }
    if not quick:
        await chunks.embed()
        named |= {"AND, 0.7 vector + 0.3 text, same chunks": chunks.by_all_and_vector, "vectors only": chunks.by_vector}
    return named


def means(rows: Rows) -> tuple[float, ...]:
    return tuple(100 * sum(row[measure] for row in rows) / len(rows) for measure in MEASURES)


def show(rows: dict[str, dict[str, Rows]]) -> bool:
    """Prints the tables; whether every target is reached."""
    print(f"\n{'any / all evidence, percent':42}{'@1,000 tokens':>16}{'@2,000 tokens':>16}")
    for name, by_conversation in rows.items():
        print(_line(name, means([row for some in by_conversation.values() for row in some])))
    for name in TARGETS:
        for category, told in CATEGORIES.items():
            some = [row for each in rows[name].values() for row in each if row["category"] == category]
            kind = {OURS: "hybrid", OURS_BY_WORDS: "by words"}.get(name, "recall")
            print(_line(f"  {told}, {kind} ({len(some)})", means(some)))
    missed = [*_below_targets(rows), *_below_baseline(rows)]
    print("\n".join(missed) or "every target is reached, and no conversation is below the BM25 baseline")
    return not missed


def _line(name: str, found: tuple[float, ...]) -> str:
    return f"{name:42}{found[0]:8.1f} /{found[1]:5.1f} {found[2]:8.1f} /{found[3]:5.1f}"


def _below_targets(rows: dict[str, dict[str, Rows]]) -> Iterable[str]:
    for name, wanted in TARGETS.items():
        found = means([row for some in rows[name].values() for row in some])
        for measure, value, target in zip(MEASURES, found, wanted, strict=True):
            if value < target:
                yield f"missed: {name}: {measure} {value:.1f} < {target}"


def _below_baseline(rows: dict[str, dict[str, Rows]]) -> Iterable[str]:
    for conversation, baseline in rows[BM25].items():
        for name in TARGETS:
            pairs = zip(MEASURES, means(rows[name][conversation]), means(baseline), strict=True)
            for measure, value, other in pairs:
                if value < other:
                    yield f"missed: {name}, conversation {conversation}: {measure} {value:.1f} < {other:.1f} of BM25"


def load(script: Path) -> ModuleType:
    """A script without an ending, as a module."""
    loader = importlib.machinery.SourceFileLoader("eval_score", str(script))
    spec = importlib.util.spec_from_loader("eval_score", loader)
    if spec is None:
        raise SystemExit(f"{script} cannot be read")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="without the baselines that need vectors")
    options: Any = parser.parse_args()
    folder = os.environ.get("EVAL_DATA", "")
    if not folder:
        print("skipped: set EVAL_DATA to the folder with make-locomo and score (see docs/memory-quality.md)")
        return
    sys.dont_write_bytecode = True  # the data is another's
    with tempfile.TemporaryDirectory(prefix="pal-eval-") as out:
        subprocess.run([sys.executable, str(Path(folder) / "make-locomo"), out], check=True, stdout=sys.stderr)
        rows = asyncio.run(measure(Path(out), load(Path(folder) / "score"), quick=options.quick))
    sys.exit(0 if show(rows) else 1)


if __name__ == "__main__":
    main()
