"""Words from outside stay marked when a conversation is searched, and many conversations are read in good time."""

from __future__ import annotations

from pathlib import Path

from indexed import Indexed

from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import OUTSIDE_MARK, AssistantMessage, Message, Origin, Text, ToolResult, UserMessage
from palinurus.memory.conversations import StoredDocuments
from palinurus.memory.document import SESSIONS
from palinurus.memory.settings import Sync
from palinurus.sessions.session import Session
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import MessageEntry
from palinurus.storage.database import MemoryDatabase
from palinurus.testing.fakes import FakeClock, SeededIds

AT = "2026-11-15T09:00:00.000Z"


class Counting(SessionStore):
    asked = 0

    async def recent(self, *, agent: str = "", limit: int = 100, archived: bool = False) -> list[Session]:
        self.asked += 1
        return await super().recent(agent=agent, limit=limit, archived=archived)


async def test_words_from_outside_and_what_was_said_after_reading_them_are_marked(
    tmp_path: Path, clock: FakeClock, new_id: SeededIds
) -> None:
    sessions = SessionStore(MemoryDatabase(), clock, new_id)
    talk = await sessions.open(SessionKey.parse("agent:main:main"))
    said: tuple[Message, ...] = (
        UserMessage("anchor one, from a stranger", origin=Origin.OUTSIDE),
        AssistantMessage((Text("anchor two, as the stranger says"),)),
        UserMessage("anchor three, says the owner"),
        AssistantMessage((Text("anchor four, perhaps of my own"),)),
        ToolResult("c", "web_fetch", "a page", origin=Origin.OUTSIDE),
        AssistantMessage((Text("anchor five, as the page says"),)),
        UserMessage("anchor six, says the owner"),
    )
    await sessions.append(talk.id, [MessageEntry(f"e{n}", AT, message=each) for n, each in enumerate(said)])
    talks = StoredDocuments(sessions, "main", clock, Sync())
    notes = Indexed(tmp_path / "ws", sources=("memory", SESSIONS), conversations=talks)
    found = await notes.asks("anchor")
    marked = {
        word
        for line in found
        for word in ["one", "two", "three", "four", "five", "six"]
        if f"anchor {word}," in line and OUTSIDE_MARK in line
    }
    assert (len(found), marked) == (6, {"one", "two", "four", "five"})  # the stranger is still read at the fourth
    await notes.close()


async def test_indexing_many_conversations_lists_them_once_and_not_for_each_of_them(
    tmp_path: Path, clock: FakeClock, new_id: SeededIds
) -> None:
    sessions = Counting(MemoryDatabase(), clock, new_id)
    for number in range(40):
        talk = await sessions.open(SessionKey.parse(f"agent:main:n{number}"))
        await sessions.append(talk.id, [MessageEntry("e", AT, message=UserMessage(f"anchor {number}"))])
    talks = StoredDocuments(sessions, "main", clock, Sync())
    notes = Indexed(tmp_path / "ws", sources=("memory", SESSIONS), conversations=talks)
    assert (await notes.index.sync()).added == 40
    assert sessions.asked <= 2
    await notes.close()
