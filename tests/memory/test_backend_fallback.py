"""The memory slot: whatever the chosen backend does, a search is answered in time, and it is said who answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest
from indexed import Indexed

from palinurus.domain.errors import NotFound
from palinurus.memory import backend
from palinurus.memory.answer import IndexFreshness, MemoryStatus, OnProgress, SearchAnswer, SearchResult, SyncReport
from palinurus.memory.backend import BUILTIN, FallbackMemory, MemoryBackend
from palinurus.memory.memory import Memory, OnSync
from palinurus.memory.question import Question
from palinurus.memory.settings import MemorySettings, SearchLimits, Sync
from palinurus.testing.fakes import FakeClock

FOUND = SearchResult("memory/2026-11-14.md", 1, 1, 0.5, "from the other one")
ANSWER = SearchAnswer((FOUND,), IndexFreshness("fresh", 1))
QUESTION = Question("rudder", SearchLimits(seconds=1.0))
Doing = Callable[[], Awaitable[Any]]


async def answering() -> SearchAnswer:
    return ANSWER


async def crashing() -> SearchAnswer:
    raise KeyError("a bug of somebody else")


async def hanging() -> SearchAnswer:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if asyncio.get_running_loop().is_closed():
                raise
            return ANSWER  # too late, and against all manners


async def refusing() -> SearchAnswer:
    raise NotFound("the program is not there")


def told(*results: Any) -> Doing:
    async def tell() -> Any:
        return SearchAnswer(results, IndexFreshness("fresh", 1)) if results else {"results": []}

    return tell


class Other:
    least_seconds = 0.0

    def __init__(self, doing: Doing) -> None:
        self.doing = doing
        self.asked = 0
        self.seconds = 0.0
        self.closed = False

    async def search(self, question: Question) -> SearchAnswer:
        self.asked += 1
        self.seconds = question.budget.seconds
        found: SearchAnswer = await self.doing()
        return found

    async def sync(self, *, force: bool = False, progress: OnProgress | None = None) -> SyncReport:
        await self.doing()
        return SyncReport(1, added=1)

    async def forget(self) -> SyncReport:
        return await self.sync()

    async def status(self, *, deep: bool = False) -> MemoryStatus:
        await self.doing()
        return MemoryStatus("main", True, 1, 1, 1, 1, 1, {}, "")

    def own_path(self, path: str) -> str:
        return path.removeprefix("other/")

    def start(self) -> None: ...

    async def close(self) -> None:
        self.closed = True


class Slot:
    def __init__(self, notes: Indexed, clock: FakeClock) -> None:
        settings = MemorySettings(embedder="none", sync=Sync(watch=False, sweep_minutes=0))
        self.builtin = Memory(settings, notes.store, notes.index, None, clock)
        self.clock = clock

    def over(self, doing: Doing) -> tuple[Other, FallbackMemory]:
        other = Other(doing)
        return other, self.opening(lambda _: other)

    def opening(self, opened: Callable[[OnSync], MemoryBackend]) -> FallbackMemory:
        return FallbackMemory("other", self.builtin, opened, self.clock)


@pytest.fixture
async def slot(tmp_path: Any, clock: FakeClock) -> AsyncIterator[Slot]:
    notes = Indexed(tmp_path / "ws")
    notes.write("memory/2026-11-15.md", "- the rudder was mended\n")
    made = Slot(notes, clock)
    yield made
    await made.builtin.close()


async def test_a_backend_that_works_has_the_slot_alone(slot: Slot) -> None:
    other, memory = slot.over(answering)
    answer = await memory.search(QUESTION)
    status = await memory.status()
    assert (answer.results, answer.backend, other.seconds) == ((FOUND,), "other", 0.75)
    assert (status.backend, status.backend_wanted, status.backend_reason) == ("other", "other", "")
    assert (await slot.builtin.status()).files == 0  # it was not indexed


@pytest.mark.parametrize(
    ("doing", "why"),
    [
        (crashing, "other failed: KeyError: 'a bug of somebody else'"),
        (hanging, "other did not answer within 0.75 s"),
        (refusing, "other: the program is not there"),
        (told(), "the answer of other cannot be read: it is a dict"),
        (told(SearchResult("a.md", 1, 1, 7.0, "")), "the answer of other cannot be read: a score of 7.0"),
        (told(SearchResult("a.md", 1, 1, float("nan"), "")), "the answer of other cannot be read: a score of nan"),
        (told(SearchResult("a.md", 3, 2, 0.5, "")), "the answer of other cannot be read: lines 3 to 2 of 'a.md'"),
        (told(SearchResult("", 1, 1, 0.5, "")), "the answer of other cannot be read: lines 1 to 1 of ''"),
        (
            told(SearchResult("a.md", 1, 1, cast("float", "0.9"), "")),
            "the answer of other cannot be read: Expected `float`, got `str` - at `$.results[0].score`",
        ),
        (
            told(SearchResult("a.md", 1, 1, 0.5, cast("str", None))),
            "the answer of other cannot be read: Expected `str`, got `null` - at `$.results[0].snippet`",
        ),
    ],
)
async def test_where_it_fails_the_builtin_engine_answers_in_time_and_says_why(
    slot: Slot, doing: Doing, why: str
) -> None:
    other, memory = slot.over(doing)
    async with asyncio.timeout(30):
        answer = await memory.search(QUESTION)
    assert (answer.results[0].snippet, answer.backend) == ("- the rudder was mended", BUILTIN)
    assert answer.freshness.why == f"the builtin engine answered: {why}"
    other.doing = answering
    status = await memory.status()
    assert (status.backend, status.backend_wanted, status.backend_reason) == (BUILTIN, "other", why)


async def test_a_status_that_hangs_is_that_of_the_builtin_engine(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "STATUS_SECONDS", 0.05)
    _, memory = slot.over(hanging)
    status = await memory.status()
    assert (status.backend, status.backend_reason) == (BUILTIN, "other did not answer within 0.05 s")


async def test_it_has_the_slot_again_as_soon_as_it_works(slot: Slot) -> None:
    other, memory = slot.over(crashing)
    assert (await memory.search(QUESTION)).backend == BUILTIN
    other.doing = answering
    assert (await memory.search(QUESTION)).backend == "other"
    assert (await memory.status()).backend == "other"


async def test_after_three_late_answers_it_rests_for_a_minute(slot: Slot) -> None:
    other, memory = slot.over(hanging)
    quick = Question("rudder", SearchLimits(seconds=0.05))
    for _ in range(5):
        assert (await memory.search(quick)).backend == BUILTIN
    assert other.asked == 3
    slot.clock.advance(seconds=61)
    other.doing = answering
    assert (await memory.search(QUESTION)).backend == "other"


async def test_a_search_in_a_hurry_is_not_given_to_a_slow_backend(slot: Slot) -> None:
    other, memory = slot.over(answering)
    other.least_seconds = 1.0
    assert (await memory.search(QUESTION)).backend == BUILTIN
    assert other.asked == 0


async def test_one_that_cannot_be_opened_leaves_everything_to_the_builtin_engine(slot: Slot) -> None:
    def broken(_: OnSync) -> MemoryBackend:
        raise NotFound("there is no memory backend 'other'")

    memory = slot.opening(broken)
    assert (await memory.search(QUESTION)).results
    assert (await memory.sync()).trouble == "there is no memory backend 'other'"
    assert (await memory.status()).backend_reason == "there is no memory backend 'other'"
    assert memory.own_path("memory/a.md") == "memory/a.md"


async def test_one_that_fails_where_nothing_is_awaited_stops_nothing(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, memory = slot.over(answering)

    def fail(*_: str) -> str:
        raise KeyError("a bug of somebody else")

    monkeypatch.setattr(other, "start", fail)
    monkeypatch.setattr(other, "own_path", fail)
    memory.start()  # as the gateway does when it begins
    assert memory.own_path("memory/a.md") == "memory/a.md"
    assert (await memory.status()).backend_reason == "other cannot be started: KeyError: 'a bug of somebody else'"


async def test_words_are_forgotten_in_both_and_a_backend_that_cannot_is_told(slot: Slot) -> None:
    _, memory = slot.over(answering)
    assert (await memory.forget()).changed == 0
    _, memory = slot.over(crashing)
    with pytest.raises(Exception, match="its index may still hold them"):
        await memory.forget()


async def test_an_indexed_change_is_told_whoever_indexed_it(slot: Slot) -> None:
    reports: list[SyncReport] = []
    opened: list[OnSync] = []

    def opening(tell: OnSync) -> MemoryBackend:
        opened.append(tell)
        return Other(answering)

    memory = slot.opening(opening)
    stop = memory.listen(reports.append)
    await memory.search(QUESTION)
    opened[0](SyncReport(1, changed=1))
    await slot.builtin.sync()
    assert [(each.changed, each.added) for each in reports] == [(1, 0), (0, 1)]
    stop()
