"""The memories of the agents, each made when it is first asked for and made anew when its config has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.memory.settings import MemorySettings
from palinurus.sessions.store import SessionStore

if TYPE_CHECKING:
    from palinurus.memory.embedder import Embedder
    from palinurus.memory.memory import Memory


class AgentMemories(Struct, frozen=True):
    """What decides about an agent's memory."""

    workspace: Path
    settings: MemorySettings


class Memories:
    def __init__(
        self,
        folder: Path,
        current: Callable[[str], AgentMemories],
        sessions: SessionStore,
        clock: Clock,
        *,
        readonly: bool = False,
    ) -> None:
        self._folder = folder
        self._current = current
        self._sessions = sessions
        self._clock = clock
        self._readonly = readonly
        self._made: dict[str, tuple[AgentMemories, Memory]] = {}
        self._keeping_up = False
        self._retiring: set[asyncio.Task[None]] = set()

    def of(self, agent_id: str) -> Memory:
        wanted = self._current(agent_id)
        known, memory = self._made.get(agent_id, (None, None))
        if memory is None or known != wanted:
            retired = None if memory is None else self._retire(memory)
            memory = self._make(agent_id, wanted, retired)
            self._made[agent_id] = (wanted, memory)
            if self._keeping_up:
                memory.start()
        return memory

    def keep_up(self, agents: Iterable[str]) -> None:
        """From now on memories are indexed in the background: for processes that stay."""
        self._keeping_up = True
        for agent_id in agents:
            self.of(agent_id).start()

    async def close(self) -> None:
        await asyncio.gather(*(memory.close() for _, memory in self._made.values()), *self._retiring)
        if "_embedder" in vars(self):
            await self._embedder.close()

    def _make(self, agent_id: str, wanted: AgentMemories, after: asyncio.Future[None] | None) -> Memory:
        """`after`: its forerunner has gone. What that one writes last would be unknown to this one."""
        from palinurus.memory.conversations import StoredDocuments
        from palinurus.memory.document import SESSIONS
        from palinurus.memory.index import MemoryIndex
        from palinurus.memory.memory import Memory, Watcher
        from palinurus.memory.scan import Scanner
        from palinurus.memory.store import MemoryStore

        settings = wanted.settings
        path = self._folder / f"{agent_id}.sqlite"
        store = MemoryStore(path, readonly=self._readonly, after=after)
        scanner = Scanner(wanted.workspace, settings.collections, sources=settings.sources)
        stored = StoredDocuments(
            self._sessions, agent_id, self._clock, settings.sync, conversations=SESSIONS in settings.sources
        )
        index = MemoryIndex(store, scanner, self._clock, settings, conversations=stored, agent=agent_id)
        watcher = Watcher(scanner, settings.sync) if settings.sync.watch else None
        embedder = self._embedder if settings.embedder != "none" else None
        return Memory(settings, store, index, embedder, self._clock, watcher)

    @cached_property
    def _embedder(self) -> Embedder:
        from palinurus.memory.embedders.embedded import EmbeddedModel

        return EmbeddedModel()

    def _retire(self, memory: Memory) -> asyncio.Future[None]:
        """Whoever still asks it is answered; then it goes."""
        task = asyncio.ensure_future(memory.close())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
        return task
