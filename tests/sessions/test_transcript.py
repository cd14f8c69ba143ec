"""Transcript entries: OpenClaw's lines are read, broken rows cost a line, and the tree is walked whatever its state."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.messages import AssistantMessage, Text, UserMessage
from palinurus.sessions.transcript import (
    BranchSummaryEntry,
    Broken,
    CompactionEntry,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    LabelEntry,
    MessageEntry,
    ModelChange,
    ResetEntry,
    Row,
    SessionHeader,
    SessionInfo,
    ThinkingLevelChange,
    branch,
    decode_row,
    encode_entry,
    messages_of,
    timestamp,
)

T = "2026-11-15T09:00:00.000Z"
EVERY_KIND: list[Entry] = [
    SessionHeader("s", T),
    MessageEntry("a", T, "s", message=UserMessage("hi")),
    CompactionEntry("b", T, "a", summary="so far", first_kept_entry_id="a", tokens_before=9),
    BranchSummaryEntry("c", T, "b", from_id="a", summary="elsewhere"),
    CustomEntry("d", T, "c", custom_type="x", data={"n": [1]}),
    CustomMessageEntry("e", T, "d", custom_type="x", content="note", display=True),
    ModelChange("f", T, "e", provider="p", model_id="m"),
    ThinkingLevelChange("g", T, "f", thinking_level="high"),
    LabelEntry("h", T, "g", target_id="a", label="start"),
    SessionInfo("i", T, "h", name="about boats"),
    ResetEntry("j", T, "i", reason="new"),
]


def row(entry: Entry) -> Row:
    return Row(entry.id, entry.parent_id, encode_entry(entry))


def said(entry_id: str, parent: str | None, text: str = "") -> MessageEntry:
    return MessageEntry(entry_id, T, parent, message=UserMessage(text or entry_id))


@pytest.mark.parametrize("entry", EVERY_KIND, ids=lambda entry: str(entry.__struct_config__.tag))
def test_an_entry_that_is_stored_and_read_is_the_same_entry(entry: Entry) -> None:
    assert decode_row(row(entry)) == entry


def test_the_kinds_are_those_of_the_issue_and_no_other() -> None:
    kinds = {json.loads(encode_entry(entry))["type"] for entry in EVERY_KIND}
    named = """session, message, compaction, branch_summary, custom, custom_message, model_change,
    thinking_level_change, label, session_info, reset"""
    assert kinds == {name.strip() for name in named.split(",")}


def test_a_line_of_an_openclaw_transcript_is_read_as_it_is() -> None:
    line = """{"type":"message","id":"a1b2c3d4","parentId":null,"timestamp":"2026-02-01T10:00:00.000Z",
      "message":{"role":"assistant","content":[{"type":"text","text":"Ahoy"}],"api":"x","provider":"p","model":"m",
      "usage":{"input":3,"output":1,"cacheRead":0,"cacheWrite":0,"cost":{"total":0}},"stopReason":"stop"}}"""
    entry = decode_row(Row("a1b2c3d4", None, line))
    assert isinstance(entry, MessageEntry)
    assert isinstance(entry.message, AssistantMessage)
    assert entry.message.content == (Text("Ahoy"),)


@pytest.mark.parametrize(
    "payload",
    [
        *("", "{", "null", "[]", '"text"', "\x00", '{"type": 3}'),
        '{"type":"leaf","id":"x","timestamp":"t"}',
        '{"type":"message","id":"x"}',
        '{"type":"message","id":"x","timestamp":"t","message":{"role":"user","content":7}}',
    ],
)
def test_a_row_that_nobody_can_read_is_a_broken_entry_with_a_reason(payload: str) -> None:
    found = decode_row(Row("x", "p", payload))
    assert isinstance(found, Broken)
    assert (found.id, found.parent_id) == ("x", "p")
    assert found.reason


@given(st.text(max_size=80))
def test_reading_a_row_never_raises(payload: str) -> None:
    decode_row(Row("x", None, payload))


def test_a_branch_leaves_out_what_another_branch_said() -> None:
    entries = [said("a", None), said("b", "a"), said("left", "b"), said("right", "b"), said("end", "right")]
    assert [entry.id for entry in branch(entries)] == ["a", "b", "right", "end"]


def test_a_missing_parent_is_replaced_by_the_entry_before() -> None:
    entries = [said("a", None), said("b", "gone"), said("c", "b")]
    assert [entry.id for entry in branch(entries)] == ["a", "b", "c"]


def test_entries_without_links_are_read_in_their_order() -> None:
    entries = [said("a", None), said("b", None), said("c", None)]
    assert [entry.id for entry in branch(entries)] == ["a", "b", "c"]


def test_a_circle_of_parents_loses_nothing_and_ends() -> None:
    entries = [said("a", "c"), said("b", "a"), said("c", "b"), said("d", "d")]
    assert [entry.id for entry in branch(entries)] == ["a", "b", "c", "d"]


def test_a_broken_row_in_the_middle_keeps_both_sides() -> None:
    entries = [said("a", None), Broken("b", "a", "no JSON"), said("c", "b")]
    assert [entry.id for entry in branch(entries)] == ["a", "b", "c"]
    assert [message.text for message in messages_of(branch(entries))] == ["a", "c"]


IDS = st.sampled_from("abcdef")


@given(st.lists(st.tuples(IDS, st.one_of(st.none(), IDS, st.just("gone"))), max_size=12))
def test_any_links_at_all_give_a_path_in_order_that_ends_at_the_last_entry(links: list[tuple[str, str | None]]) -> None:
    entries = [said(name, parent, f"{index}") for index, (name, parent) in enumerate(links)]
    path = branch(entries)
    order = [int(message.text) for message in messages_of(path)]
    assert order == sorted(set(order))
    assert path[-1:] == entries[-1:]


def test_times_are_utc_with_milliseconds() -> None:
    assert timestamp(1_794_733_200_007) == "2026-11-15T09:00:00.007Z"
