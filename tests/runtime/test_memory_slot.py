"""Which memory backend a home has: named by the config, declared by an extension, opened when memory is used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from palinurus.config.home import Home
from palinurus.memory.answer import IndexFreshness, MemoryStatus, OnProgress, SearchAnswer, SearchResult, SyncReport
from palinurus.memory.backend import BUILTIN, BackendPlace, MemoryBackend
from palinurus.memory.question import Question, SearchMemory
from palinurus.operations.memory import search_memory, show_memory_status
from palinurus.runtime.extensions import LOADED, Extension
from palinurus.runtime.runtime import Runtime

SHOEBOX = Extension("shoebox", __name__, memory_backends={"cards": f"{__name__}:open_box"})
opened: list[BackendPlace] = []
closed: list[str] = []


class Shoebox:
    least_seconds = 0.0

    def __init__(self, place: BackendPlace) -> None:
        self.place = place

    async def search(self, question: Question) -> SearchAnswer:
        found = SearchResult("memory/card.md", 1, 1, 1.0, question.query)
        return SearchAnswer((found,), IndexFreshness("fresh", 1))

    async def sync(self, *, force: bool = False, progress: OnProgress | None = None) -> SyncReport:
        return SyncReport(0)

    async def forget(self) -> SyncReport:
        return SyncReport(0)

    async def status(self, *, deep: bool = False) -> MemoryStatus:
        return MemoryStatus(self.place.agent, True, 7, 7, 7, 7, 7, {}, "")

    def own_path(self, path: str) -> str:
        return path

    def start(self) -> None: ...

    async def close(self) -> None:
        closed.append(self.place.agent)


def open_box(place: BackendPlace) -> MemoryBackend:
    opened.append(place)
    return Shoebox(place)


@pytest.fixture(autouse=True)
def shoebox() -> Iterator[None]:
    opened.clear()
    closed.clear()
    with LOADED.added(SHOEBOX):
        yield


def configure(home: Home, **config: Any) -> Home:
    home.config_path.write_text(json.dumps({"memory": {"search": {"provider": "none"}}, **config}))
    return home


@pytest.mark.parametrize("name", ["cards", "shoebox"])
async def test_the_plugin_that_the_slot_names_answers_and_is_opened_with_what_it_needs(home: Home, name: str) -> None:
    runtime = Runtime(configure(home, plugins={"slots": {"memory": name}}), {"A": "b"})
    asked = SearchMemory("where is the boat?")
    answer = await search_memory.function(runtime.services, asked)
    status = await show_memory_status.function(runtime.services)
    assert (answer.results[0].snippet, answer.backend) == (asked.query, name)
    assert (status.backend, status.files) == (name, 7)
    [place] = opened
    assert (place.agent, place.folder, place.env["A"]) == ("main", home.root / "derived" / name / "main", "b")
    await runtime.close()
    assert closed == ["main"]


@pytest.mark.parametrize(("config", "served"), [({}, "first"), ({"memory": {"backend": BUILTIN}}, BUILTIN)])
async def test_a_plugin_that_has_the_slot_unasked_answers_unless_the_config_names_another(
    home: Home, config: Any, served: str
) -> None:
    first = Extension("first", __name__, memory_backends={"first": f"{__name__}:open_box"}, slots=("memory",))
    with LOADED.added(first):
        runtime = Runtime(configure(home, **config), {})
        assert (await show_memory_status.function(runtime.services)).backend == served
        await runtime.close()


@pytest.mark.parametrize("slot", ["", "memory-core", BUILTIN])
async def test_the_builtin_engine_has_the_slot_otherwise_and_nothing_else_is_opened(home: Home, slot: str) -> None:
    runtime = Runtime(configure(home, plugins={"slots": {"memory": slot}}), {})
    status = await show_memory_status.function(runtime.services)
    assert (status.backend, status.backend_wanted) == (BUILTIN, "")
    assert opened == []
    await runtime.close()


async def test_none_switches_memory_off(home: Home) -> None:
    runtime = Runtime(configure(home, plugins={"slots": {"memory": "none"}}), {})
    assert not (await show_memory_status.function(runtime.services)).enabled
    await runtime.close()


async def test_a_name_that_nobody_declares_leaves_the_builtin_engine_and_is_said(home: Home) -> None:
    runtime = Runtime(configure(home, plugins={"slots": {"memory": "carda"}}), {})
    answer = await search_memory.function(runtime.services, SearchMemory("boat"))
    status = await show_memory_status.function(runtime.services)
    assert answer.backend == status.backend == BUILTIN
    assert status.backend_wanted == "carda"
    assert "there is no memory backend 'carda'" in status.backend_reason
    await runtime.close()


async def test_changed_options_open_it_anew(home: Home) -> None:
    runtime = Runtime(configure(home, plugins={"slots": {"memory": "cards"}}), {})
    asked = SearchMemory("boat")
    await search_memory.function(runtime.services, asked)
    await search_memory.function(runtime.services, replace(asked, query="ship"))
    assert len(opened) == 1
    configure(home, plugins={"slots": {"memory": "cards"}, "entries": {"shoebox": {"config": {"size": 12}}}})
    await search_memory.function(runtime.services, asked)
    await runtime.close()
    assert (len(opened), closed) == (2, ["main", "main"])
