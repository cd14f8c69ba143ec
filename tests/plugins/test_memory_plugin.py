"""A plugin has the memory slot: it is asked, and the built-in engine answers where it fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from plugged import use_plugins, write_plugin

from palinurus.config.home import Home
from palinurus.memory.question import SearchMemory
from palinurus.operations.memory import search_memory, show_memory_status
from support.open_home import opened

CODE = """
from palinurus.memory.answer import IndexFreshness, MemoryStatus, SearchAnswer, SearchResult, SyncReport

class Shoebox:
    least_seconds = 0.0
    def __init__(self, place):
        self.place = place
    async def search(self, question):
        {work}
        return SearchAnswer((SearchResult("memory/card.md", 1, 1, 1.0, "a card"),), IndexFreshness("fresh", 1))
    async def sync(self, *, force=False, progress=None):
        return SyncReport(0)
    async def forget(self):
        return SyncReport(0)
    async def status(self, *, deep=False):
        return MemoryStatus(self.place.agent, True, 7, 7, 7, 7, 7, {{}}, "")
    def own_path(self, path):
        return path
    def start(self): ...
    async def close(self): ...

def register(app):
    app.memory_backend(Shoebox)
"""


def plug(home: Home, root: Path, work: str = "pass", **slots: str) -> None:
    folder = write_plugin(root, "shoebox", CODE.format(work=work), slots=["memory"])
    use_plugins(home, folder, slots=slots)


@pytest.mark.parametrize("slots", [{}, {"memory": "shoebox"}], ids=["claimed", "named"])
async def test_the_plugin_that_has_the_slot_answers(home: Home, tmp_path: Path, slots: dict[str, str]) -> None:
    plug(home, tmp_path, **slots)
    async with opened(home, memory={"search": {"provider": "none"}}) as pal:
        answer = await search_memory.function(pal.services, SearchMemory("where is it?"))
        status = await show_memory_status.function(pal.services)
    assert (answer.backend, answer.results[0].snippet) == ("shoebox", "a card")
    assert (status.backend, status.files) == ("shoebox", 7)


async def test_the_builtin_engine_answers_where_the_plugin_fails(home: Home, tmp_path: Path) -> None:
    plug(home, tmp_path, "raise RuntimeError('the lid is stuck')")
    async with opened(home, memory={"search": {"provider": "none"}}) as pal:
        answer = await search_memory.function(pal.services, SearchMemory("boat"))
        status = await show_memory_status.function(pal.services)
    assert "Aster" in answer.results[0].snippet
    assert (answer.backend, status.backend_wanted) == ("builtin", "shoebox")
    assert "the lid is stuck" in status.backend_reason


async def test_the_config_can_leave_the_slot_to_the_builtin_engine(home: Home, tmp_path: Path) -> None:
    plug(home, tmp_path, memory="builtin")
    async with opened(home, memory={"search": {"provider": "none"}}) as pal:
        answer = await search_memory.function(pal.services, SearchMemory("boat"))
    assert "Aster" in answer.results[0].snippet
