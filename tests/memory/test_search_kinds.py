"""Questions of several kinds about notes of several kinds, by words alone: what answers is among the first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from notes import asked, search_over, write

from palinurus.memory.answer import SearchAnswer
from palinurus.memory.search import MemorySearch
from palinurus.memory.store import MemoryStore


@pytest.fixture
async def search(tmp_path: Path) -> AsyncIterator[MemorySearch]:
    write(tmp_path / "workspace")
    store = MemoryStore(tmp_path / "memory.sqlite")
    async with asyncio.timeout(60):
        yield search_over(tmp_path / "workspace", store)
        await store.close()


def first(answer: SearchAnswer, many: int) -> list[str]:
    return [f"{result.path}:{result.start_line}" for result in answer.results[:many]]


@pytest.mark.parametrize(
    ("question", "where", "within"),
    [
        ("What am I allergic to?", "MEMORY.md:3", 1),
        ("When is Ines' birthday?", "MEMORY.md:7", 1),
        ("who is Tomas", "MEMORY.md:8", 1),  # accents
        ("Where did my brother move?", "MEMORY.md:8", 1),
        ("Who borrowed the ladder?", "memory/2026-11-10.md:2", 3),
        ("What happened to the dog's sock?", "memory/2026-11-12.md:1", 2),
        ("What did I do on 12 November?", "memory/2026-11-12.md:2", 3),
        ("what happened last Tuesday", "memory/2026-11-10.md:1", 3),
        ("What did we buy yesterday?", "memory/2026-11-14.md:3", 3),
        ("Why did we choose Postgres?", "memory/meetings/2026-10-02-kickoff.md:6", 1),
        ("decisions of the lighthouse kickoff", "memory/meetings/2026-10-02-kickoff.md:6", 4),
        ("Who asks about paying for the load test?", "memory/meetings/2026-10-02-kickoff.md:12", 2),
        ("Who is the owner of the contract draft?", "memory/meetings/2026-10-02-kickoff.md:17", 1),
        ("What does E04 on the printer mean?", "memory/howto/printer.md:3", 2),
        ("command to enable the attic printer", "memory/howto/printer.md:6", 2),
        ("What did Rafael think of the concert?", "memory/talk.md:2", 2),
        ("Did Rafael meet the singer?", "memory/talk.md:4", 3),
        ("What did Lena bake?", "memory/talk.md:5", 1),
        ("Where is grandfather's notebook kept?", "memory/essay.md:1", 1),
        ("猫の名前は何ですか", "memory/日記.md:2", 1),
        ("大阪にはいつ行きますか", "memory/日記.md:3", 1),
        ("猫", "memory/日記.md:2", 1),
        ("冰箱的保修到什么时候", "memory/中文.md:3", 1),
        ("我买了什么苹果", "memory/中文.md:2", 1),
    ],
)
async def test_the_line_that_answers_is_among_the_first(
    search: MemorySearch, question: str, where: str, within: int
) -> None:
    answer = await asked(search, question)
    assert where in first(answer, within), first(answer, 6)
    assert answer.mode == "keyword"
