"""What a model server on loopback really receives: it only grows, it is small, and an old wound does not show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from audit import audit, check_grows, check_valid

from homes import PalHome, heard
from palinurus.context.assemble import NO_RESULT
from support.wire import WireServer

pytestmark = pytest.mark.slow


async def test_ten_turns_only_ever_grow_at_their_end_and_an_edited_file_rides_in_the_newest_message(
    home: PalHome, wire: WireServer
) -> None:
    async with home.talking("chat") as chat:
        for number in range(10):
            if number == 6:
                with (home.workspace / "SOUL.md").open("a", encoding="utf-8") as soul:
                    soul.write("\nSpeak like a lighthouse keeper.\n")
            words = f"{'look, ' if number % 3 == 0 else ''}turn {number}"
            await chat.say(words)
            await chat.until(lambda line, words=words: line.endswith(f"heard: {words}"))  # type: ignore[misc]
        ended = await chat.leave()
    assert (ended.code, ended.err) == (0, "")
    assert len(wire.requests) == 14  # ten turns, four of them with a second call after their tools
    for earlier, later in zip(wire.requests, wire.requests[1:], strict=False):
        check_grows(earlier, later)
        check_valid(later)
    edited = next(body for body in wire.requests if heard(body) == "look, turn 6")
    assert "lighthouse keeper" in edited["messages"][-1]["content"]
    assert "lighthouse keeper" not in json.dumps(edited["messages"][:-1])
    newest = wire.requests[-1]["messages"]
    assert sum("lighthouse keeper" in str(message["content"]) for message in newest if message["role"] == "user") == 1


async def test_turns_of_separate_processes_grow_like_those_of_one(home: PalHome, wire: WireServer) -> None:
    for words in ("one", "look, two", "three"):
        assert (await home.pal("agent", "-m", words)).code == 0
    assert len(wire.requests) == 4
    for earlier, later in zip(wire.requests, wire.requests[1:], strict=False):
        check_grows(earlier, later)


async def test_the_first_request_of_a_fresh_home_is_small(place: Path, wire: WireServer) -> None:
    home = PalHome(place / "fresh", {"OPENAI_API_KEY": "test-key", "OPENAI_BASE_URL": wire.base_url})
    ended = await home.pal("agent", "-m", "hi")
    assert (ended.code, ended.out) == (0, "heard: hi\n"), ended
    [body], [raw] = wire.requests, wire.raw
    assert body["messages"][0]["role"] == "system"
    assert len(body["messages"][0]["content"]) <= 6_000
    assert len(raw) <= 14_000
    for tool in body["tools"]:
        assert len(json.dumps(tool["function"]["parameters"], separators=(",", ":"))) <= 500, tool
    for name in ("AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md", "BOOTSTRAP.md"):
        assert name in body["messages"][0]["content"]


class Wound:
    """Writes entries straight into a session's transcript, as a careless import or another release might."""

    def __init__(self, home: PalHome) -> None:
        self._connection = apsw.Connection(str(home.database))
        self._session = self._connection.execute("SELECT id FROM sessions").get
        self._last = self._connection.execute("SELECT id FROM entries ORDER BY position DESC LIMIT 1").get
        self._count = 0

    def add(self, kind: str, payload: str) -> str:
        self._count += 1
        entry_id = f"wound-{self._count}"
        filled = payload.replace("$ID", entry_id).replace("$PARENT", self._last)
        self._connection.execute(
            "INSERT INTO entries (session_id, id, parent_id, type, payload) VALUES (?, ?, ?, ?, ?)",
            (self._session, entry_id, self._last, kind, filled),
        )
        self._last = entry_id
        return entry_id

    def message(self, **message: Any) -> None:
        entry = {"type": "message", "id": "$ID", "parentId": "$PARENT", "timestamp": "2026-11-15T09:00:00.000Z"}
        self.add("message", msgspec.json.encode(entry | {"message": message}).decode())

    def calls(self, *ids: str) -> None:
        content = [{"type": "toolCall", "id": call, "name": "ls", "arguments": {"path": "."}} for call in ids]
        self.message(role="assistant", content=content, stopReason="toolUse")

    def result(self, call: str, text: str) -> None:
        self.message(role="toolResult", toolCallId=call, toolName="ls", content=text)

    def close(self) -> None:
        self._connection.close()


async def test_a_wounded_transcript_costs_a_line_and_never_the_session(home: PalHome, wire: WireServer) -> None:
    assert (await home.pal("agent", "-m", "before the wounds")).code == 0
    wound = Wound(home)
    wound.message(role="user", content="a call without its result")
    wound.calls("call_a", "call_b")
    wound.result("call_a", "the result of a")
    wound.message(role="user", content="a doubled result")
    wound.calls("call_c")
    wound.result("call_c", "the first result of c")
    wound.result("call_c", "the second result of c")
    wound.result("call_z", "a result that nobody asked for")
    wound.add("message", '{"type": "message", "id": "$ID", "parentId": "$PARENT", "mess')
    wound.add("message", '{"type": "message", "id": "$ID", "timestamp": "", "message": {"role": "ghost"}}')
    wound.add("sculpture", '{"type": "sculpture", "id": "$ID", "timestamp": ""}')
    wound.message(role="assistant", content=[])
    wound.message(role="user", content="unanswered")
    wound.close()

    for words in ("after the wounds", "and once more"):
        ended = await home.pal("agent", "-m", words)
        assert (ended.code, ended.out, ended.err) == (0, f"heard: {words}\n", ""), ended

    for body in wire.requests:
        check_valid(body)
    check_grows(wire.requests[1], wire.requests[2])
    sent = json.dumps(wire.requests[1]["messages"], ensure_ascii=False)
    for kept in ("before the wounds", "the result of a", NO_RESULT, "the first result of c", "unanswered"):
        assert kept in sent
    for dropped in ("the second result of c", "nobody asked for", "ghost"):
        assert dropped not in sent
    shown = (await home.pal("sessions", "show", "--json")).json
    assert len(shown["broken"]) == 3


async def test_what_was_said_cannot_be_rewritten_even_with_sql(home: PalHome) -> None:
    assert (await home.pal("agent", "-m", "carved in stone")).code == 0
    connection = apsw.Connection(str(home.database))
    for statement in ("UPDATE entries SET payload = '{}'", "DELETE FROM entries"):
        with pytest.raises(apsw.ConstraintError, match="append-only"):
            connection.execute(statement)
    connection.close()
    assert audit(home.database).said("agent:main:main") == ["carved in stone"]
