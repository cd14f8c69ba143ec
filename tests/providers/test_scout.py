"""Scout answers by real tool calls and by nothing that the tools did not say."""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Any

import pytest

from palinurus.domain.messages import AssistantMessage, Message, ToolCall, ToolResult, UserMessage
from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import Head, ModelRequest, ReplyDone, TextDelta
from palinurus.providers.scout.quoting import Line, best_lines, cited_lines, query_of, stem
from palinurus.providers.scout.scout import NO_MODEL, Intent, Scout, respond, understand

ALL = ("note", "grep", "ls", "read")
EARLIER: tuple[Message, ...] = (UserMessage("hi"), AssistantMessage(()))


class StoppedClock:
    @property
    def zone(self) -> tzinfo:
        return UTC

    def now_ms(self) -> int:
        return 0xABC


def request(*messages: Message, tools: tuple[str, ...] = ALL) -> ModelRequest:
    return ModelRequest("scout", Head("s", tuple(ToolSpec(name, "", {}) for name in tools)), messages)


def answer(text: str, tool: str, result: str, *, is_error: bool = False, earlier: tuple[Message, ...] = EARLIER) -> str:
    call = AssistantMessage((ToolCall("c", tool, {}),))
    said = respond(request(*earlier, UserMessage(text), call, ToolResult("c", tool, result, is_error=is_error)))
    assert isinstance(said, str)
    return said


@pytest.mark.parametrize(
    ("text", "tool", "arguments"),
    [
        ("remember that my bicycle is green", "note", {"text": "my bicycle is green"}),
        ("Please remember: call Bob", "note", {"text": "call Bob"}),
        ("don't forget to buy milk", "note", {"text": "to buy milk"}),
        ("Don’t forget the milk", "note", {"text": "the milk"}),
        ("note down the door code is 1234", "note", {"text": "the door code is 1234"}),
        ("can you remember that I like tea?", "note", {"text": "I like tea"}),
        ("记住我的自行车是绿色的", "note", {"text": "我的自行车是绿色的"}),
        ("Merk dir, dass der Zug um acht geht", "note", {"text": "der Zug um acht geht"}),
        ("list files", "ls", {}),
        ("What files are there?", "ls", {}),
        ("list the files in memory", "ls", {"path": "memory"}),
        ("ls skills", "ls", {"path": "skills"}),
        ("show my notes", "ls", {"path": "memory"}),
        ("read MEMORY.md", "read", {"path": "MEMORY.md"}),
        ("show me `memory/2026-11-15.md`", "read", {"path": "memory/2026-11-15.md"}),
        ("What's in USER.md?", "read", {"path": "USER.md"}),
    ],
)
def test_a_command_becomes_a_tool_call(text: str, tool: str, arguments: dict[str, Any]) -> None:
    assert respond(request(UserMessage(text))) == Intent(tool, arguments)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("what colour is my bicycle?", r"\bcolor|\bcolour|\bbicycl"),
        ("do you remember my dog's name?", r"\bdog|\bnam"),
        ("remember what the door code is?", r"\bdoor|\bcod"),
        ("notes about C++ and (brackets)", r"\bbracket"),
        ("我的自行车是什么颜色", "的自|自行|行车|车是|么颜|颜色"),
        ("강아지 이름", "강아|아지|이름"),
    ],
)
def test_a_question_becomes_a_search_for_its_content_words(text: str, pattern: str) -> None:
    assert respond(request(UserMessage(text))) == Intent("grep", {"pattern": pattern, "max": 200})


def test_a_very_long_question_makes_a_pattern_that_the_tool_accepts() -> None:
    intent = understand(" ".join(f"word{number}" for number in range(500)), set(ALL))
    assert 100 < len(intent.arguments["pattern"]) <= 480


def test_a_note_is_confirmed_with_its_place_and_its_stored_words() -> None:
    said = answer("remember that x", "note", "noted in memory/2026-11-15.md#L3: - my bicycle is green")
    assert said == "Noted in memory/2026-11-15.md#L3: my bicycle is green"


def test_a_question_is_answered_by_quoting_the_line_with_its_place() -> None:
    found = "memory/2026-11-15.md#L3: - my bicycle is green\nno remark"
    said = answer("what colour is my bicycle?", "grep", found)
    assert said == "From my notes:\n> my bicycle is green (memory/2026-11-15.md#L3)"


@pytest.mark.parametrize(
    "found",
    [
        "no line in . matches '\\bbicycl'",
        "",
        "AGENTS.md#L3: a bicycle is kept in templates",  # templates know nothing of the person
        "USER.md#L2: - Bicycle, colour:",  # an empty field answers nothing
        "USER.md#L2: - **Colour of the house:**",
        "memory/2026-11-15.md#L2: - bicyclist clubs",  # found by its beginning, but another word
    ],
)
def test_what_is_not_found_is_not_invented(found: str) -> None:
    said = answer("what colour is my bicycle?", "grep", found)
    assert said == "I find nothing about colour, bicycle in my notes."


def test_a_search_that_was_cut_short_says_so() -> None:
    found = "memory/a.md#L1: my bicycle is green\n[more than 200 lines match: narrow the pattern or the path]"
    assert "a rarer word" in answer("my bicycle?", "grep", found)


@pytest.mark.parametrize("tool", ALL)
def test_a_tool_that_fails_is_told_and_not_glossed_over(tool: str) -> None:
    said = answer("remember x", tool, "the disk\nis full", is_error=True)
    assert said.startswith("I could not ")
    assert said.endswith(": the disk is full")


