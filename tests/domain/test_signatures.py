"""Signatures of providers survive in a transcript, under the names that OpenClaw gives them."""

from __future__ import annotations

import json

import msgspec
import pytest

from palinurus.domain.messages import AssistantMessage, Text, Thinking, ToolCall


@pytest.mark.parametrize(
    ("block", "stored"),
    [
        (Text("a"), {"type": "text", "text": "a"}),
        (Text("", "s"), {"type": "text", "text": "", "textSignature": "s"}),
        (
            Thinking("", "s", redacted=True),
            {"type": "thinking", "thinking": "", "thinkingSignature": "s", "redacted": True},
        ),
        (
            ToolCall("c", "t", {}, "s"),
            {"type": "toolCall", "id": "c", "name": "t", "arguments": {}, "thoughtSignature": "s"},
        ),
        (ToolCall("c", "t", {}), {"type": "toolCall", "id": "c", "name": "t", "arguments": {}}),
    ],
)
def test_a_block_is_stored_with_its_signature_and_read_back_the_same(
    block: Text | Thinking | ToolCall, stored: dict[str, object]
) -> None:
    row = msgspec.json.encode(AssistantMessage((block,)))
    assert json.loads(row)["content"] == [stored]
    assert msgspec.json.decode(row, type=AssistantMessage).content == (block,)
