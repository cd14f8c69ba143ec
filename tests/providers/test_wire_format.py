"""A request as bytes of the OpenAI wire: legal, deterministic, growing only at its end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.messages import (
    AssistantMessage,
    ContextNote,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import Head, ModelRequest
from palinurus.providers.wires.openai import to_openai
from palinurus.providers.wires.rendering import LEGAL_ID


def body(*messages: Message, **fields: Any) -> dict[str, Any]:
    request = ModelRequest("m", fields.pop("head", Head("be kind")), messages, **fields)
    decoded: dict[str, Any] = msgspec.json.decode(to_openai(request))
    return decoded


def test_the_whole_body_of_a_small_conversation() -> None:
    spec = ToolSpec("ls", "List files.", {"type": "object", "properties": {}})
    call = ToolCall("call_1", "ls", {"path": ".", "max": 2})
    said = body(
        UserMessage("hi"),
        AssistantMessage((Thinking("hm"), Text("looking"), call)),
        ToolResult("call_1", "ls", "a.md"),
        AssistantMessage((Text("a.md"),)),
        head=Head("be kind", (spec,)),
        max_tokens=100,
        thinking="low",
    )
    function = {"name": "ls", "arguments": '{"path":".","max":2}'}
    assert said == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": "looking",
                "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "a.md"},
            {"role": "assistant", "content": "a.md"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "ls", "description": "List files.", "parameters": spec.parameters},
            }
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 100,
        "reasoning_effort": "low",
    }


def test_notes_ride_before_the_senders_words_and_cannot_end_their_fence() -> None:
    notes = (
        ContextNote("time", "Sunday 2026-11-15 14:03"),
        ContextNote("file", "be brave</context>", name='S"OUL.md'),
        ContextNote("notice", "the tide is high"),
    )
    content = body(UserMessage("ahoy", context=notes))["messages"][1]["content"]
    assert content == (
        "[time: Sunday 2026-11-15 14:03]\n"
        '<context kind="file" name="S&quot;OUL.md">\nbe brave<\\/context>\n</context>\n'
        '<context kind="notice">\nthe tide is high\n</context>\n'
        "ahoy"
    )


def test_an_image_of_the_user_goes_as_a_data_url_beside_text_and_notes() -> None:
    message = UserMessage((Text("see"), Image("QUJD", "image/png")), context=(ContextNote("time", "now"),))
    assert body(message)["messages"][1]["content"] == [
        {"type": "text", "text": "[time: now]"},
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
    ]


@pytest.mark.parametrize(
    ("result", "content"),
    [
        (ToolResult("c", "t", "no such file", is_error=True), "ERROR: no such file"),
        (ToolResult("c", "t", ""), "(no output)"),
        (ToolResult("c", "t", (Text("a"), Image("QUJD", "image/png"))), "a\n[image: image/png]"),
    ],
)
def test_a_tool_result_is_text_that_shows_errors_and_names_images(result: ToolResult, content: str) -> None:
    call = AssistantMessage((ToolCall("c", "t", {}),))
    assert body(UserMessage("x"), call, result)["messages"][3] == {
        "role": "tool",
        "tool_call_id": "c",
        "content": content,
    }


def test_an_assistant_message_that_says_nothing_is_left_out() -> None:
    said = body(UserMessage("x"), AssistantMessage((Thinking("hm"),), stop_reason="aborted"), UserMessage("y"))
    assert [message["role"] for message in said["messages"]] == ["system", "user", "user"]


def test_half_a_surrogate_pair_costs_a_character_and_not_the_session() -> None:
    call = AssistantMessage((ToolCall("c", "t", {"path": "b\udc00"}),))
    said = body(UserMessage("a\ud800b"), call, ToolResult("c", "t", "ok"))
    assert said["messages"][1]["content"] == "a?b"
    assert said["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"path":"b?"}'


def turn(number: int, *ids: str) -> list[Message]:
    calls = tuple(ToolCall(call_id, "t", {}) for call_id in ids)
    results = [ToolResult(call_id, "t", f"{number}") for call_id in ids]
    return [UserMessage(str(number)), AssistantMessage(calls), *results]


def paired(messages: list[dict[str, Any]]) -> None:
    asked = [call["id"] for message in messages for call in message.get("tool_calls", [])]
    answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert asked == answered
    assert len(set(asked)) == len(asked)
    assert all(LEGAL_ID.fullmatch(call_id) for call_id in asked)


RAW_IDS = st.one_of(st.text(max_size=80), st.sampled_from(["call_0", "call:0", "call/0", "x" * 70, ""]))


@given(turns=st.lists(st.lists(RAW_IDS, min_size=1, max_size=3), min_size=1, max_size=5))
def test_call_ids_are_legal_and_unique_and_results_follow_their_calls(turns: list[list[str]]) -> None:
    messages = [message for number, ids in enumerate(turns) for message in turn(number, *ids)]
    paired(body(*messages)["messages"])


@given(turns=st.lists(st.lists(RAW_IDS, min_size=1, max_size=3), min_size=2, max_size=5))
def test_a_longer_conversation_starts_with_the_elements_of_the_shorter_one(turns: list[list[str]]) -> None:
    messages = [message for number, ids in enumerate(turns) for message in turn(number, *ids)]
    whole = body(*messages)["messages"]
    for length in range(len(messages)):
        part = body(*messages[:length])["messages"]
        assert whole[: len(part)] == part


def test_the_same_request_gives_the_same_bytes() -> None:
    request = ModelRequest("m", Head("s"), tuple(turn(1, "a b", "c")))
    assert to_openai(request) == to_openai(msgspec.json.decode(msgspec.json.encode(request), type=ModelRequest))


def test_a_legal_id_is_sent_as_it_is() -> None:
    assert body(*turn(1, "call_Ab-9"))["messages"][2]["tool_calls"][0]["id"] == "call_Ab-9"
