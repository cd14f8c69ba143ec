"""Our memory in one warm process, with the parts that the house is made of: words alone, and words with vectors.

Its home is the working folder, with `questions.json` in it: the workspace, rare words and natural questions. The index
is made here. Embedding a hundred thousand lines would take most of an hour, and how long a search takes does not depend
on what the vectors say: so the index is filled with random ones of the embedded model's size, with as many codes of
words as English of that length has, while questions go through the model itself.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import struct
import time
from collections.abc import Iterator
from operator import mul
from pathlib import Path

from benchmarks import warm
from palinurus.domain.clock import SystemClock
from palinurus.memory.embedder import Space
from palinurus.memory.embedders.embedded import EmbeddedModel
from palinurus.memory.index import MemoryIndex
from palinurus.memory.late import CODE_BYTES
from palinurus.memory.question import Question
from palinurus.memory.scan import Scanner
from palinurus.memory.search import MemorySearch
from palinurus.memory.settings import MemorySettings
from palinurus.memory.store import MemoryStore

STEP = 4_000  # vectors that are put away at once
ROW = 500_000  # random numbers
CHARACTERS = 8  # for each word that has a code, measured on conversations
DICE = random.Random(7)


class AgentMemories:
    def __init__(self, index_path: Path, workspace: Path) -> None:
        settings, clock = MemorySettings(), SystemClock()
        self._store = MemoryStore(index_path)
        self._model = EmbeddedModel(idle_seconds=3600)
        self.index = MemoryIndex(self._store, Scanner(workspace, sources=settings.sources), clock, settings)
        self._search = MemorySearch(self.index, self._store, self._model, settings, clock)

    async def fill(self) -> None:
        """A vector for every piece."""
        space = self._model.space
        await self._store.use_space(space)
        vectors = unit_vectors(space)
        while missing := await self._store.unembedded(space, STEP):
            pairs = [(each.digest, next(vectors) + DICE.randbytes(_codes(each.meaning))) for each in missing]
            await self._store.put_vectors(space, pairs)

    async def load_model(self) -> None:
        """A question does not wait for a model that is being loaded; a measurement does."""
        await self._model.embed_query("Are you there?")

    async def timed(self, query: str, *, by_words: bool) -> tuple[float, float]:
        """Milliseconds on the wall and of this process's processor time. The model's own are not in the second."""
        cpu, began = time.process_time_ns(), time.perf_counter_ns()
        answer = await self._search.ask(Question(query, keyword_only=by_words))
        wall, spent = time.perf_counter_ns() - began, time.process_time_ns() - cpu
        if not answer.results or answer.mode != ("keyword" if by_words else "hybrid"):
            raise SystemExit(f"no {'keyword' if by_words else 'hybrid'} answer to {query!r}: {answer.freshness}")
        return wall / 1e6, spent / 1e6

    async def close(self) -> None:
        await self.index.close()
        await self._model.close()
        await self._store.close()


def _codes(text: str) -> int:
    return CODE_BYTES * (1 + len(text) // CHARACTERS)


def unit_vectors(space: Space) -> Iterator[bytes]:
    """Random, the same each time, of length one: each is a stretch of one long row of numbers."""
    dice, size = random.Random(6), space.dimensions
    row = [dice.gauss(0, 1) for _ in range(ROW)]
    while True:
        at = dice.randrange(ROW - size)
        numbers = row[at : at + size]
        length = math.sqrt(sum(map(mul, numbers, numbers)))
        yield struct.pack(f"<{size}f", *[number / length for number in numbers])


async def started(home: Path, workspace: Path) -> tuple[AgentMemories, int]:
    """A memory that is complete and closed down to its file once, and the size of that file."""
    memory = AgentMemories(home / "index.sqlite", workspace)
    await memory.index.sync()
    await memory.fill()
    await memory.close()
    size = (home / "index.sqlite").stat().st_size
    memory = AgentMemories(home / "index.sqlite", workspace)
    await memory.load_model()
    return memory, size


def main() -> None:
    home = Path.home()
    asked = json.loads((home / "questions.json").read_text(encoding="utf-8"))
    loop = asyncio.new_event_loop()
    memory, size = loop.run_until_complete(started(home, Path(asked["workspace"])))
    kinds = {"rare": (asked["rare"], True), "natural": (asked["natural"], True), "hybrid": (asked["natural"], False)}

    async def batch(rounds: int) -> list[dict[str, float]]:
        return [await measured() for _ in range(rounds)]

    async def measured() -> dict[str, float]:
        taken = {"index bytes": float(size)}
        for kind, (queries, by_words) in kinds.items():
            for at, query in enumerate(queries):
                wall, cpu = await memory.timed(query, by_words=by_words)
                taken |= {f"{kind} wall {at}": wall, f"{kind} cpu {at}": cpu}
        return taken

    warm.answer(warm.run_in(loop, batch))
    loop.run_until_complete(memory.close())
    loop.close()


if __name__ == "__main__":
    main()
