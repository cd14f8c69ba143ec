"""Messages: their JSON is the one OpenClaw writes, whole lines of its transcripts are read."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from palinurus.domain.messages import (
    AssistantMessage,
    ContextNote,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)


def as_json(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(msgspec.json.encode(message))
    return found


@pytest.mark.parametrize(
    "message",
    [
        UserMessage("hi", 5),
        UserMessage((Text("look"), Image("aGk=", "image/png")), 5, context=(ContextNote("time", "now"),)),
        AssistantMessage((Thinking("hm", "sig"), Text("yes"), ToolCall("c1", "read", {"path": "a"})), "p", "m", "api"),
        AssistantMessage((), stop_reason="aborted", error_message="stopped"),
        ToolResult("c1", "read", "text", is_error=True, details={"lines": 3}),
    ],
)
def test_a_message_that_is_stored_and_read_is_the_same_message(message: Message) -> None:
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_blocks_and_fields_are_named_as_openclaw_names_them() -> None:
    reply = AssistantMessage((ToolCall("c1", "read", {}),), usage=Usage(1, 2, 3, 4), stop_reason="toolUse")
    assert as_json(reply) == {
        "role": "assistant",
        "content": [{"type": "toolCall", "id": "c1", "name": "read", "arguments": {}}],
        "usage": {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4},
        "stopReason": "toolUse",
    }
    result = ToolResult("c1", "read", "x", is_error=True)
    assert as_json(result) == {
        "role": "toolResult",
        "toolCallId": "c1",
        "toolName": "read",
        "content": "x",
        "isError": True,
    }


def test_fields_that_we_do_not_know_do_not_hinder_reading() -> None:
    line = """{"role": "assistant", "content": [{"type": "text", "text": "hi", "textSignature": "x"}], "api": "a",
      "usage": {"input": 1, "output": 2, "cost": {"total": 0.1}, "totalTokens": 3}, "stopReason": "stop", "diag": []}"""
    message = msgspec.json.decode(line, type=Message)
    assert isinstance(message, AssistantMessage)
    assert (message.text, message.usage.total) == ("hi", 3)


def test_text_of_a_message_is_its_words_without_thinking_and_pictures() -> None:
    assert AssistantMessage((Thinking("secretly"), Text("a"), Text("b"))).text == "ab"
    assert UserMessage((Text("a"), Image("", "image/png"), Text("b"))).text == "a\nb"


def test_usage_adds_up() -> None:
    assert Usage(1, 2, 3, 4) + Usage(10, 20, 30, 40) == Usage(11, 22, 33, 44)
    assert Usage(1, 2, 3, 4).total == 10
