"""What every index of transcripts keeps: complete at the moment of asking, best first, whatever the script."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import Struct

from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, ContextNote, Message, Text, ToolCall, ToolResult, UserMessage
from palinurus.sessions.index import TranscriptIndex
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import CompactionEntry, CustomEntry, CustomMessageEntry, Entry, MessageEntry
from palinurus.storage.database import Database, MemoryDatabase
from palinurus.testing.fakes import FakeClock, SeededIds

T = "2026-11-15T09:00:00.000Z"


class Shelf(Struct):
    """A store and the index over it."""

    store: SessionStore
    index: TranscriptIndex
    count: int = 0

    async def says(self, *said: Message | str, key: str = "agent:main:main") -> None:
        messages = [UserMessage(message) if isinstance(message, str) else message for message in said]
        self.count += 1
        await self.adds(
            *(MessageEntry(f"e{self.count}-{n}", T, message=message) for n, message in enumerate(messages)), key=key
        )

    async def adds(self, *entries: Entry, key: str = "agent:main:main") -> None:
        session = await self.store.open(SessionKey.parse(key))
        await self.store.append(session.id, entries)

    async def finds(self, query: str, *, agent: str = "", limit: int = 20) -> list[str]:
        return [hit.snippet for hit in await self.index.search(query, agent=agent, limit=limit)]


@pytest.fixture
async def shelf(database: Database, tmp_path: Path, clock: FakeClock, new_id: SeededIds) -> AsyncIterator[Shelf]:
    path = None if isinstance(database, MemoryDatabase) else tmp_path / "derived" / "transcripts.sqlite"
    index = TranscriptIndex(database, path)
    yield Shelf(SessionStore(database, clock, new_id), index)
    await index.close()


async def test_what_was_appended_before_the_question_is_found_by_it(shelf: Shelf) -> None:
    assert await shelf.finds("bicycle") == []
    await shelf.says("my bicycle is green")
    assert await shelf.finds("bicycle") == ["my bicycle is green"]
    await shelf.says("the bicycle was stolen")
    assert len(await shelf.finds("bicycle")) == 2


async def test_any_word_matches_and_more_words_match_better(shelf: Shelf) -> None:
    await shelf.says("a green boat", "the old green bicycle", "nothing of the kind")
    assert await shelf.finds("what about the green bicycle?") == ["the old green bicycle", "a green boat"]


async def test_a_question_in_chinese_japanese_or_korean_finds_its_words(shelf: Shelf) -> None:
    await shelf.says("我的自行车是绿色的", "私の自転車は緑です", "내 자전거는 초록색이다", "a boat")
    assert await shelf.finds("自行车") == ["我的自行车是绿色的"]
    assert await shelf.finds("自転車") == ["私の自転車は緑です"]
    assert await shelf.finds("자전거") == ["내 자전거는 초록색이다"]


async def test_everybody_s_words_are_found_with_who_said_them(shelf: Shelf) -> None:
    await shelf.says(
        UserMessage("where is the anchor?"),
        AssistantMessage((ToolCall("c", "grep", {"pattern": "anchor"}), Text("looking for the anchor"))),
        ToolResult("c", "grep", "notes.md: anchor in the shed"),
    )
    await shelf.adds(
        CustomMessageEntry("cm", T, custom_type="x", content="the anchor has been painted"),
        CompactionEntry("co", T, summary="they spoke of the anchor", first_kept_entry_id="e1-0"),
    )
    hits = await shelf.index.search("anchor")
    assert {hit.role for hit in hits} == {"user", "assistant", "tool", "system", "summary"}
    assert {hit.session_key for hit in hits} == {"agent:main:main"}
    assert {hit.entry_id for hit in hits} == {"e1-0", "e1-1", "e1-2", "cm", "co"}
    assert {hit.timestamp for hit in hits} == {T}


async def test_state_and_context_notes_are_not_what_was_said(shelf: Shelf) -> None:
    await shelf.says(UserMessage("hello", context=(ContextNote("file", "the anchor", "TOOLS.md", "d"),)))
    await shelf.adds(CustomEntry("c", T, custom_type="x", data="the anchor"))
    assert await shelf.finds("anchor") == []


async def test_one_agent_is_searched_when_one_is_named(shelf: Shelf) -> None:
    await shelf.says("the anchor of main")
    await shelf.says("the anchor of work", key="agent:work:main")
    assert await shelf.finds("anchor", agent="work") == ["the anchor of work"]


async def test_there_are_no_more_hits_than_asked_for(shelf: Shelf) -> None:
    await shelf.says(*(f"anchor number {number}" for number in range(30)))
    assert len(await shelf.finds("anchor")) == 20
    assert len(await shelf.finds("anchor", limit=3)) == 3


@pytest.mark.parametrize("query", ["", "?!", '" OR "', "NEAR(a b)", "a*", "col:x", "-"])
async def test_no_question_breaks_the_search(shelf: Shelf, query: str) -> None:
    await shelf.says("my bicycle is green")
    await shelf.finds(query)
