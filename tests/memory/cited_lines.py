"""Lines of memory, read as the tool reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from palinurus.memory.get import LineRange, MemoryText, get_lines
from palinurus.memory.settings import Collection, MemorySettings
from palinurus.workspace.boundary import Boundary


class Talks:
    """Implements Remembered with conversations that are given."""

    def __init__(self, collections: tuple[Collection, ...] = (), said: Mapping[str, str] | None = None) -> None:
        self.settings = MemorySettings(collections=collections)
        self._said = said or {}

    def own_path(self, path: str) -> str:
        return path

    async def read_conversation(self, path: str) -> str | None:
        return self._said.get(path)


def lines_of(root: Path, asked: LineRange, memory: Talks | None = None) -> MemoryText:
    return asyncio.run(get_lines(memory or Talks(), Boundary(root), asked))
