"""From stored messages to a request: valid whatever was stored, and growing only at its end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palinurus.context.assemble import NO_RESULT, assemble, violations
from palinurus.domain.messages import (
    AssistantMessage,
    ContextNote,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from support import examples

# Few ids, so that doubled calls, strange results and late ones are the rule.
CALL_IDS = st.sampled_from(["c1", "c2", "c3"])
USERS = st.builds(
    UserMessage,
    st.sampled_from(["hi", "", "go on"]),
    context=st.sampled_from([(), (ContextNote("file", "new text", "SOUL.md", "d1"), ContextNote("time", "now"))]),
)
BLOCKS = st.one_of(
    st.builds(Text, st.sampled_from(["", "yes"])),
    st.builds(Thinking, st.just("hm")),
    st.builds(ToolCall, CALL_IDS, st.just("read"), st.just({})),
)
REPLIES = st.builds(
    AssistantMessage,
    st.lists(BLOCKS, max_size=4).map(tuple),
    stop_reason=st.sampled_from(["stop", "toolUse", "error", "aborted"]),
    error_message=st.sampled_from([None, "network: gone"]),
)
RESULTS = st.builds(ToolResult, CALL_IDS, st.just("read"), st.sampled_from(["", "text"]))
STORIES = st.lists(st.one_of(USERS, REPLIES, RESULTS, RESULTS), max_size=14)


@settings(max_examples=examples(400))
@given(STORIES, st.integers(0, 14))
def test_whatever_was_stored_the_request_is_one_that_no_provider_refuses(story: list[Message], start: int) -> None:
    sent = assemble(story, epoch_start=min(start, len(story)))
    assert violations(sent) == []
    assert all(not isinstance(message, AssistantMessage) or message.text or message.calls for message in sent)


@settings(max_examples=examples(400))
@given(STORIES, st.integers(0, 14), st.data())
def test_the_request_for_a_longer_story_begins_with_that_for_the_shorter_one(
    story: list[Message], start: int, data: st.DataObject
) -> None:
    # A request is never sent between two results of one reply.
    ends = [n for n in range(len(story) + 1) if n == len(story) or not isinstance(story[n], ToolResult)]
    shorter = story[: data.draw(st.sampled_from(ends))]
    start = min(start, len(shorter))
    earlier, later = assemble(shorter, epoch_start=start), assemble(story, epoch_start=start)
    assert later[: len(earlier)] == earlier


@given(STORIES)
def test_assembling_what_was_assembled_changes_nothing(story: list[Message]) -> None:
    once = assemble(story)
    assert assemble(once) == once


def asks(*ids: str) -> AssistantMessage:
    return AssistantMessage(tuple(ToolCall(name, "read", {}) for name in ids))


HI, YES = UserMessage("hi"), AssistantMessage((Text("yes"),))


def test_a_good_story_is_sent_as_it_is() -> None:
    story = [HI, asks("a", "b"), ToolResult("a", "read", "A"), ToolResult("b", "read", "B"), YES, HI]
    assert list(assemble(story)) == story


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    sent = assemble([HI, asks("a", "b"), ToolResult("b", "read", "B"), HI])
    assert [message.text for message in sent[2:4]] == [NO_RESULT, "B"]
    assert sent[2] == ToolResult("a", "read", NO_RESULT, is_error=True)


@pytest.mark.parametrize(
    "stray",
    [ToolResult("a", "read", "again"), ToolResult("z", "read", "whose?")],
    ids=["second result", "result of nobody"],
)
def test_a_result_that_answers_nothing_is_left_out(stray: ToolResult) -> None:
    story = [HI, asks("a"), ToolResult("a", "read", "A"), stray, YES, HI]
    assert stray not in assemble(story)
    assert violations(assemble(story)) == []


def test_a_result_that_comes_too_late_does_not_move_what_was_sent() -> None:
    story: list[Message] = [HI, asks("a"), HI, ToolResult("a", "read", "late"), YES]
    assert [message.text for message in assemble(story)[:3]] == ["hi", "", NO_RESULT]
    assert "late" not in [message.text for message in assemble(story)]


def test_two_users_in_a_row_stay_two_messages() -> None:
    sent = assemble([UserMessage("one"), UserMessage("two")])
    assert [type(message) for message in sent] == [UserMessage, AssistantMessage, UserMessage]
    assert (sent[0].text, sent[2].text) == ("one", "two")


def test_a_reply_that_failed_with_nothing_said_says_why() -> None:
    failed = AssistantMessage((), stop_reason="error", error_message="network: gone")
    assert assemble([HI, failed, HI])[1].text == "(no reply: network: gone)"


def test_notes_on_files_older_than_the_head_are_left_out_and_newer_ones_stay() -> None:
    noted = UserMessage("hi", context=(ContextNote("time", "t"), ContextNote("file", "text", "SOUL.md", "d")))
    before, after = assemble([noted, YES, noted], epoch_start=2)[::2]
    assert isinstance(before, UserMessage)
    assert isinstance(after, UserMessage)
    assert [note.kind for note in before.context] == ["time"]
    assert [note.kind for note in after.context] == ["time", "file"]


@pytest.mark.parametrize(
    ("story", "wrong"),
    [
        ([YES], "first message"),
        ([HI, HI], "nobody answered"),
        ([HI, YES, YES], "two replies"),
        ([HI, asks("a")], "no result"),
        ([HI, asks("a"), HI], "no result"),
        ([HI, ToolResult("a", "read", "")], "nobody waits"),
        ([HI, asks("a", "a"), ToolResult("a", "read", ""), ToolResult("a", "read", "")], "one id"),
    ],
)
def test_what_a_provider_would_refuse_is_seen(story: list[Message], wrong: str) -> None:
    assert any(wrong in line for line in violations(story))