def test_files_are_listed_and_read_out_of_the_result() -> None:
    assert answer("list files", "ls", "AGENTS.md\nmemory/") == "I see:\nAGENTS.md\nmemory/"
    long = "a.md (lines 1-99 of 99)\n" + "\n".join(f"{number}| x" for number in range(1, 100))
    said = answer("read a.md", "read", long)
    assert said.startswith("a.md (lines 1-99 of 99)\n1| x\n")
    assert said.endswith("… and 40 more lines")


@pytest.mark.parametrize("text", ["hi", "Hello there!", "help", "what can you do?", ""])
def test_greetings_and_help_tell_what_it_can_do_and_how_to_get_a_model(text: str) -> None:
    said = respond(request(*EARLIER, UserMessage(text)))
    assert isinstance(said, str)
    assert said.startswith("What I can do:\n- ")
    assert NO_MODEL in said
    assert "\n" not in NO_MODEL


def test_help_names_only_what_the_offered_tools_can_do() -> None:
    said = respond(request(UserMessage("help"), tools=("ls",)))
    assert isinstance(said, str)
    assert "list files" in said
    assert "remember" not in said


def test_only_the_first_reply_of_a_conversation_explains_itself() -> None:
    found = "memory/a.md#L1: tea is hot"
    assert answer("tea?", "grep", found, earlier=()).endswith(NO_MODEL)
    assert NO_MODEL not in answer("tea?", "grep", found)


def test_without_the_tool_it_says_that_it_cannot() -> None:
    said = respond(request(*EARLIER, UserMessage("remember that x"), tools=("ls",)))
    assert said == "I cannot do that here: the tool `note` is not offered in this session."


def test_a_question_without_content_words_asks_back() -> None:
    said = respond(request(*EARLIER, UserMessage("what is it?")))
    assert isinstance(said, str)
    assert said.startswith("Ask me with a word")


def test_results_of_an_earlier_turn_are_never_quoted() -> None:
    earlier = (
        *EARLIER,
        UserMessage("tea?"),
        AssistantMessage((ToolCall("c", "grep", {}),)),
        ToolResult("c", "grep", "memory/a.md#L1: tea is hot"),
        AssistantMessage(()),
    )
    assert isinstance(respond(request(*earlier, UserMessage("what about tea?"))), Intent)


async def test_the_stream_ends_with_the_call_or_with_the_words() -> None:
    scout = Scout(StoppedClock())
    [called] = [event async for event in scout.stream(request(UserMessage("list files")))]
    assert isinstance(called, ReplyDone)
    assert called.message.stop_reason == "toolUse"
    assert called.message.calls == (ToolCall("scout_abc_1", "ls", {}),)
    words, done = [event async for event in scout.stream(request(UserMessage("hi")))]
    assert isinstance(words, TextDelta)
    assert isinstance(done, ReplyDone)
    assert (done.message.text, done.message.stop_reason) == (words.text, "stop")


@pytest.mark.parametrize(
    "forms",
    ["colour colours color", "bicycle bicycles", "berry berries", "box boxes", "run runs running", "like likes liked",
     "paint paints painted painting", "city cities", "glass glasses", "hour hours", "speed speeds", "day days"],
)  # fmt: skip
def test_forms_of_a_word_share_a_stem(forms: str) -> None:
    assert len({stem(form) for form in forms.split()}) == 1


@pytest.mark.parametrize(("one", "other"), [("wedding", "wednesday"), ("tea", "teacher")])
def test_other_words_do_not_share_a_stem(one: str, other: str) -> None:
    assert stem(one) != stem(other)


def ranked(question: str, *lines: str) -> list[str]:
    return [line.place for line in best_lines(query_of(question), cited_lines("\n".join(lines)))]


def test_the_line_that_holds_more_of_the_question_comes_first() -> None:
    assert ranked(
        "which train goes to Lyon?",
        "memory/2026-01-01.md#L1: the train is late",
        "memory/2026-01-02.md#L1: Lyon has the best train station for travellers",
        "memory/2026-01-03.md#L1: no train today",
    )[0] == "memory/2026-01-02.md#L1"  # fmt: skip


def test_a_rare_word_weighs_more_than_a_common_one() -> None:
    common = [f"memory/2026-01-0{day}.md#L1: meeting number {day}" for day in range(1, 8)]
    assert ranked("the meeting with Zoe", *common, "memory/2025-01-01.md#L9: Zoe likes jazz") == [
        "memory/2025-01-01.md#L9"
    ]


def test_ties_go_to_the_newest_line_and_at_most_three_are_quoted() -> None:
    lines = [f"memory/2026-01-0{day}.md#L{day}: tea at {day}" for day in range(1, 6)]
    assert ranked("tea?", "MEMORY.md#L1: tea is good", *lines) == [
        "memory/2026-01-05.md#L5",
        "memory/2026-01-04.md#L4",
        "memory/2026-01-03.md#L3",
    ]


def test_the_same_words_are_quoted_once_from_the_newest_place() -> None:
    assert ranked("tea?", "memory/2026-01-01.md#L1: - tea is hot", "memory/2026-01-02.md#L1: tea is hot") == [
        "memory/2026-01-02.md#L1"
    ]


def test_chinese_lines_are_found_by_pairs_of_characters() -> None:
    [line] = best_lines(query_of("我的自行车是什么颜色"), [Line("memory/a.md", 1, "- 我的自行车是绿色的")])
    assert line.words == "我的自行车是绿色的"
