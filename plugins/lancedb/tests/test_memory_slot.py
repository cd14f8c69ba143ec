"""LanceDB as the memory of a home: what every backend is held to, and the slot."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace
from plugged import fresh_modules, use_plugins

from palinurus.config.home import Home
from palinurus.memory.backend import BackendPlace, MemoryBackend
from palinurus.memory.question import SearchMemory
from palinurus.memory.scan import Scanner
from palinurus.operations.memory import search_memory, show_memory_status
from palinurus.runtime.runtime import Runtime
from palinurus.testing.loop_time import excuse
from support.backend_contract import BackendContract, Kept

pytest.importorskip("lancedb")
pytestmark = pytest.mark.real
with excuse("first imports"):
    import lancedb.index  # noqa: F401
    from palinurus_lancedb import open_memory


class TestLanceMemory(BackendContract):
    def open(self, place: BackendPlace) -> MemoryBackend:
        return open_memory(place)

    @pytest.mark.parametrize("kind", ["cut", "gone"])
    async def test_a_damaged_index_costs_an_answer_and_is_made_anew(
        self, kept: Kept, backend: MemoryBackend, kind: str
    ) -> None:
        await backend.sync()
        await backend.close()
        for file in [each for each in kept.place.folder.rglob("*") if each.is_file()]:
            file.write_bytes(b"") if kind == "cut" else file.unlink()
        files = Scanner(kept.root, kept.place.settings.collections, sources=kept.place.settings.sources)
        again = open_memory(replace(kept.place, files=files))
        try:
            async with asyncio.timeout(60):
                while not await self.find(again, "rudder"):
                    await again.sync()
        finally:
            await again.close()


def configure(home: Home, tmp_path: Path, **slots: str) -> None:
    config = json.loads(home.config_path.read_text())
    home.config_path.write_text(json.dumps({**config, "memory": {"search": {"provider": "none"}}}))
    use_plugins(home, Path(__file__).parents[1], slots=slots)


@pytest.mark.parametrize("slots", [{}, {"memory": "lancedb"}], ids=["claimed", "named"])
async def test_the_plugin_has_the_slot_and_answers(home: Home, tmp_path: Path, slots: dict[str, str]) -> None:
    configure(home, tmp_path, **slots)
    with fresh_modules():
        runtime = Runtime(home, {"PATH": "/usr/bin"})
        notes = runtime.services.workspace("main") / "memory"
        notes.mkdir(parents=True, exist_ok=True)
        (notes / "2026-11-15.md").write_text("- the bicycle is green\n")
        answer = await search_memory.function(runtime.services, SearchMemory("which colour has the bicycle?"))
        status = await show_memory_status.function(runtime.services)
        await runtime.close()
    assert (answer.backend, answer.results[0].path) == ("lancedb", "memory/2026-11-15.md")
    assert (status.backend, status.backend_reason) == ("lancedb", "")
    assert list((home.root / "derived" / "lancedb" / "main").glob("*.lance"))
    shutil.rmtree(home.root / "derived")  # nothing is lost with it


async def test_the_builtin_engine_can_be_chosen(home: Home, tmp_path: Path) -> None:
    configure(home, tmp_path, memory="builtin")
    with fresh_modules():
        runtime = Runtime(home, {"PATH": "/usr/bin"})
        status = await show_memory_status.function(runtime.services)
        await runtime.close()
    assert status.backend in ("", "builtin")
