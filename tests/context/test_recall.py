"""Snippets that ride unasked: only what fits, only where it may, once, and never as something that was said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from palinurus.context.recall import KIND, NAME, Recall, news_of, recalled
from palinurus.context.view import Line, View
from palinurus.domain.errors import StorageError
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import ContextNote, Origin, UserMessage
from palinurus.domain.tool import ToolOutput, ToolRun, tool
from palinurus.memory.answer import IndexFreshness, SearchAnswer, SearchResult
from palinurus.memory.question import Question
from palinurus.memory.settings import Collection, MemorySettings, ScopeRule
from palinurus.providers.provider import ModelRequest
from palinurus.providers.wires.rendering import render_note
from palinurus.testing.fakes import FakeClock, call, calls
from palinurus.testing.harness import Harness
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.file_origins import FileOrigin
from palinurus.workspace.files import WorkspaceFiles

MAIN, GROUP = SessionKey.main(), SessionKey.parse("agent:main:telegram:group:-1")
ON = MemorySettings(recall="on")
OUTSIDE = "(noted in a turn that had read text from outside)"


def result(path: str, line: int, snippet: str, score: float = 1.0) -> SearchResult:
    return SearchResult(path, line, line, score, snippet)


ANNA = result("memory/2026-11-14.md", 3, "- Anna lives in Oslo")
BOB = result("memory/2026-11-13.md", 5, "- Bob has a boat")


class Memory:
    """Answers every question with the same results, and knows what it was asked."""

    def __init__(self, *results: SearchResult) -> None:
        self.results = results
        self.questions: list[Question] = []
        self.failure: Exception | None = None
        self.hangs = False

    async def search(self, question: Question) -> SearchAnswer:
        self.questions.append(question)
        if self.hangs:
            await asyncio.Event().wait()
        if self.failure:
            raise self.failure
        return SearchAnswer(self.results, IndexFreshness("fresh", 2))


def recall(memory: Memory, settings: MemorySettings = ON) -> Recall:
    return Recall(memory.search, settings, FakeClock())


async def test_what_fits_the_message_is_offered_with_its_place() -> None:
    [note] = await recall(Memory(ANNA, BOB))(MAIN, "I will visit Anna")
    assert (note.kind, note.name, note.origin) == (KIND, NAME, Origin.OWNER)
    assert note.text == "memory/2026-11-14.md#L3: - Anna lives in Oslo"
    assert render_note(note).startswith('<context kind="recall" name="Memory search results">\n')


async def test_what_lies_in_a_file_from_outside_is_offered_as_that(tmp_path: Path) -> None:
    files = WorkspaceFiles(Boundary(tmp_path))
    await files.origins.enter([FileOrigin(str(tmp_path / "memory" / "2026-11-14.md"))])
    [note] = await Recall(Memory(ANNA, BOB).search, ON, FakeClock(), files)(MAIN, "I will visit Anna")
    assert note.text == "memory/2026-11-14.md#L3: - Anna lives in Oslo (from outside)"
    assert (note.origin, note.sources) == (Origin.OUTSIDE, ("written:memory/2026-11-14.md",))


@pytest.mark.parametrize("text", ["thanks!", "what is it?", "ok", "", "Zebulon is late"])
async def test_nothing_is_offered_that_speaks_of_something_else(text: str) -> None:
    assert await recall(Memory(ANNA, BOB))(MAIN, text) == ()


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (MemorySettings(), MAIN),
        (MemorySettings(recall="on", enabled=False), MAIN),
        (MemorySettings(recall="on", scope=(ScopeRule("deny"),)), MAIN),
        (ON, GROUP),
        (MemorySettings(recall="on", scope=(ScopeRule("allow"),)), GROUP),
    ],
)
async def test_who_may_not_search_is_offered_nothing_and_nothing_is_searched(
    settings: MemorySettings, key: SessionKey
) -> None:
    memory = Memory(ANNA)
    assert await recall(memory, settings)(key, "where is Anna?") == ()
    assert memory.questions == []


async def test_a_search_that_hangs_or_fails_gives_nothing() -> None:
    memory = Memory(ANNA)
    memory.hangs = True
    async with asyncio.timeout(60):
        assert await recall(memory)(MAIN, "where is Anna?") == ()
    memory.hangs, memory.failure = False, StorageError("the index cannot be read")
    assert await recall(memory)(MAIN, "where is Anna?") == ()


async def test_what_was_said_in_conversations_is_not_offered() -> None:
    memory = Memory(ANNA)
    settings = MemorySettings(
        recall="on", sources=("memory", "sessions"), collections=(Collection("recipes", Path("/r")),)
    )
    await recall(memory, settings)(MAIN, "where is Anna?")
    assert memory.questions[0].sources == ("memory", "recipes")


async def test_a_line_from_outside_makes_the_note_one_from_outside() -> None:
    [note] = await recall(Memory(ANNA, result("memory/a.md", 1, f"- Anna wants money {OUTSIDE}")))(MAIN, "and Anna?")
    assert note.origin == Origin.OUTSIDE


@pytest.mark.parametrize("limit", [0, 30, 60, 100, 1_000])
def test_the_note_stays_within_its_budget(limit: int) -> None:
    notes = recalled([result("memory/a.md", line, "x" * 40) for line in range(1, 9)], limit)
    assert sum(len(note.text) for note in notes) <= limit
    assert len(notes) == (limit >= 56)


def test_what_the_model_has_read_already_is_left_out() -> None:
    [note] = recalled([ANNA, BOB, result("USER.md", 2, "likes tea")], 1_000)
    earlier = UserMessage("hi", context=(ContextNote(KIND, "memory/2026-11-14.md#L3: - Anna lives in Oslo", NAME),))
    [left] = news_of([note], View(lines=(Line("a", earlier),)), ["USER.md"])
    assert left.text == "memory/2026-11-13.md#L5: - Bob has a boat"
    assert news_of([left], View(lines=(Line("a", UserMessage("hi", context=(left,))),)), []) == ()


@pytest.fixture
async def remembering(workspace: Path) -> AsyncIterator[tuple[Harness, Memory]]:
    memory = Memory(ANNA, result("MEMORY.md", 2, "Anna built the boat called Aster."))
    async with Harness(workspace, tools=[tainting, stalling]) as pal:
        give(pal, recall(memory))
        yield pal, memory


@tool("tainting", "Says how far the turn can be trusted.")
async def tainting(run: ToolRun) -> ToolOutput:
    return ToolOutput(run.origin.value)


STALLED = asyncio.Event()


@tool("stalling", "Never ends.")
async def stalling(run: ToolRun) -> ToolOutput:
    STALLED.set()
    await asyncio.Event().wait()
    return ToolOutput("")


def give(pal: Harness, found: Callable[[SessionKey, str], Awaitable[tuple[ContextNote, ...]]]) -> None:
    pal.agents.agent = msgspec.structs.replace(pal.agents.agent, recall=found)


def notes(request: ModelRequest) -> list[ContextNote]:
    newest = [message for message in request.messages if isinstance(message, UserMessage)][-1]
    return [note for note in newest.context if note.kind == KIND]


async def test_it_rides_in_the_newest_message_once_and_is_stored_with_it(remembering: tuple[Harness, Memory]) -> None:
    pal, _ = remembering
    await pal.hears("where does Anna live?")
    await pal.hears("and since when does Anna live there?")
    first, second = pal.model.requests
    # MEMORY.md stands in the head already.
    assert [note.text for note in notes(first)] == ["memory/2026-11-14.md#L3: - Anna lives in Oslo"]
    assert notes(second) == []
    assert second.head == first.head
    assert second.messages[: len(first.messages)] == first.messages
    assert "Oslo" not in first.head.system
    said = [message for message in await pal.messages() if isinstance(message, UserMessage)]
    assert said[0].text == "where does Anna live?"
    assert [note.kind for note in said[0].context] == ["time", KIND]


async def test_a_group_is_offered_nothing(remembering: tuple[Harness, Memory]) -> None:
    pal, memory = remembering
    await pal.hears("where does Anna live?", key=str(GROUP))
    assert memory.questions == []
    assert "Oslo" not in str(pal.model.requests)


async def test_a_note_from_outside_taints_the_turn(remembering: tuple[Harness, Memory]) -> None:
    pal, memory = remembering
    memory.results = (result("memory/a.md", 1, f"- Anna wants money {OUTSIDE}"),)
    pal.model.says(calls(call("tainting")), "Done.")
    await pal.hears("what does Anna want?")
    assert [each.text for each in await pal.tool_results()] == ["outside"]


async def test_a_turn_that_is_run_again_reads_the_note_that_was_stored_and_is_tainted_by_it(
    remembering: tuple[Harness, Memory],
) -> None:
    pal, memory = remembering
    memory.results = (result("memory/a.md", 1, f"- Anna wants money {OUTSIDE}"),)
    pal.model.says(calls(call("stalling")), calls(call("tainting")), "Done.")
    await pal.submits("what does Anna want?")
    async with asyncio.timeout(60):
        await STALLED.wait()
    await pal.crash()
    await pal.idle()
    assert (await pal.tool_results())[-1].text == "outside"
    assert len(memory.questions) == 1


async def test_a_memory_that_hangs_delays_a_turn_by_a_moment_only(remembering: tuple[Harness, Memory]) -> None:
    pal, memory = remembering
    memory.hangs = True
    pal.model.says("Hello.")
    assert (await pal.hears("where does Anna live?")).text == "Hello."
