"""What is Anthropic's own on its wire: thinking with signatures, cache markers, one message of results, budgets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, tzinfo
from typing import Any

import msgspec
import pytest

from palinurus.domain.errors import Failure, ProviderError
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
from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import Head, ModelRequest, ReplyDone
from palinurus.providers.wires.anthropic import WIRE, AnthropicProvider, AnthropicReply, to_anthropic
from palinurus.providers.wires.failures import Call
from support.wire import Calls, Says, WireServer

NOW = 1_794_700_800_000
MODEL = "claude-sonnet-5-5"
CACHED = {"type": "ephemeral"}
KIND = Head("be kind")
SPEC = ToolSpec("ls", "List files.", {"properties": {"path": {"type": "string"}}})


class StoppedClock:
    @property
    def zone(self) -> tzinfo:
        return UTC

    def now_ms(self) -> int:
        return NOW


def body(*messages: Message, model: str = MODEL, head: Head = KIND, **fields: Any) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(
        to_anthropic(ModelRequest(model, head, messages, **fields), provider="anthropic")
    )
    return decoded


def said(*content: Text | Thinking | ToolCall, model: str = MODEL, provider: str = "anthropic") -> AssistantMessage:
    return AssistantMessage(content, provider=provider, model=model, api=WIRE)


def blocks(*messages: Message) -> list[Any]:
    return [block for message in body(*messages)["messages"] for block in message["content"]]


def test_the_whole_body_of_a_small_conversation() -> None:
    sent = body(
        UserMessage("hi", context=(ContextNote("time", "now"),)),
        said(Thinking("hm", "sig"), Text("looking"), ToolCall("toolu_1", "ls", {"path": "."})),
        ToolResult("toolu_1", "ls", "a.md"),
        head=Head("be kind", (SPEC,)),
        max_tokens=100,
    )
    assert sent == {
        "model": MODEL,
        "max_tokens": 100,
        "system": [{"type": "text", "text": "be kind", "cache_control": CACHED}],
        "tools": [{"name": "ls", "description": "List files.", "input_schema": {"type": "object", **SPEC.parameters}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "[time: now]\nhi", "cache_control": CACHED}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    {"type": "text", "text": "looking"},
                    {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"path": "."}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": [{"type": "text", "text": "a.md"}],
                        "cache_control": CACHED,
                    }
                ],
            },
        ],
        "stream": True,
    }


def test_results_and_the_words_that_follow_are_one_user_message_with_the_results_first() -> None:
    calls = said(ToolCall("a", "ls", {}), ToolCall("b", "ls", {}))
    sent = body(UserMessage("x"), calls, ToolResult("a", "ls", "1"), ToolResult("b", "ls", "2"), UserMessage("y"))
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]
    assert [block["type"] for block in sent["messages"][2]["content"]] == ["tool_result", "tool_result", "text"]


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_markers_stand_at_the_end_of_the_head_and_of_the_last_two_user_messages(turns: int) -> None:
    story = [message for number in range(turns) for message in (UserMessage(f"q{number}"), said(Text("a")))][:-1]
    sent = body(*story, head=Head("be kind", (SPEC,)))
    marked = [message for message in sent["messages"] if "cache_control" in message["content"][-1]]
    assert marked == [message for message in sent["messages"] if message["role"] == "user"][-2:]
    assert to_text(sent).count("cache_control") == 1 + len(marked) <= 4
    assert "cache_control" in sent["system"][-1]


def to_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def test_without_a_system_prompt_the_last_tool_is_marked() -> None:
    sent = body(UserMessage("x"), head=Head("", (SPEC, SPEC)))
    assert "system" not in sent
    assert ["cache_control" in tool for tool in sent["tools"]] == [False, True]


@pytest.mark.parametrize(
    ("thought", "sent"),
    [
        (Thinking("hm", "sig"), {"type": "thinking", "thinking": "hm", "signature": "sig"}),
        (Thinking("", "sig"), {"type": "thinking", "thinking": "", "signature": "sig"}),
        (Thinking("", "data", redacted=True), {"type": "redacted_thinking", "data": "data"}),
        (Thinking("hm"), None),
        (Thinking("the key is [redacted]", "sig"), None),
    ],
)
def test_a_thought_goes_back_as_it_came_if_its_signature_still_holds(
    thought: Thinking, sent: dict[str, Any] | None
) -> None:
    found = body(UserMessage("x"), said(thought, Text("a")), UserMessage("y"))["messages"][1]["content"]
    assert found == [*([sent] if sent else []), {"type": "text", "text": "a"}]


@pytest.mark.parametrize("other", [{"model": "claude-opus-5-5"}, {"provider": "elsewhere"}])
def test_a_thought_goes_to_no_other_model(other: dict[str, str]) -> None:
    reply = said(Thinking("hm", "sig"), Text("a"), **other)
    assert "sig" not in to_text(body(UserMessage("x"), reply, UserMessage("y")))


def test_a_reply_that_is_nothing_but_thought_is_left_out() -> None:
    sent = body(UserMessage("x"), said(Thinking("hm", "sig")), UserMessage("y"))["messages"]
    assert [(message["role"], len(message["content"])) for message in sent] == [("user", 2)]


def test_images_of_users_and_tools_go_as_images_and_errors_are_marked() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "QUJD"}
    picture = Image("QUJD", "image/png")
    result = ToolResult("c", "t", (Text("see"), picture), is_error=True)
    sent = blocks(UserMessage((Text("look"), picture)), said(ToolCall("c", "t", {})), result)
    assert sent[1]["source"] == source
    assert (sent[3]["is_error"], sent[3]["content"][1]["source"]) == (True, source)


def test_blank_texts_are_never_sent() -> None:
    story = (UserMessage(" "), said(Text("\n"), ToolCall("c", "t", {})), ToolResult("c", "t", "", is_error=True))
    texts = [
        block.get("text") or block["content"][0]["text"] for block in blocks(*story) if block["type"] != "tool_use"
    ]
    assert texts == ["(empty message)", "(no output)"]


def test_a_conversation_that_starts_with_a_reply_or_not_at_all_is_opened_by_a_user() -> None:
    assert [message["role"] for message in body(said(Text("a")))["messages"]] == ["user", "assistant"]
    assert [message["role"] for message in body()["messages"]] == ["user"]


@pytest.mark.parametrize(
    ("model", "level", "expected"),
    [
        ("claude-sonnet-5-5", "off", {"max_tokens": 32_000}),
        ("claude-sonnet-5-5", "adaptive", {"max_tokens": 32_000, "thinking": "adaptive"}),
        ("claude-sonnet-5-5", "minimal", {"max_tokens": 32_000, "thinking": "adaptive", "effort": "low"}),
        ("claude-opus-4-7", "xhigh", {"max_tokens": 32_000, "thinking": "adaptive", "effort": "xhigh"}),
        ("claude-opus-4-6", "xhigh", {"max_tokens": 32_000, "thinking": "adaptive", "effort": "high"}),
        ("claude-opus-4-6", "max", {"max_tokens": 32_000, "thinking": "adaptive", "effort": "max"}),
        ("claude-sonnet-4-6", "max", {"max_tokens": 32_000, "thinking": "adaptive", "effort": "high"}),
        ("claude-fable-5-1", "ultra", {"max_tokens": 32_000, "thinking": "adaptive", "effort": "max"}),
        ("claude-opus-4-20250514", "max", {"max_tokens": 32_000, "thinking": 24_000}),
        ("claude-sonnet-4-5-20250929", "medium", {"max_tokens": 16_000, "thinking": 8_000}),
        ("claude-3-7-sonnet-latest", "minimal", {"max_tokens": 9_024, "thinking": 1_024}),
        ("claude-3-5-haiku-latest", "high", {"max_tokens": 8_000}),
        ("some-other-model", "low", {"max_tokens": 10_048, "thinking": 2_048}),
        ("some-other-model", "off", {"max_tokens": 8_000}),
    ],
)
def test_a_thinking_level_is_said_as_the_model_understands_it(model: str, level: str, expected: dict[str, Any]) -> None:
    sent = body(UserMessage("x"), model=model, thinking=level)
    thinking = sent.get("thinking", {})
    found = {
        "max_tokens": sent["max_tokens"],
        "thinking": "adaptive" if thinking.get("type") == "adaptive" else thinking.get("budget_tokens"),
        "effort": sent.get("output_config", {}).get("effort"),
    }
    assert {key: value for key, value in found.items() if value is not None} == expected


def test_a_budget_leaves_room_for_the_answer_or_is_not_asked_for() -> None:
    roomy = body(UserMessage("x"), model="claude-sonnet-4-5", thinking="high", max_tokens=4_096)
    assert (roomy["max_tokens"], roomy["thinking"]["budget_tokens"]) == (4_096, 2_048)
    assert "thinking" not in body(UserMessage("x"), model="claude-sonnet-4-5", thinking="high", max_tokens=1_500)


def test_a_turn_that_another_model_began_goes_on_without_a_budget() -> None:
    old = "claude-sonnet-4-5"
    call, result = ToolCall("c", "t", {}), ToolResult("c", "t", "ok")
    own = (UserMessage("x"), said(Thinking("hm", "sig"), call, model=old), result)
    foreign = (UserMessage("x"), said(Thinking("hm", "sig"), call, model="other"), result)
    assert "thinking" in body(*own, model=old, thinking="low")
    assert "thinking" not in body(*foreign, model=old, thinking="low")
    assert "thinking" in body(*foreign, said(Text("done")), UserMessage("next"), model=old, thinking="low")


def gathered(*events: dict[str, Any]) -> AssistantMessage:
    reply = AnthropicReply(Call("anthropic/m"))
    for event in events:
        reply.add(msgspec.json.encode(event))
    return reply.finish(now_ms=NOW)


def ending(reason: str, **usage: int) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}, {"type": "message_stop"}


START = {"type": "message_start", "message": {"usage": {"input_tokens": 9, "cache_creation_input_tokens": 4}}}


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        *(("end_turn", "stop"), ("stop_sequence", "stop"), ("pause_turn", "stop"), ("something new", "stop")),
        *(("max_tokens", "length"), ("model_context_window_exceeded", "length")),
    ],
)
def test_every_stop_reason_has_a_meaning(reason: str, stop: str) -> None:
    assert gathered(START, *ending(reason)).stop_reason == stop


def test_a_refusal_is_a_failure_of_its_own_kind() -> None:
    with pytest.raises(ProviderError) as raised:
        gathered(START, *ending("refusal"))
    assert raised.value.kind is Failure.REFUSAL


def test_usage_is_added_up_from_both_ends_and_a_zero_takes_nothing_back() -> None:
    reply = gathered(START, *ending("end_turn", input_tokens=0, output_tokens=5, cache_read_input_tokens=7))
    assert reply.usage == Usage(input=9, output=5, cache_read=7, cache_write=4)


def test_unknown_events_and_blocks_are_passed_over() -> None:
    strange: list[dict[str, Any]] = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "server_tool_use", "id": "s"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"a": 1}}},
        {"type": "something_new", "data": [1]},
        {"type": "ping"},
    ]
    assert gathered(START, *strange, *ending("end_turn")).content == ()


def test_a_call_cut_by_the_length_limit_is_never_taken_for_a_call_without_arguments() -> None:
    block = {"type": "tool_use", "id": "c", "name": "t", "input": {}}
    opened = {"type": "content_block_start", "index": 0, "content_block": block}
    assert gathered(START, opened, *ending("max_tokens")).content == (ToolCall("c", "t", {"_malformed": ""}),)
    assert gathered(START, opened, *ending("tool_use")).content == (ToolCall("c", "t", {}),)


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    async with WireServer() as started:
        yield started


async def reply_of(provider: AnthropicProvider, request: ModelRequest) -> AssistantMessage:
    async with asyncio.timeout(60), aclosing(provider.stream(request)) as stream:
        last = [event async for event in stream][-1]
    assert isinstance(last, ReplyDone), last
    return last.message


async def test_thoughts_survive_the_way_through_storage_and_back_to_the_server(server: WireServer) -> None:
    server.script += [Says("done", thinking="hm", signature="c2lnbmVk", redacted="b3BhcXVl"), Calls(("ls", {}))]
    provider = AnthropicProvider("anthropic", server.base_url, "k", windows={}, clock=StoppedClock())
    asked = ModelRequest(MODEL, Head("s"), (UserMessage("x"),))
    reply = await reply_of(provider, asked)
    assert reply.content == (Thinking("hm", "c2lnbmVk"), Thinking("", "b3BhcXVl", redacted=True), Text("done"))
    stored = msgspec.json.decode(msgspec.json.encode(reply), type=AssistantMessage)
    await reply_of(provider, msgspec.structs.replace(asked, messages=(UserMessage("x"), stored, UserMessage("y"))))
    await provider.close()
    assert server.requests[1]["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "text", "text": "done"},
    ]


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        ("sk-ant-api03-x", {"x-api-key": "sk-ant-api03-x"}),
        ("sk-ant-oat01-x", {"authorization": "Bearer sk-ant-oat01-x", "anthropic-beta": "oauth-2025-04-20"}),
        ("", {}),
    ],
)
@pytest.mark.parametrize("ending_of_base", ["", "/", "/v1", "/v1/"])
async def test_a_key_and_a_token_travel_each_in_its_header_to_one_address(
    server: WireServer, key: str, headers: dict[str, str], ending_of_base: str
) -> None:
    base_url = server.base_url.removesuffix("/v1") + ending_of_base
    provider = AnthropicProvider("anthropic", base_url, key, windows={}, clock=StoppedClock())
    await reply_of(provider, ModelRequest(MODEL, Head("s"), (UserMessage("x"),)))
    await provider.close()
    names = ("x-api-key", "authorization", "anthropic-beta")
    assert {name: value for name, value in server.headers[0].items() if name in names} == headers
    assert (server.headers[0]["anthropic-version"], server.paths) == ("2023-06-01", ["/v1/messages"])
