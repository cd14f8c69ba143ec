"""Past conversations are searched like files: what was said, in private, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC
from pathlib import Path

import msgspec
import pytest
from indexed import Indexed

from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import (
    AssistantMessage,
    ContextNote,
    Message,
    Origin,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from palinurus.memory.conversations import StoredDocuments, said_lines
from palinurus.memory.document import SESSIONS
from palinurus.memory.settings import Sync
from palinurus.sessions.store import SessionStore
from palinurus.sessions.transcript import Entry, MessageEntry, ResetEntry
from palinurus.storage.database import MemoryDatabase
from palinurus.testing.fakes import FakeClock, SeededIds

DAYS = ("2026-11-14T09:00:00.000Z", "2026-11-15T09:00:00.000Z")
LATER = "2026-11-15T09:00:00.000Z"


class Talks:
    def __init__(self, root: Path, clock: FakeClock, new_id: SeededIds, sync: Sync = Sync(session_days=30)) -> None:  # noqa: B008
        self.clock = clock
        self.sessions = SessionStore(MemoryDatabase(), clock, new_id)
        self.conversations = StoredDocuments(self.sessions, "main", clock, sync)
        self.notes = Indexed(root, sources=("memory", SESSIONS), conversations=self.conversations)
        self.count = 0

    async def say(self, *messages: Message | str, key: str = "agent:main:main", at: str = LATER) -> str:
        session = await self.sessions.open(SessionKey.parse(key))
        said = [UserMessage(message) if isinstance(message, str) else message for message in messages]
        self.count += 1
        entries = [MessageEntry(f"e{self.count}-{n}", at, message=message) for n, message in enumerate(said)]
        self.clock.advance(seconds=1)
        await self.sessions.append(session.id, entries)
        return session.id


@pytest.fixture
async def talks(tmp_path: Path, clock: FakeClock, new_id: SeededIds) -> AsyncIterator[Talks]:
    whole = Talks(tmp_path / "ws", clock, new_id)
    yield whole
    await whole.notes.close()


async def test_what_both_said_is_found_one_line_each_under_its_day(talks: Talks) -> None:
    session = await talks.say("my anchor\n\nis   green", at=DAYS[0])
    await talks.say(AssistantMessage((Thinking("hm, an anchor"), Text("A green anchor. Noted."))), at=DAYS[1])
    document = await talks.conversations.read(f"sessions/{session}.md")
    assert document is not None
    assert document.text.split("\n") == [
        "# 2026-11-14",
        "User: my anchor is green",
        "# 2026-11-15",
        "Assistant: A green anchor. Noted.",
    ]
    path = f"sessions/{session}.md"
    assert await talks.notes.asks("anchor") == [
        f"{path}: Assistant: A green anchor. Noted.",
        f"{path}: User: my anchor is green",
    ]


async def test_notes_that_rode_along_tools_and_the_clock_are_not_memory(talks: Talks) -> None:
    note = ContextNote("memory", "remembered: the anchor is blue")
    await talks.say(
        UserMessage("hello", context=(note,)),
        AssistantMessage((ToolCall("c", "exec", {"command": "anchor"}),)),
        ToolResult("c", "exec", "anchor anchor anchor"),
        UserMessage("check on the anchor now and then", origin=Origin.SYSTEM),
        AssistantMessage((Text("NO_REPLY"),)),
        UserMessage("the anchor, says a stranger", origin=Origin.OUTSIDE),
    )
    assert [line.partition(": ")[2] for line in await talks.notes.asks("anchor reply hello")] == [
        "Outside: the anchor, says a stranger (from outside)",
        "User: hello",
    ]


def test_what_was_said_while_words_from_outside_were_read_is_marked_until_a_fresh_start() -> None:
    messages: tuple[Message, ...] = (
        UserMessage("read that page"),
        ToolResult("c", "web_fetch", "buy an anchor", origin=Origin.OUTSIDE),
        AssistantMessage((Text("It is read."),)),
        UserMessage("which anchor do I need?"),
        AssistantMessage((Text("A red one."),)),
    )
    entries: list[Entry] = [MessageEntry(f"e{at}", LATER, message=each) for at, each in enumerate(messages)]
    entries += [ResetEntry("reset", LATER), *(MessageEntry(f"n{at}", LATER, message=messages[at]) for at in (3, 4))]
    assert [line for line, _ in said_lines(entries, UTC)][1:] == [
        "User: read that page",
        "Assistant: It is read. (having read text from outside)",
        "User: which anchor do I need?",
        "Assistant: A red one. (having read text from outside)",
        "User: which anchor do I need?",
        "Assistant: A red one.",
    ]


@pytest.mark.parametrize(
    "key",
    ["agent:main:telegram:group:7", "agent:main:discord:channel:9", "agent:main:subagent:1", "agent:main:cron:x"],
)
async def test_what_was_said_where_others_listened_is_not_searched(talks: Talks, key: str) -> None:
    await talks.say("the anchor", key=key)
    assert await talks.notes.asks("anchor") == []


async def test_other_agents_conversations_are_theirs(talks: Talks) -> None:
    await talks.say("the anchor", key="agent:other:main")
    assert await talks.notes.asks("anchor") == []


async def test_a_search_takes_the_last_word_and_background_work_waits_for_more(talks: Talks) -> None:
    await talks.say("the anchor is green")
    await talks.notes.index.sync(gentle=True)
    await talks.say("the anchor is blue")
    assert (await talks.notes.index.sync(gentle=True)).changed == 0
    assert len(await talks.notes.asks("anchor")) == 2
    await talks.say("the anchor is red")
    assert (await talks.notes.index.sync(gentle=True)).changed == 0
    await talks.say(*["so it is"] * 50)
    assert (await talks.notes.index.sync(gentle=True)).changed == 1


async def test_many_bytes_are_enough_for_the_background_too(talks: Talks) -> None:
    await talks.say("the anchor is green")
    await talks.notes.index.sync(gentle=True)
    await talks.say("long " * 30_000)
    assert (await talks.notes.index.sync(gentle=True)).changed == 1


async def test_a_conversation_that_was_reset_away_is_still_searched(talks: Talks) -> None:
    session = await talks.say("the anchor is green")
    await talks.sessions.archive(session)
    await talks.say("another day")
    assert await talks.notes.asks("anchor") == [f"sessions/{session}.md: User: the anchor is green"]


async def test_conversations_that_are_too_old_are_not_searched(talks: Talks) -> None:
    await talks.say("the anchor is green")
    assert await talks.notes.asks("anchor")
    talks.clock.advance(days=31)
    assert await talks.notes.asks("anchor") == []


async def test_conversations_that_are_no_longer_given_are_dropped(talks: Talks, tmp_path: Path) -> None:
    await talks.say("the anchor is green")
    assert await talks.notes.asks("anchor")
    without = Indexed(tmp_path / "ws", talks.notes.store)
    assert await without.asks("anchor") == []


async def test_a_deep_status_looks_at_conversations_too(talks: Talks) -> None:
    session = await talks.say("the anchor is green")
    await talks.notes.index.sync()
    status = await talks.notes.index.status(deep=True)
    assert (status.difference_count, status.sources) == (0, {"sessions": 1})
    await talks.say("and more")
    status = await talks.notes.index.status()
    assert [msgspec.to_builtins(each) for each in status.differences] == [
        {"path": f"sessions/{session}.md", "what": "changed"}
    ]
