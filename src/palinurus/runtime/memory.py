"""The memories of the agents, each made when it is first asked for and made anew when its config has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.memory.settings import BUILTIN, MemorySettings
from palinurus.sessions.store import SessionStore

if TYPE_CHECKING:
    from palinurus.config.load import Config
    from palinurus.memory.backend import AgentMemory, OpenBackend
    from palinurus.memory.embedder import Embedder


class AgentMemories(Struct, frozen=True):
    """What decides about an agent's memory."""

    workspace: Path
    settings: MemorySettings
    config: Config | None = None  # whose backend is not the builtin one: it has options of its own


class BackendSource(Struct, frozen=True):
    """What other backends than the builtin one are found and opened with."""

    find: Callable[[str], OpenBackend]  # raises NotFound
    env: Mapping[str, str]
    redact: Callable[[str], str]


class Memories:
    def __init__(
        self,
        folder: Path,
        current: Callable[[str], AgentMemories],
        sessions: SessionStore,
        clock: Clock,
        *,
        readonly: bool = False,
        backends: BackendSource | None = None,
    ) -> None:
        self._folder = folder
        self._current = current
        self._sessions = sessions
        self._clock = clock
        self._readonly = readonly
        self._backends = backends
        self._made: dict[str, tuple[AgentMemories, AgentMemory]] = {}
        self._keeping_up = False
        self._retiring: set[asyncio.Task[None]] = set()

    def of(self, agent_id: str) -> AgentMemory:
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

    def _make(self, agent_id: str, wanted: AgentMemories, after: asyncio.Future[None] | None) -> AgentMemory:
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
        builtin = Memory(settings, store, index, embedder, self._clock, watcher)
        if settings.backend == BUILTIN or self._backends is None or wanted.config is None:
            return builtin
        from palinurus.memory.backend import BackendPlace, FallbackMemory

        name, source = settings.backend, self._backends
        # Of its own: what one of the two has seen is not known to the other.
        scanner = Scanner(wanted.workspace, settings.collections, sources=settings.sources)
        stored = StoredDocuments(
            self._sessions, agent_id, self._clock, settings.sync, conversations=SESSIONS in settings.sources
        )
        made = partial(
            BackendPlace,
            agent_id,
            self._folder.parent / name / agent_id,
            wanted.workspace,
            settings,
            wanted.config,
            source.env,
            self._clock,
            scanner,
            stored,
            source.redact,
            readonly=self._readonly,
        )
        return FallbackMemory(name, builtin, lambda tell: source.find(name)(made(tell)), self._clock)

    @cached_property
    def _embedder(self) -> Embedder:
        from palinurus.memory.embedders.embedded import EmbeddedModel

        return EmbeddedModel()

    def _retire(self, memory: AgentMemory) -> asyncio.Future[None]:
        """Whoever still asks it is answered; then it goes."""
        task = asyncio.ensure_future(memory.close())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
        return task
