"""Lines without end, collections that are no longer the agent's, and the last result of a budget."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from palinurus.memory import rank
from palinurus.memory import search as searching
from palinurus.memory.index import MemoryIndex
from palinurus.memory.question import Question
from palinurus.memory.scan import Scanner
from palinurus.memory.search import LONG, MemorySearch, window
from palinurus.memory.settings import Collection, MemorySettings, SearchLimits
from palinurus.memory.store import MemoryStore
from palinurus.testing.fakes import FakeClock


def search_over(root: Path, store: MemoryStore, *collections: Collection) -> MemorySearch:
    settings = MemorySettings(embedder="none", collections=collections)
    scanner = Scanner(root, collections, sources=settings.sources)
    index = MemoryIndex(store, scanner, FakeClock(), settings)
    return MemorySearch(index, store, None, settings, FakeClock())


async def test_lines_without_end_are_judged_beside_the_event_loop_and_by_their_telling_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory").mkdir()
    filler = "words that say nothing " * 5_000
    (tmp_path / "memory" / "a.md").write_text(f"{filler}the boat is in Oslo {filler}\n" * 3 + "the boat is in Bergen\n")
    threads, longest, really = [], [], rank.rank

    def ranked(query, looked, *arguments, **more):  # type: ignore[no-untyped-def]
        threads.append(threading.current_thread())
        longest.append(max(len(each.text) for each in looked.candidates))
        return really(query, looked, *arguments, **more)

    monkeypatch.setattr(searching, "rank", ranked)
    answer = await search_over(tmp_path, MemoryStore(None)).ask(Question("where is the boat?"))
    assert threads
    assert threading.main_thread() not in threads
    assert max(longest) <= LONG
    assert {"boat is in Oslo" in each.snippet or "Bergen" in each.snippet for each in answer.results} == {True}
    assert len(answer.results) == 4


def test_the_window_of_a_megabyte_is_found_at_once() -> None:
    text = "oar sail mast keel rope " * 50_000 + "boat anchor harbour"
    words = ("oar", "sail", "mast", "keel", "rope", "boat", "anchor", "harbour") * 8

    async def timed() -> str:
        async with asyncio.timeout(60):
            return await asyncio.to_thread(window, text, 700, words)

    assert len(asyncio.run(timed())) <= 700


async def test_a_collection_that_was_taken_away_gives_nothing_even_when_there_is_no_time_to_compare(
    tmp_path: Path,
) -> None:
    (tmp_path / "col").mkdir()
    (tmp_path / "ws").mkdir()
    (tmp_path / "col" / "a.md").write_text("the boat is in Oslo\n")
    store = MemoryStore(None)
    answer = await search_over(tmp_path / "ws", store, Collection("col", tmp_path / "col")).ask(Question("boat"))
    assert [each.path for each in answer.results] == ["col/a.md"]
    answer = await search_over(tmp_path / "ws", store).ask(Question("boat", SearchLimits(seconds=0.0)))
    assert (answer.freshness.state, answer.results) == ("unswept", ())


async def test_what_a_snippet_stands_under_is_within_the_budget_too(tmp_path: Path) -> None:
    heading = "# " + "a long heading of the harbour " * 4
    (tmp_path / "MEMORY.md").write_text(
        "\n\n".join(f"{heading}{n}\n\nthe boat number {n} is in Oslo " + "x" * n for n in range(40))
    )
    for characters in range(300, 1_500, 37):
        answer = await search_over(tmp_path, MemoryStore(None)).ask(Question("boat", SearchLimits(characters)))
        assert answer.results
        assert sum(len(each.snippet) + len(each.under) for each in answer.results) <= characters
