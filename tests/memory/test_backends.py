"""The memory backends that are part of the package, each held to the contract."""

from __future__ import annotations

from palinurus.memory.backend import BackendPlace, MemoryBackend
from palinurus.memory.index import MemoryIndex
from palinurus.memory.memory import Memory
from palinurus.memory.store import MemoryStore
from support.backend_contract import BackendContract


class TestBuiltin(BackendContract):
    def open(self, place: BackendPlace) -> MemoryBackend:
        store = MemoryStore(place.folder / "main.sqlite")
        index = MemoryIndex(
            store, place.files, place.clock, place.settings, conversations=place.conversations, agent=place.agent
        )
        memory = Memory(place.settings, store, index, None, place.clock)
        memory.listen(place.on_sync)
        return memory
