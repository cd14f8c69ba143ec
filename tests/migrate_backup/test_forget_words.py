"""Taking words out of texts and of JSON: the words are gone, and whoever reads the rest still can."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from palinurus.domain.text_places import STRUCTURE, TOMBSTONE, Words, fold, forget_in_json
from palinurus.sessions.transcript import (
    Broken,
    CompactionEntry,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    LabelEntry,
    MessageEntry,
    Row,
    SessionInfo,
    decode_row,
    encode_entry,
)

CANARY = "Blue Heron"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("one\nthe blue heron\ntwo", "one\n[forgotten]\ntwo"),
        ("one\nthe BLUE  HERON\nblue heron\ntwo", "one\n[forgotten]\ntwo"),
        ("one\nthe blue\nheron came\ntwo", "one\n[forgotten]\ntwo"),
        ("nothing", "nothing"),
        ("blue heron", "[forgotten]"),
        ("", ""),
    ],
)
def test_lines_that_hold_the_words_go_as_a_whole(text: str, left: str) -> None:
    assert Words([CANARY]).without(text) == left


ENTRIES: list[Entry] = [
    MessageEntry(
        id="1",
        timestamp="t",
        message=UserMessage(
            (Text("the blue heron"), Image("aGk=", "image/png")), context=(ContextNote("file", CANARY, "SOUL.md"),)
        ),
    ),
    MessageEntry(
        id="2",
        timestamp="t",
        message=AssistantMessage(
            (
                Thinking("a blue heron", "signed"),
                Text("Blue Heron it is", "signed"),
                ToolCall("c", "write", {"name": "blue heron", "list": [{"blue heron": 1}]}, "signed"),
            ),
            stop_reason="toolUse",
        ),
    ),
    MessageEntry(
        id="3", timestamp="t", message=ToolResult("c", "write", "wrote blue heron", details={"to": "Blue heron"})
    ),
    CompactionEntry(
        id="4",
        timestamp="t",
        summary="## Decisions\n- blue heron\n- others",
        first_kept_entry_id="2",
        details={"runs": ["r"], "origin": "outside"},
    ),
    CustomMessageEntry(id="5", timestamp="t", custom_type="note", content="blue heron"),
    SessionInfo(id="6", timestamp="t", name="about the blue heron"),
    LabelEntry(id="7", timestamp="t", target_id="1", label="blue heron"),
    CustomEntry(id="8", timestamp="t", custom_type="theirs", data={"id": "blue heron"}),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
@pytest.mark.parametrize("whole", [False, True], ids=["words", "whole"])
def test_an_entry_keeps_its_kind_and_place_and_loses_the_words(entry: Entry, whole: bool) -> None:
    words = Words([] if whole else [CANARY])
    cleaned = forget_in_json(encode_entry(entry), words, whole=whole)
    assert "heron" not in cleaned.lower()
    assert "signed" not in cleaned
    read = decode_row(Row(entry.id, None, cleaned))
    assert not isinstance(read, Broken)
    assert (type(read), read.id) == (type(entry), entry.id)
    if isinstance(read, MessageEntry) and isinstance(entry, MessageEntry):
        assert type(read.message) is type(entry.message)
        if isinstance(read.message, AssistantMessage):
            assert [(call.id, call.name) for call in read.message.calls] == [("c", "write")]
    if isinstance(read, CompactionEntry):
        assert (read.first_kept_entry_id, (read.details or {})["runs"]) == ("2", ["r"])
    assert forget_in_json(cleaned, words, whole=whole) == cleaned  # a second time finds nothing


def test_what_has_none_of_the_words_is_the_very_same_text() -> None:
    odd = '{"type":"message",  "id":"1", "x": 1.0, "text": "caf\\u00e9 \\n"}'
    assert forget_in_json(odd, Words([CANARY])) is odd


def test_what_is_no_json_loses_its_lines_too() -> None:
    assert forget_in_json('{"broken": "the blue heron', Words([CANARY])) == TOMBSTONE


names = st.text(max_size=6).filter(lambda name: name not in STRUCTURE) | st.just("arguments")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.just("a Blue\n heron b"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner),
    max_leaves=12,
)


@given(values)
def test_no_json_keeps_the_words_in_any_value(value: Any) -> None:
    words = Words([CANARY])
    cleaned = forget_in_json(json.dumps({"message": value}), words)
    assert "heron" not in json.dumps(json.loads(cleaned)).lower()


@given(st.text(alphabet='ab \n"\\é', min_size=1, max_size=12).filter(str.strip))
def test_raw_bytes_are_found_plain_and_in_json(text: str) -> None:
    words = Words([text])
    assert words.held_in(text.encode())
    assert words.held_in(json.dumps(text).encode())
    assert words.held_in(json.dumps(text, ensure_ascii=False).encode())
    assert words.held_in(json.dumps(json.dumps(text)).encode())


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("café noir", "CAFE\u0301  Noir"),  # two signs for one letter
        ("cafe\u0301 noir", "Caf\u00e9\tNOIR"),
        ("straße 9", "STRASSE 9"),
        ("Villa Ada", "villa\u00a0\nADA"),
        ("Villa Ada", "Ｖｉｌｌａ Ａｄａ"),
        ("office nine", "o\ufb03ce\r\nnine"),
        ("Villa Ada", "Vil\u00adla Ada"),
        ("İzmir", "i\u0307zmir"),
    ],
)
def test_words_are_met_in_every_form_and_quoted_as_they_stand(query: str, text: str) -> None:
    words = Words([query])
    around = f"one secret\nbefore {text} behind\ntwo"
    assert words.hold(text)
    assert words.without(around) == f"one secret\n{TOMBSTONE}\ntwo"
    assert words.quotes(around) == [text]
    assert words.held_in(around.encode())
    assert words.held_in(json.dumps(around).encode())


@pytest.mark.parametrize(
    ("query", "text"),
    [("Villa Ada", "VillaAda"), ("Villa Ada", "the villa of Ada"), ("cafe", "café"), ("Villa Ada", "villas Ada")],
)
def test_what_merely_resembles_the_words_stays(query: str, text: str) -> None:
    words = Words([query])
    assert (words.hold(text), words.quotes(text), words.without(text)) == (False, [], text)


@given(st.text(min_size=1, max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_folding_keeps_every_line_where_it_is(query: str, before: str, behind: str) -> None:
    words = Words([query])
    text = f"{before}\n{query}\n{behind}"
    assert fold(text).count("\n") == text.count("\n")
    if words:
        assert words.hold(text)
        assert all(words.hold(quote) for quote in words.quotes(text))
        assert not words.hold(words.without(f"{query}\nx", stone=()))
