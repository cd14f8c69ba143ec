"""What must be true of a home's file and of a request, whatever happened before."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from palinurus.context.assemble import violations
from palinurus.domain.messages import AssistantMessage, Message, Text, ToolCall, ToolResult, UserMessage
from palinurus.sessions.transcript import Broken, Row, decode_row, messages_of


@dataclass(frozen=True)
class Stored:
    """The messages of every session by its key, and the words that were accepted and have no result yet."""

    sessions: dict[str, list[Message]]
    pending: list[str]

    def said(self, key: str) -> list[str]:
        """The words of each message; one that holds several is taken apart again."""
        heard = [message for message in self.sessions[key] if isinstance(message, UserMessage)]
        return [words for one in heard for words in (one.text.split("\n\n") if one.also else [one.text])]

    def times_said(self) -> Counter[str]:
        return Counter(text for key in self.sessions for text in self.said(key))

    def check_kept(self, acknowledged: Iterable[str]) -> None:
        """Each of these is in a transcript exactly once, or its run is still open."""
        said, waiting = self.times_said(), set(self.pending)
        lost = [text for text in acknowledged if said[text] == 0 and text not in waiting]
        assert not lost, f"lost: {lost}"
        doubled = [text for text, times in said.items() if times > 1]
        assert not doubled, f"doubled: {doubled}"


def audit(database: Path) -> Stored:
    """Read the whole file. Fails when it is damaged, or when a transcript is no tree of readable entries."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(5_000)
    try:
        assert connection.execute("PRAGMA integrity_check").get == "ok"
        connection.execute("BEGIN")  # all of it as it stood at one moment, though the home may be in use
        keys = connection.execute("SELECT id, key FROM sessions").fetchall()
        pending = connection.execute(
            "SELECT payload FROM jobs WHERE kind = 'run' AND state = 'running' ORDER BY queued"
        ).fetchall()
        sessions = {str(key): _messages(connection, str(session_id)) for session_id, key in keys}
    finally:
        connection.close()
    return Stored(sessions, [json.loads(str(inbound))["text"] for (inbound,) in pending])


def _messages(connection: apsw.Connection, session_id: str) -> list[Message]:
    query = "SELECT id, parent_id, payload FROM entries WHERE session_id = ? ORDER BY position"
    rows = [Row(*row) for row in connection.execute(query, (session_id,))]
    seen: set[str] = set()
    for number, row in enumerate(rows):
        assert row.parent_id in seen or (number == 0 and row.parent_id is None), f"{row.id} hangs in the air"
        seen.add(row.id)
    entries = [decode_row(row) for row in rows]
    assert not [entry for entry in entries if isinstance(entry, Broken)]
    return messages_of(entries)


def check_answered_once(messages: Sequence[Message], *, steered: bool = False) -> None:
    """Behind every user's message, before the next one, exactly one reply that calls no tool.

    Where people may steer, one who speaks right behind a tool's result speaks into a turn, and is answered by it.
    """
    answers = 1
    before: Message | None = None
    for message in messages:
        if isinstance(message, UserMessage) and not (steered and isinstance(before, ToolResult)):
            assert answers == 1, f"{answers} answers before {message.text!r}"
            answers = 0
        elif isinstance(message, AssistantMessage) and not message.calls:
            answers += 1
        before = message
    assert answers == 1, f"{answers} answers at the end"


def request_messages(body: Mapping[str, Any]) -> list[Message]:
    """The messages of a request on the wire, without the system prompt, as records of ours."""
    return [_from_wire(message) for message in body["messages"] if message["role"] != "system"]


def _from_wire(message: Mapping[str, Any]) -> Message:
    match message["role"]:
        case "user":
            assert message["content"]
            return UserMessage(str(message["content"]))
        case "tool":
            return ToolResult(message["tool_call_id"], "", message["content"])
        case "assistant":
            calls = [
                ToolCall(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
                for call in message.get("tool_calls", ())
            ]
            assert message.get("content") or calls, "an empty reply is refused by several servers"
            text = (Text(message["content"]),) if message.get("content") else ()
            return AssistantMessage((*text, *calls))
        case role:
            raise AssertionError(f"no role of the wire: {role}")


def check_valid(body: Mapping[str, Any]) -> None:
    """No provider would refuse this request."""
    roles = [message["role"] for message in body["messages"]]
    assert roles[0] == "system"
    assert roles.count("system") == 1
    assert roles[-1] in ("user", "tool")
    assert violations(request_messages(body)) == []


def check_grows(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> None:
    """Head and messages of the earlier request are a prefix of the later one's, element by element."""
    for part in earlier.keys() | later.keys():
        if part != "messages":
            assert earlier.get(part) == later.get(part), part
    start = later["messages"][: len(earlier["messages"])]
    for number, (before, after) in enumerate(zip(earlier["messages"], start, strict=True)):
        assert before == after, f"message {number} was rewritten"
