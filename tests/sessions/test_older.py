"""Rows that others wrote are read as the entries they would be today; what nobody can read stays broken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.messages import AssistantMessage, Text, ToolCall, ToolResult, UserMessage
from palinurus.sessions.transcript import Broken, MessageEntry, ModelChange, Row, decode_row


def read(value: Any, entry_id: str = "line-3", parent: str | None = "line-2") -> Any:
    entry = decode_row(Row(entry_id, parent, value if isinstance(value, str) else json.dumps(value)))
    return entry.message if isinstance(entry, MessageEntry) else entry


def test_a_bare_message_is_a_message() -> None:
    entry = decode_row(Row("line-1", None, '{"role": "user", "content": "hi", "timestamp": "2026-04-15T10:01:00Z"}'))
    assert isinstance(entry, MessageEntry)
    assert (entry.id, entry.timestamp, entry.message.text) == ("line-1", "2026-04-15T10:01:00Z", "hi")
    assert read({"role": "assistant", "content": "hello"}) == AssistantMessage((Text("hello"),))


def test_a_call_and_its_result_belong_together() -> None:
    call = read({"role": "tool", "name": "exec", "input": {"command": "date"}}, "line-2", "line-1")
    result = read({"role": "tool_result", "name": "exec", "content": {"stdout": "é"}}, "line-3", "line-2")
    assert call == AssistantMessage((ToolCall("line-2", "exec", {"command": "date"}),), stop_reason="toolUse")
    assert result == ToolResult("line-2", "exec", (Text('{"stdout": "é"}'),))


def test_a_line_without_an_id_takes_that_of_its_row() -> None:
    entry = read({"type": "model_change", "timestamp": 1_790_000_000_000, "provider": "p", "modelId": "m"})
    assert entry == ModelChange("line-3", "2026-09-21T14:13:20.000Z", "line-2", provider="p", model_id="m")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "assistant", "content": "plain"}, AssistantMessage((Text("plain"),))),
        ({"role": "assistant", "content": ["a", {"type": "news"}]}, AssistantMessage((Text("a"),))),
        ({"role": "assistant", "content": [], "stopReason": "tired"}, AssistantMessage(())),
        ({"role": "user", "content": None}, UserMessage(())),
        (
            {"role": "assistant", "content": [{"type": "toolCall", "id": "c", "name": "n", "arguments": '{"a": 1}'}]},
            AssistantMessage((ToolCall("c", "n", {"a": 1}),)),
        ),
    ],
)
def test_odd_messages_are_put_right(message: dict[str, Any], expected: Any) -> None:
    assert read({"type": "message", "id": "x", "timestamp": "t", "message": message}) == expected


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    assert read('{"role": "user", "content": "moon \\ud83c"}') == UserMessage((Text("moon ?"),))


@pytest.mark.parametrize("value", [{"role": "custom", "content": "x"}, {"role": 5}, {"type": "leaf"}, {"x": 1}, []])
def test_what_nobody_can_read_stays_broken(value: Any) -> None:
    assert isinstance(read(value), Broken)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
        ["type", "role", "content", "message", "id", "timestamp", "text", "arguments", "stopReason", "name", "input"]
    ), inner, max_size=6),
    max_leaves=20,
)  # fmt: skip


@given(json_values, st.sampled_from(["message", "compaction", "custom", "session", ""]))
def test_nothing_that_is_json_raises(value: Any, kind: str) -> None:
    decode_row(Row("x", None, json.dumps({"type": kind, "message": value} if kind else value)))


@pytest.mark.parametrize("payload", ["[" * 100_000, '{"role":"user","content":' + "[" * 5000 + "]" * 5000 + "}"])
def test_nor_does_what_is_nested_beyond_all_measure(payload: str) -> None:
    decode_row(Row("x", None, payload))
