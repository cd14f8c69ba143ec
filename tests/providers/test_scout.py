"""Scout answers by real tool calls and by nothing that the tools did not say."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, date, tzinfo
from typing import Any

import pytest

from palinurus.domain.messages import AssistantMessage, ContextNote, Message, ToolCall, ToolResult, UserMessage
from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import Head, ModelRequest, ReplyDone, TextDelta
from palinurus.providers.scout.scout import NO_MODEL, Call, Scout, respond

ALL = ("memory_write", "memory_search", "memory_get", "ls", "read")
EARLIER: tuple[Message, ...] = (UserMessage("hi"), AssistantMessage(()))
MONDAY = date(2026, 11, 16)


class StoppedClock:
    @property
    def zone(self) -> tzinfo:
        return UTC

    def now_ms(self) -> int:
        return 0xABC


def request(*messages: Message, tools: tuple[str, ...] = ALL) -> ModelRequest:
    return ModelRequest("scout", Head("s", tuple(ToolSpec(name, "", {}) for name in tools)), messages)


def calls(text: str, tools: tuple[str, ...] = ALL) -> tuple[Call, ...]:
    found = respond(request(UserMessage(text), tools=tools), MONDAY)
    assert not isinstance(found, str), found
    return found


def answer(
    text: str,
    tool: str,
    result: str,
    *,
    is_error: bool = False,
    earlier: tuple[Message, ...] = EARLIER,
    tools: tuple[str, ...] = ALL,
) -> str:
    call = AssistantMessage((ToolCall("c", tool, {}),))
    messages = (*earlier, UserMessage(text), call, ToolResult("c", tool, result, is_error=is_error))
    said = respond(request(*messages, tools=tools), MONDAY)
    assert isinstance(said, str)
    return said


@pytest.mark.parametrize(
    ("text", "tool", "arguments"),
    [
        ("remember that my bicycle is green", "memory_write", {"text": "my bicycle is green"}),
        ("Please remember: call Bob", "memory_write", {"text": "call Bob"}),
        ("don't forget to buy milk", "memory_write", {"text": "to buy milk"}),
        ("Don’t forget the milk", "memory_write", {"text": "the milk"}),
        ("note down the door code is 1234", "memory_write", {"text": "the door code is 1234"}),
        ("can you remember that I like tea?", "memory_write", {"text": "I like tea"}),
        ("记住我的自行车是绿色的", "memory_write", {"text": "我的自行车是绿色的"}),
        ("请帮我记下：明天买牛奶", "memory_write", {"text": "明天买牛奶"}),
        ("自転車は緑だと覚えておいて", "memory_write", {"text": "自転車は緑だ"}),
        ("Merk dir, dass der Zug um acht geht", "memory_write", {"text": "der Zug um acht geht"}),
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
    assert calls(text) == (Call(tool, arguments),)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("what colour is my bicycle?", "what colour is my bicycle?"),
        ("do you remember my dog's name?", "do you remember my dog's name?"),
        ("remember what the door code is?", "remember what the door code is?"),
        ("what do you know about Anna?", "Anna"),
        ("tell me about the boat", "the boat"),
        ("我的自行车是什么颜色", "我的自行车是什么颜色"),
        ("你还记得我的生日吗？", "你还记得我的生日吗？"),
        ("私の誕生日を覚えていますか", "私の誕生日を覚えていますか"),
    ],
)
def test_a_question_becomes_a_search_of_memory(text: str, query: str) -> None:
    assert calls(text) == (Call("memory_search", {"query": query}),)


@pytest.mark.parametrize(
    ("text", "query", "days"),
    [
        ("what did I do last Tuesday?", "what did I do last Tuesday? (2026-11-10)", ["2026-11-10"]),
        ("昨天我做了什么", "昨天我做了什么 (2026-11-15)", ["2026-11-15"]),
        ("what is on tomorrow?", "what is on tomorrow? (2026-11-17)", ["2026-11-16"]),
        ("who came in May 2023?", "who came in May 2023? (2023-05)", []),
    ],
)
def test_a_question_about_a_day_reads_its_notes_and_searches_for_it_by_date(
    text: str, query: str, days: list[str]
) -> None:
    gets = tuple(Call("memory_get", {"path": f"memory/{day}.md"}) for day in days)
    assert calls(text) == (Call("memory_search", {"query": query}), *gets)


def test_today_is_when_the_message_was_said() -> None:
    said = UserMessage("what did I do yesterday?", context=(ContextNote("time", "Fri 2026-11-13 09:00 UTC"),))
    found = respond(request(said), MONDAY)
    assert isinstance(found[0], Call)
    assert found[0].arguments["query"].endswith("(2026-11-12)")


@pytest.mark.parametrize("text", ["what do you know about me?", "What do you remember about me?"])
def test_what_is_known_about_the_person_is_read_from_their_own_files_and_the_newest_days(text: str) -> None:
    *gets, search = calls(text)
    paths = [call.arguments["path"] for call in gets if isinstance(call, Call)]
    assert paths[:3] == ["USER.md", "MEMORY.md", f"memory/{MONDAY}.md"]
    assert len(paths) == 9
    assert isinstance(search, Call)
    assert search.tool == "memory_search"


@pytest.mark.parametrize(
    "text",
    ["what " * 9_000, "read " + "/a" * 60_000 + " x", "と" * 60_000, "remember" + " " * 60_000 + "?",
     "please " * 20_000, "yesterday " * 20_000, "list files in" + "\n" * 60_000, "关于" * 50_000,
     "notes " * 20_000, "1 " * 60_000, "ている" * 9_000 + "ぬ", "a" * 90_000, "(" * 90_000],
)  # fmt: skip
def test_a_text_of_any_length_is_understood_in_a_moment(
    text: str, cpu_limit: Callable[[float], AbstractContextManager[None]]
) -> None:
    with cpu_limit(2):
        respond(request(UserMessage(text)), MONDAY)


def test_a_note_is_confirmed_with_its_place_and_its_stored_words() -> None:
    said = answer("remember that x", "memory_write", "noted in memory/2026-11-15.md#L3: - my bicycle is green")
    assert said == "Noted in memory/2026-11-15.md#L3: my bicycle is green"


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
    said = respond(request(*EARLIER, UserMessage(text)), MONDAY)
    assert isinstance(said, str)
    assert said.startswith("What I can do:\n- ")
    assert NO_MODEL in said
    assert "\n" not in NO_MODEL


def test_help_names_only_what_the_offered_tools_can_do() -> None:
    said = respond(request(UserMessage("help"), tools=("ls",)), MONDAY)
    assert isinstance(said, str)
    assert "list files" in said
    assert "remember" not in said


def test_only_the_first_reply_of_a_conversation_explains_itself() -> None:
    assert answer("tea?", "memory_search", '{"results": []}', earlier=()).endswith(NO_MODEL)
    assert NO_MODEL not in answer("tea?", "memory_search", '{"results": []}')


def test_without_the_tool_it_says_that_it_cannot() -> None:
    said = respond(request(*EARLIER, UserMessage("remember that x"), tools=("ls",)), MONDAY)
    assert said == "I cannot do that here: the tool `memory_write` is not offered in this session."


def test_a_question_without_content_words_asks_back() -> None:
    said = respond(request(*EARLIER, UserMessage("what is it?")), MONDAY)
    assert isinstance(said, str)
    assert said.startswith("Ask me with a word")


def test_results_of_an_earlier_turn_are_never_quoted() -> None:
    earlier = (
        *EARLIER,
        UserMessage("tea?"),
        AssistantMessage((ToolCall("c", "memory_search", {}),)),
        ToolResult("c", "memory_search", '{"results": []}'),
        AssistantMessage(()),
    )
    assert not isinstance(respond(request(*earlier, UserMessage("what about tea?")), MONDAY), str)


async def test_the_stream_ends_with_the_call_or_with_the_words() -> None:
    scout = Scout(StoppedClock())
    [called] = [event async for event in scout.stream(request(UserMessage("list files")))]
    assert isinstance(called, ReplyDone)
    assert called.message.stop_reason == "toolUse"
    assert called.message.calls == (ToolCall("scout_abc_1_0", "ls", {}),)
    words, done = [event async for event in scout.stream(request(UserMessage("hi")))]
    assert isinstance(words, TextDelta)
    assert isinstance(done, ReplyDone)
    assert (done.message.text, done.message.stop_reason) == (words.text, "stop")
