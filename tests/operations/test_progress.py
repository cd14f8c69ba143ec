"""Long work that is followed: its newest word, its result, its failure, and what happens when nobody listens."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from palinurus.operations import progress
from palinurus.operations.progress import follow


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "TELL_SECONDS", 0.0)


class Work:
    def __init__(self) -> None:
        self.latest: list[int] = []
        self.ended = ""
        self.go_on = asyncio.Event()

    async def run(self) -> str:
        try:
            self.latest[:] = [1]
            self.latest[:] = [2]
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.ended = "stopped"
            raise
        self.ended = "done"
        return "result"


async def test_the_newest_word_comes_first_and_the_result_last() -> None:
    work = Work()
    heard = []
    async with asyncio.timeout(60), aclosing(follow(work.run(), work.latest)) as steps:
        async for progress, result in steps:
            heard.append((progress, result))
            work.go_on.set()
    assert heard == [(2, None), (None, "result")]


@pytest.mark.parametrize(("to_its_end", "ended"), [(False, "stopped"), (True, "done")])
async def test_who_stops_listening_stops_the_work_unless_it_must_end(to_its_end: bool, ended: str) -> None:
    work = Work()
    async with asyncio.timeout(60), aclosing(follow(work.run(), work.latest, to_its_end=to_its_end)) as steps:
        assert await anext(steps) == (2, None)
        work.go_on.set()
    assert work.ended == ended


async def test_what_it_raises_reaches_who_listens() -> None:
    async def fails() -> None:
        raise ValueError("the quay is gone")

    with pytest.raises(ValueError, match="quay"):
        async with aclosing(follow(fails(), list[int]())) as steps:
            await anext(steps)
