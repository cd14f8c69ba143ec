"""The token estimate: sane for prose, JSON, logs and CJK.

The bounds come from real vocabularies as measured for design/dependencies.md: characters per token are about 4.2 in
English prose, 2.2 in JSON, 1.9 in logs and 1.4 in Chinese, where older vocabularies need one for each character. The
estimate may lie a quarter to either side, and for Chinese on the high side.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.context.budget import IMAGE_TOKENS, message_tokens, rough_tokens
from palinurus.domain.messages import (
    AssistantMessage,
    ContextNote,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from palinurus.text.tokens import estimate_tokens

PROSE = (
    "The harbour was quiet when we came in. Nobody had lit the lamps along the quay, and the water lay so still that "
    "the boats seemed to hang in the air above their own reflections. We tied up behind the grain barge, shared the "
    "last of the bread, and talked until morning about the places we had not yet seen. "
) * 5
JSON = json.dumps(
    [
        {"id": f"usr_{n:08x}", "name": f"User {n}", "active": n % 2 == 0, "score": n * 1.25, "tags": ["a1", "b2"]}
        for n in range(40)
    ]
)
LOG = "\n".join(
    f"2026-11-15T09:{n:02d}:17.{n * 37:03d}Z INFO [job-{n % 4}] GET /api/v1/items/{n * 7919} 200 {n}ms pid={4000 + n}"
    for n in range(25)
)
CHINESE = "港口很安静，没有人点亮码头上的灯，水面平静得让船只仿佛悬浮在自己的倒影之上。" * 8


@pytest.mark.parametrize(
    ("text", "per_token", "low", "high"),
    [(PROSE, 4.2, 0.75, 1.25), (JSON, 2.2, 0.75, 1.25), (LOG, 1.9, 0.75, 1.25), (CHINESE, 1.4, 0.9, 1.6)],
    ids=["prose", "json", "log", "cjk"],
)
def test_the_estimate_is_near_what_vocabularies_say(text: str, per_token: float, low: float, high: float) -> None:
    assert low <= estimate_tokens(text) * per_token / len(text) <= high


@pytest.mark.parametrize("text", [JSON, LOG, CHINESE], ids=["json", "log", "cjk"])
def test_where_characters_by_four_is_far_too_low_the_estimate_is_not(text: str) -> None:
    assert estimate_tokens(text) > 1.4 * len(text) / 4


def test_nothing_costs_nothing_and_more_text_costs_more() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens("a") == 1
    assert estimate_tokens(PROSE * 2) == pytest.approx(2 * estimate_tokens(PROSE), rel=0.01)


def test_a_long_text_is_estimated_in_no_time() -> None:
    assert estimate_tokens("x" * 1_000_000) > 100_000


def test_everything_that_is_sent_counts_and_thinking_does_not() -> None:
    plain = message_tokens(UserMessage("hello there"))
    assert message_tokens(UserMessage("hello there", context=(ContextNote("file", PROSE),))) > plain + 200
    assert message_tokens(UserMessage((Text("hello there"), Image("aGk=", "image/png")))) == plain + IMAGE_TOKENS
    assert message_tokens(AssistantMessage((Thinking(PROSE), Text("hello there")))) == plain
    assert message_tokens(AssistantMessage((ToolCall("c", "note", {"text": PROSE}),))) > 200
    assert message_tokens(ToolResult("c", "read", PROSE)) > 200


@given(st.text(st.characters(max_codepoint=0x7F), max_size=200))
def test_ascii_is_counted_as_it_is_among_other_letters(text: str) -> None:
    among = estimate_tokens(f"{text}\n漢\n")  # the other way of counting, for any script
    assert among - estimate_tokens(f"{text}\nx\n") in (0, 1)  # what 漢 costs more than x


@pytest.mark.parametrize(
    "text",
    [
        "Please book berth 14 for Thursday, and tell Ole that the mast comes down on Friday morning. " * 5,
        '{"id": 4711, "name": "Ole", "berths": [14, 15], "paid": true}\n' * 5,
        "请在星期四预订十四号泊位，并告诉奥勒星期五早上桅杆会降下来。" * 5,
    ],
)
def test_by_their_length_messages_have_about_as_many_tokens(text: str) -> None:
    note = ContextNote("time", "now")
    for message in (
        UserMessage(text, context=(note,)),
        UserMessage((Text(text),)),
        AssistantMessage((Thinking("hm " * 400), Text(text))),
        ToolResult("c", "t", text),
    ):
        assert 0.5 < rough_tokens(message) / message_tokens(message) < 2


def test_what_is_more_than_text_is_counted_exactly() -> None:
    for message in (
        UserMessage((Text("see"), Image("AAAA", "image/png"))),
        AssistantMessage((ToolCall("c", "read", {"path": "x" * 100}),)),
    ):
        assert rough_tokens(message) == message_tokens(message)
