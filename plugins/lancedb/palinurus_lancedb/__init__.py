"""The memory slot: the index of notes and sessions in LanceDB. What is searched, and how it is scored, stays the same."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from palinurus.plugin import PalinurusError, PluginApp

if TYPE_CHECKING:
    from palinurus.memory.backend import BackendPlace, MemoryBackend
    from palinurus.memory.store import MemoryStore


def open_memory(place: BackendPlace) -> MemoryBackend:
    from palinurus.memory.embedders.embedded import EmbeddedModel
    from palinurus.memory.index import MemoryIndex
    from palinurus.memory.memory import Watcher

    from .store import LanceMemory, LanceStore

    if find_spec("lancedb") is None or place.readonly:
        why = "the home is read only" if place.readonly else "the package lancedb is not installed"
        raise PalinurusError(f"memory in LanceDB cannot be used: {why}", hint="the builtin engine is used meanwhile")
    settings = place.settings
    store = cast("MemoryStore", LanceStore(place.folder))  # it has the methods that are called
    index = MemoryIndex(
        store, place.files, place.clock, settings, conversations=place.conversations, agent=place.agent
    )
    embedder = EmbeddedModel() if settings.embedder != "none" else None
    watcher = Watcher(place.files, settings.sync) if settings.sync.watch else None
    memory = LanceMemory(settings, store, index, embedder, place.clock, watcher)
    memory.listen(place.on_sync)
    return memory


def register(app: PluginApp) -> None:
    app.memory_backend(open_memory)
