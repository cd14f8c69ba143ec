"""Scout tells what memory's tools have found: quoted, cited, with the days that were meant, and nothing else."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from palinurus.domain.messages import AssistantMessage, Message, ToolCall, ToolResult, UserMessage
from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import Head, ModelRequest
from palinurus.providers.scout.quotes import MAX_QUOTE, split_units
from palinurus.providers.scout.scout import respond

EARLIER: tuple[Message, ...] = (UserMessage("hi"), AssistantMessage(()))
MONDAY = date(2026, 11, 16)
TOOLS = tuple(ToolSpec(name, "", {}) for name in ("memory_write", "memory_search", "memory_get"))


def hit(path: str, line: int, snippet: str, score: float = 0.9, *, cited: bool = True) -> dict[str, Any]:
    end = line + snippet.count("\n")
    told = {"path": path, "startLine": line, "endLine": end, "score": score, "snippet": snippet}
    return told | ({"citation": f"{path}#L{line}"} if cited else {})


def answer(text: str, *hits: dict[str, Any], read: dict[str, str] | None = None, **told: Any) -> str:
    """What is said after a search with these hits, and after these files were read."""
    results = [("memory_search", json.dumps({"results": hits, **told}))]
    results += [("memory_get", json.dumps({"path": path, "text": text})) for path, text in (read or {}).items()]
    return told_of(text, *results)


def told_of(text: str, *results: tuple[str, str]) -> str:
    called = AssistantMessage(tuple(ToolCall(f"c{number}", name, {}) for number, (name, _) in enumerate(results)))
    came = tuple(ToolResult(f"c{number}", name, said) for number, (name, said) in enumerate(results))
    messages: tuple[Message, ...] = (*EARLIER, UserMessage(text), called, *came)
    said = respond(ModelRequest("scout", Head("s", TOOLS), messages), MONDAY)
    assert isinstance(said, str)
    return said


def test_the_best_line_is_quoted_with_its_place() -> None:
    said = answer(
        "what colour is my bicycle?",
        hit("memory/2026-11-15.md", 3, "- my bicycle is green"),
        hit("memory/2026-11-14.md", 9, "- the garage is full", 0.8),
    )
    assert said == "From my notes:\n> my bicycle is green (memory/2026-11-15.md#L3)"


def test_relative_days_mean_what_they_meant_when_they_were_written() -> None:
    said = answer("when did I see the dentist?", hit("memory/2026-11-14.md", 5, "- saw the dentist yesterday"))
    assert said.endswith("> saw the dentist yesterday (2026-11-13) (memory/2026-11-14.md#L5)")


def test_a_line_with_a_date_of_its_own_counts_from_that() -> None:
    said = answer("when did Anna call?", hit("MEMORY.md", 5, "- 2026-03-02: Anna called yesterday"))
    assert "yesterday (2026-03-01)" in said


def test_a_file_without_a_date_resolves_nothing() -> None:
    said = answer("when did Anna call?", hit("MEMORY.md", 5, "- Anna called yesterday"))
    assert said == "From my notes:\n> Anna called yesterday (MEMORY.md#L5)"


def test_of_a_long_snippet_the_line_that_answers_is_cited() -> None:
    snippet = "- bought milk\n- Anna lives in Oslo\n- rain"
    said = answer("where does Anna live?", hit("memory/2026-11-14.md", 7, snippet))
    assert said == "From my notes:\n> Anna lives in Oslo (memory/2026-11-14.md#L8)"


def test_a_wrapped_sentence_is_quoted_whole_and_cited_by_its_lines() -> None:
    snippet = "Anna told me over a long dinner at the harbour that she\nlives in Oslo now."
    said = answer("where does Anna live?", hit("MEMORY.md", 4, snippet))
    assert said.endswith("that she lives in Oslo now. (MEMORY.md#L4-L5)")


def test_of_a_long_paragraph_the_sentence_that_answers_is_quoted() -> None:
    text = f"{'The weather was fine. ' * 30}Anna lives in Oslo. {'It rained a lot. ' * 30}"
    said = answer("where does Anna live?", hit("MEMORY.md", 4, text))
    assert "> … Anna lives in Oslo. … (MEMORY.md#L4)" in said
    assert len(said) < MAX_QUOTE


def test_a_high_score_alone_is_no_reason_to_quote() -> None:
    said = answer("when is Zebulon's birthday?", hit("memory/2026-11-15.md", 3, "- Anna's birthday is in May", 1.0))
    assert said == "I find nothing about zebulon, birthday in my notes."


def test_a_heading_tells_whom_a_line_is_about() -> None:
    found = hit("memory/people.md", 5, "- lives in Oslo") | {"under": "Friends > Anna"}
    said = answer("where does Anna live?", found, hit("memory/people.md", 9, "- lives in Rome") | {"under": "Bob"})
    assert said == "From my notes:\n> lives in Oslo (memory/people.md#L5, under Friends > Anna)"


def test_without_citations_no_place_is_told() -> None:
    said = answer("what colour is my bicycle?", hit("MEMORY.md", 3, "my bicycle is green", cited=False))
    assert said == "From my notes:\n> my bicycle is green"


def test_a_day_is_told_in_the_order_in_which_it_was_noted() -> None:
    day = "# 2026-11-10\n\n- swam in the lake\n- called Bob\n"
    said = answer(
        "what did I do last Tuesday?",
        hit("memory/2026-11-10.md", 4, "- called Bob"),
        hit("memory/2026-11-03.md", 3, "- a Tuesday a week before"),
        hit("memory/2026-11-10-trip.md", 3, "- packed the tent"),
        read={"memory/2026-11-10.md": day},
    )
    assert said.splitlines() == [
        "From my notes of 2026-11-10:",
        "> packed the tent (memory/2026-11-10-trip.md#L3)",
        "> swam in the lake (memory/2026-11-10.md#L3)",
        "> called Bob (memory/2026-11-10.md#L4)",
    ]


def test_what_will_be_is_found_where_it_was_announced() -> None:
    notes = {"memory/2026-11-16.md": "# 2026-11-16\n\n- dentist tomorrow at nine\n- rain\n"}
    said = answer("what is on tomorrow?", read=notes)
    assert said == ("From my notes of 2026-11-17:\n> dentist tomorrow (2026-11-17) at nine (memory/2026-11-16.md#L3)")


def test_of_a_day_without_notes_nothing_is_told() -> None:
    said = answer("what did I do last Tuesday?", hit("memory/2026-11-03.md", 3, "- swam"), read={"memory/x.md": ""})
    assert said == "I find nothing of 2026-11-10 in my notes."


def test_the_same_on_another_day_is_told_with_its_day() -> None:
    said = answer("did Anna call yesterday?", hit("memory/2026-11-03.md", 3, "- Anna called about the boat"))
    assert said == (
        "I find nothing of 2026-11-15. Of other days:\n> Anna called about the boat (memory/2026-11-03.md#L3)"
    )


def test_what_is_known_about_the_person_leaves_out_what_nobody_has_filled_in() -> None:
    user = "# Your person\n\n- Name: Kai\n- Call them:\n\nWhat they care about, work on and dislike, learned in "
    user += "passing and kept short: a help, not a dossier.\n"
    said = told_of("what do you know about me?", ("memory_get", json.dumps({"path": "USER.md", "text": user})))
    assert said == "From my notes about you:\n> Name: Kai (USER.md#L3)"


@pytest.mark.parametrize(
    ("freshness", "remark"),
    [
        (
            {"state": "stale", "behind": ["memory/a.md"], "behindCount": 3, "compared": 9},
            "(Not fresh: 3 changed files (memory/a.md) could not be read in time)",
        ),
        (
            {"state": "unswept", "compared": 0, "why": "no time"},
            "(Not fresh: there was no time to see what has changed: no time)",
        ),
    ],
)
def test_a_search_that_was_not_fresh_says_so(freshness: dict[str, Any], remark: str) -> None:
    found = answer("what colour is my bicycle?", hit("MEMORY.md", 3, "my bicycle is green"), freshness=freshness)
    assert found.splitlines()[-1] == remark
    assert answer("what colour is my bicycle?", freshness=freshness).splitlines() == [
        "I find nothing about colour, bicycle in my notes.",
        remark,
    ]


def test_nothing_found_without_all_vectors_says_what_may_be_missing() -> None:
    fresh = {"state": "fresh", "compared": 9, "vectors": "partial"}
    said = answer("what colour is my bicycle?", freshness=fresh)
    assert "other words with the same meaning may be missing" in said
    assert "missed" not in answer("bicycle?", hit("MEMORY.md", 3, "my bicycle is green"), freshness=fresh)


def test_who_may_not_search_is_told_why() -> None:
    assert answer("where does Anna live?", refused="memory is private") == "I may not look there: memory is private."


@pytest.mark.parametrize("result", ["", "{", '{"results": [{"path": 3}]}', "[]", '{"results": "x"}'])
def test_an_answer_that_cannot_be_read_is_no_answer(result: str) -> None:
    said = told_of("where does Anna live?", ("memory_search", result))
    assert said.startswith("I find nothing about anna, live in my notes.\n(Not fresh")


@pytest.mark.parametrize(
    ("question", "line"),
    [
        ("我的自行车是什么颜色？", "我的自行车是绿色的"),
        ("私の自転車は何色ですか", "自転車は緑色です"),
    ],
)
def test_chinese_and_japanese_are_quoted_as_they_are(question: str, line: str) -> None:
    said = answer(question, hit("memory/2026-11-15.md", 3, f"- {line}"), hit("MEMORY.md", 1, "猫在屋里睡觉"))
    assert said == f"From my notes:\n> {line} (memory/2026-11-15.md#L3)"


def test_chinese_days_are_resolved() -> None:
    said = answer("小明什么时候来的？", hit("memory/2026-11-14.md", 3, "- 小明昨天来了"))
    assert "昨天 (2026-11-13)" in said


def test_list_items_headings_and_code_fences_part_a_text() -> None:
    text = "# Trip\n- one\n  more of one\n- two\n\n```\ncode\n```\nAnna: hello\nBob: hi"
    assert [(line.number, line.last, line.words, line.heading) for line in split_units("a.md", 10, text)] == [
        (11, 12, "one more of one", "Trip"),
        (13, 0, "two", "Trip"),
        (16, 0, "code", "Trip"),
        (18, 0, "Anna: hello", "Trip"),
        (19, 0, "Bob: hi", "Trip"),
    ]
