"""Indexes a workspace and makes vectors, over and over, until it is killed. Run by memory_killing.py.

python memory_indexer.py WORKSPACE INDEX
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from palinurus.domain.clock import SystemClock
from palinurus.memory import index as indexing
from palinurus.memory.index import MemoryIndex
from palinurus.memory.scan import Scanner
from palinurus.memory.settings import MemorySettings
from palinurus.memory.store import MemoryStore
from palinurus.testing.fakes import HashingEmbedder

indexing.BATCH_FILES = 3  # many small transactions: many moments to be killed at


async def main(workspace: Path, path: Path) -> None:
    store, embedder = MemoryStore(path), HashingEmbedder()
    index = MemoryIndex(store, Scanner(workspace, sources=("memory",)), SystemClock(), MemorySettings())
    turn = 0
    while True:
        sys.stdout.write("sweeps\n")
        sys.stdout.flush()
        await index.sync(force=turn % 4 == 3)
        await store.use_space(embedder.space)
        while missing := await store.unembedded(embedder.space, 20):
            vectors = await embedder.embed([each.meaning for each in missing])
            await store.put_vectors(embedder.space, [(e.digest, v) for e, v in zip(missing, vectors, strict=True)])
        turn += 1


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
