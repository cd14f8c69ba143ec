"""The memory backends that are part of the package, each held to the contract."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

from palinurus.extensions.qmd.backend import open_qmd
from palinurus.memory.backend import BackendPlace, MemoryBackend
from palinurus.memory.index import MemoryIndex
from palinurus.memory.memory import Memory
from palinurus.memory.store import MemoryStore
from support.backend_contract import BackendContract

STAND_IN = Path(__file__).parents[1] / "support" / "qmd_stand_in.py"


def program(mood: str = "") -> str:
    """The stand-in as `memory.qmd.command`."""
    return f"{sys.executable} -S -E {STAND_IN}" + (f" +{mood}" if mood else "")


class TestBuiltin(BackendContract):
    def open(self, place: BackendPlace) -> MemoryBackend:
        store = MemoryStore(place.folder / "main.sqlite")
        index = MemoryIndex(
            store, place.files, place.clock, place.settings, conversations=place.conversations, agent=place.agent
        )
        memory = Memory(place.settings, store, index, None, place.clock)
        memory.listen(place.on_sync)
        return memory


class TestQmdStandIn(BackendContract):
    """A stand-in with qmd's commands and output; tests/real/test_real_qmd.py has the real one."""

    config: ClassVar = {"memory": {"qmd": {"command": program()}}}

    def open(self, place: BackendPlace) -> MemoryBackend:
        return open_qmd(place)
