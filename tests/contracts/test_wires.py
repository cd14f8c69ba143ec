"""What every wire keeps, whatever the server does: the same behaviours, spoken in four formats."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, tzinfo
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.context.epoch import Route
from palinurus.domain.errors import Failure, ProviderError
from palinurus.domain.messages import (
    AssistantMessage,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from palinurus.domain.tool import ToolSpec
from palinurus.operations.models import probe
from palinurus.providers.provider import (
    ANY_TOOL,
    Head,
    ModelRequest,
    Provider,
    ReplyDone,
    ReplyEvent,
    ReplyFailed,
    TextDelta,
    ThinkingTextDelta,
)
from palinurus.providers.wires.anthropic import AnthropicProvider, AnthropicReply, to_anthropic
from palinurus.providers.wires.failures import Call
from palinurus.providers.wires.google import GoogleProvider, GoogleReply, to_google
from palinurus.providers.wires.http import parser_for
from palinurus.providers.wires.openai import OpenAIProvider, OpenAIReply, to_openai
from palinurus.providers.wires.reply import Gatherer
from palinurus.providers.wires.responses import ResponsesProvider, ResponsesReply, to_responses
from palinurus.text.tokens import estimate_tokens
from support.dialects import AnthropicDialect, Dialect, GoogleDialect, OpenAIDialect, ResponsesDialect
from support.wire import (
    Answers,
    Behaviour,
    Calls,
    Cuts,
    CutsWithoutFinish,
    ErrorInStream,
    Garbage,
    Hangs,
    PlainJson,
    Says,
    WireServer,
)

NOW = 1_794_700_800_000
REQUEST = ModelRequest("m", Head("be kind"), (UserMessage("hello"),))
WireProvider = OpenAIProvider | ResponsesProvider | AnthropicProvider | GoogleProvider
PROVIDERS: dict[str, type[WireProvider]] = {
    "openai": OpenAIProvider,
    "responses": ResponsesProvider,
    "anthropic": AnthropicProvider,
    "google": GoogleProvider,
}


class StoppedClock:
    @property
    def zone(self) -> tzinfo:
        return UTC

    def now_ms(self) -> int:
        return NOW


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    async with WireServer() as started:
        yield started


@pytest.fixture(params=PROVIDERS)
async def provider(request: pytest.FixtureRequest, server: WireServer) -> AsyncIterator[WireProvider]:
    cls = PROVIDERS[request.param]
    opened = cls("test", server.base_url, "secret-key", windows={}, clock=StoppedClock(), idle_timeout=60.0)
    yield opened
    await opened.close()


async def events_of(provider: WireProvider, request: ModelRequest = REQUEST) -> list[ReplyEvent]:
    async with asyncio.timeout(60), aclosing(provider.stream(request)) as stream:
        return [event async for event in stream]


async def reply_to(provider: WireProvider, server: WireServer, behaviour: Behaviour) -> AssistantMessage:
    server.script.append(behaviour)
    last = (await events_of(provider))[-1]
    assert isinstance(last, ReplyDone), last
    return last.message


async def test_text_and_thinking_arrive_as_deltas_and_as_one_message_with_usage(
    provider: WireProvider, server: WireServer
) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 80}}
    server.script.append(Says("hello world", chunks=2, thinking="hm", usage=usage))
    *deltas, last = await events_of(provider)
    assert deltas == [ThinkingTextDelta("hm"), TextDelta("hello "), TextDelta("world")]
    assert last == ReplyDone(
        AssistantMessage(
            content=(Thinking("hm"), Text("hello world")),
            provider="test",
            model="m",
            api=provider.wire,
            usage=Usage(input=20, output=7, cache_read=80),
            timestamp=NOW,
        )
    )


@pytest.mark.parametrize("finish", ["stop", "length"])
async def test_a_probe_is_a_handful_of_tokens_and_a_model_that_thought_them_away_has_answered(
    provider: WireProvider, server: WireServer, finish: str
) -> None:
    async def choose(_: str) -> tuple[Provider, Route]:
        return provider, Route("test", "m", provider.wire)

    server.script.append(Says("", finish=finish))
    report = await probe(choose)
    assert report.ok, report.error
    sent = msgspec.json.encode(server.requests[-1]).decode()
    assert estimate_tokens(sent) < 120  # almost all of it names and brackets
    assert any(limit in sent for limit in ('tokens":16', 'Tokens":16'))


@pytest.mark.parametrize("whole", [True, False])
async def test_parallel_calls_keep_their_own_arguments(provider: WireProvider, server: WireServer, whole: bool) -> None:
    calls = Calls(("read", {"path": "a.md"}), ("grep", {"pattern": "x" * 30, "max": 3}), text="looking", whole=whole)
    message = await reply_to(provider, server, calls)
    assert message.stop_reason == "toolUse"
    assert message.content == (
        Text("looking"),
        ToolCall("call_0", "read", {"path": "a.md"}),
        ToolCall("call_1", "grep", {"pattern": "x" * 30, "max": 3}),
    )


async def test_plain_json_instead_of_a_stream_is_understood(provider: WireProvider, server: WireServer) -> None:
    message = await reply_to(provider, server, PlainJson(Calls(("ls", {"path": "."}), text="looking")))
    assert (message.text, message.calls) == ("looking", (ToolCall("call_0", "ls", {"path": "."}),))
    assert message.usage == Usage(input=20, output=5)


async def test_a_reply_that_ran_into_its_limit_says_so(provider: WireProvider, server: WireServer) -> None:
    assert (await reply_to(provider, server, Says("and then", finish="length"))).stop_reason == "length"


@pytest.mark.parametrize("raw", ["[1]", '"path"', "7"])
async def test_arguments_that_are_no_object_are_kept_as_text(
    provider: WireProvider, server: WireServer, raw: str
) -> None:
    message = await reply_to(provider, server, Calls(("read", raw)))
    assert message.calls[0].arguments == {"_malformed": raw}


@pytest.mark.parametrize(
    ("behaviour", "kind", "partial"),
    [
        (Cuts("par"), Failure.NETWORK, "par"),
        (CutsWithoutFinish("par"), Failure.NETWORK, "par"),
        (CutsWithoutFinish("par", done=True), Failure.NETWORK, "par"),
        (ErrorInStream("par"), Failure.OVERLOAD, "par"),
        (
            ErrorInStream("par", {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"}),
            Failure.RATE_LIMIT,
            "par",
        ),
        (ErrorInStream("", {"type": "overloaded_error", "message": "Overloaded"}), Failure.OVERLOAD, ""),
        (ErrorInStream("par", "it broke"), Failure.OVERLOAD, "par"),
        (Says("par", finish="content_filter"), Failure.REFUSAL, "par"),
        (Garbage(), Failure.MALFORMED, ""),
        (Garbage(b"<html>wrong address</html>"), Failure.MALFORMED, ""),
        (Garbage(b""), Failure.MALFORMED, ""),
        (Garbage(b'{"unexpected": true}'), Failure.MALFORMED, ""),
        (Garbage(b"[1, 2]"), Failure.MALFORMED, ""),
        (Garbage(b'data: {"choices": "many", "type": 3, "candidates": 1}\n\n'), Failure.MALFORMED, ""),
        (Garbage(b"data: \xff\xfe\n\n"), Failure.MALFORMED, ""),
        (Garbage(b"data: [DONE]\n\n"), Failure.MALFORMED, ""),
        (Answers(401, {"error": {"message": "no"}}), Failure.AUTH, ""),
        (Answers(402), Failure.BILLING, ""),
        (Answers(529, "overloaded"), Failure.OVERLOAD, ""),
        (Answers(302, headers={"Location": "https://elsewhere.example"}), Failure.BAD_REQUEST, ""),
    ],
)
async def test_a_bad_answer_is_one_failure_with_its_kind_and_the_text_so_far(
    provider: WireProvider, server: WireServer, behaviour: Behaviour, kind: Failure, partial: str
) -> None:
    server.script.append(behaviour)
    *_, last = await events_of(provider)
    assert isinstance(last, ReplyFailed), last
    assert (last.error.kind, last.partial) == (kind, partial)
    assert "test/m" in last.error.message


async def test_a_stream_without_its_last_event_is_a_reply_only_where_the_wire_has_none(
    provider: WireProvider, server: WireServer
) -> None:
    server.script.append(Says("all of it", done=False))
    last = (await events_of(provider))[-1]
    if provider.wire in ("anthropic-messages", "openai-responses"):
        assert isinstance(last, ReplyFailed)
        assert (last.error.kind, last.partial) == (Failure.NETWORK, "all of it")
    else:
        assert isinstance(last, ReplyDone)


async def test_the_connection_is_kept_for_the_next_call_and_survives_an_error_answer(
    provider: WireProvider, server: WireServer
) -> None:
    server.script += [Says("one"), Answers(429), Calls(("a", {})), Says("two")]
    for _ in range(5):
        await events_of(provider)
    assert (server.connections, len(server.requests)) == (1, 5)


async def test_a_cancelled_reader_lets_go_of_the_connection_at_once(provider: WireProvider, server: WireServer) -> None:
    server.script.append(Hangs("par"))
    reading = asyncio.create_task(events_of(provider))
    await server.until(lambda seen: len(seen.requests) == 1)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await server.until(lambda seen: seen.departed == 1)


async def test_the_key_travels_in_one_header_and_never_in_the_address(
    provider: WireProvider, server: WireServer
) -> None:
    await events_of(provider)
    carrying = [name for name, value in server.headers[0].items() if "secret-key" in value]
    expected = {
        "openai-completions": "authorization",
        "openai-responses": "authorization",
        "anthropic-messages": "x-api-key",
        "google-generative-ai": "x-goog-api-key",
    }
    assert carrying == [expected[provider.wire]]
    assert "secret-key" not in server.paths[0]
    assert b"secret-key" not in server.raw[0]


@pytest.mark.parametrize("module", PROVIDERS)
def test_importing_a_wire_loads_neither_the_http_library_nor_another_wire(module: str) -> None:
    unwanted = ["httpx2", *(f"palinurus.providers.wires.{other}" for other in PROVIDERS if other != module)]
    imports = f"import sys, palinurus.providers.wires.{module}, palinurus.runtime.models"
    program = f"{imports}; sys.exit(any(name in sys.modules for name in {unwanted}))"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


# -- any split of the bytes gives the same events

GATHERERS: dict[str, tuple[type[OpenAIReply | ResponsesReply | AnthropicReply | GoogleReply], Dialect]] = {
    "openai": (OpenAIReply, OpenAIDialect()),
    "responses": (ResponsesReply, ResponsesDialect()),
    "anthropic": (AnthropicReply, AnthropicDialect()),
    "google": (GoogleReply, GoogleDialect()),
}
REPLIES: list[Says | Calls] = [
    Says("héllo wörld, 漢字", chunks=5, thinking="hm, 漢", signature="c2lnbmVk", redacted="xyz"),
    Calls(("a", {"x": "ü" * 9}), ("b", {}), text="süß", signature="sig", nameless=True),
]


def gathered(reply: Gatherer, data: bytes, cuts: list[int]) -> tuple[list[ReplyEvent], AssistantMessage]:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:stop] for start, stop in pairwise(edges) if start < stop]
    parser = parser_for(pieces[0])
    payloads = [payload for piece in pieces for payload in parser.feed(piece)] + parser.close()
    events = [event for payload in payloads for event in reply.add(payload)]
    return events, reply.finish(now_ms=NOW)


@pytest.mark.parametrize("wire", GATHERERS)
@pytest.mark.parametrize("reply", REPLIES, ids=["text", "calls"])
@given(data=st.data())
def test_any_split_of_the_bytes_gives_the_same_events(wire: str, reply: Says | Calls, data: st.DataObject) -> None:
    gatherer, dialect = GATHERERS[wire]
    sent = b"".join(dialect.reply(reply, "m"))
    cuts = data.draw(st.lists(st.integers(1, len(sent)), max_size=40))
    assert gathered(gatherer(Call("t/m")), sent, cuts) == gathered(gatherer(Call("t/m")), sent, [])


@pytest.mark.parametrize("wire", GATHERERS)
@given(
    payload=st.one_of(
        st.binary(max_size=200),
        st.recursive(
            st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        [
                            "type",
                            "candidates",
                            "content",
                            "parts",
                            "choices",
                            "delta",
                            "error",
                            "usage",
                            "index",
                            "message",
                            "text",
                            "item",
                            "response",
                            "object",
                            "output",
                        ]
                    ),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=12,
        ).map(msgspec.json.encode),
    )
)
def test_nonsense_is_a_provider_error_or_nothing(wire: str, payload: bytes) -> None:
    reply = GATHERERS[wire][0](Call("t/m"))
    try:
        reply.add(payload)
        reply.finish(now_ms=NOW)
    except ProviderError:
        pass


# -- requests grow only at their end, calls and results stay together

RAW_IDS = st.one_of(st.text(max_size=80), st.sampled_from(["call_0", "call:0", "call/0", "x" * 70, ""]))
TURNS = st.lists(st.lists(RAW_IDS, min_size=1, max_size=3), min_size=1, max_size=5)


def conversation(turns: list[list[str]]) -> list[Message]:
    messages: list[Message] = []
    for number, ids in enumerate(turns):
        calls = tuple(ToolCall(call_id, "t", {}) for call_id in ids)
        messages += [UserMessage(str(number)), AssistantMessage(calls), *(ToolResult(one, "t", "ok") for one in ids)]
    return messages


def parts_sent(wire: str, messages: list[Message]) -> list[Any]:
    """The elements of a request one after another, each with its role, without cache markers."""
    request = ModelRequest("m", Head("s"), tuple(messages))
    if wire == "openai":
        return list(msgspec.json.decode(to_openai(request))["messages"])
    if wire == "responses":
        return list(msgspec.json.decode(to_responses(request, provider="p"))["input"])
    if wire == "google":
        contents = msgspec.json.decode(to_google(request, provider="p"))["contents"]
        return [(content["role"], part) for content in contents for part in content["parts"]]
    sent = msgspec.json.decode(to_anthropic(request, provider="p"))["messages"]
    plain = [(message["role"], {**block}) for message in sent for block in message["content"]]
    for _, block in plain:
        block.pop("cache_control", None)
    return plain


@pytest.mark.parametrize("wire", GATHERERS)
@given(turns=TURNS)
def test_a_longer_conversation_starts_with_the_parts_of_the_shorter_one(wire: str, turns: list[list[str]]) -> None:
    messages = conversation(turns)
    whole = parts_sent(wire, messages)
    for length in range(1, len(messages)):
        part = parts_sent(wire, messages[:length])
        assert whole[: len(part)] == part


@pytest.mark.parametrize("wire", ["anthropic", "google"])
@given(turns=TURNS)
def test_calls_and_their_results_stand_face_to_face_with_the_same_legal_ids(wire: str, turns: list[list[str]]) -> None:
    request = ModelRequest("m", Head("s"), tuple(conversation(turns)))
    if wire == "google":
        sent = msgspec.json.decode(to_google(request, provider="p"))["contents"]
        asked = [[part["functionCall"]["id"] for part in content["parts"]] for content in sent[1::2]]
        answers = [
            [part["functionResponse"]["id"] for part in content["parts"] if "functionResponse" in part]
            for content in sent[2::2]
        ]
    else:
        sent = msgspec.json.decode(to_anthropic(request, provider="p"))["messages"]
        asked = [[block["id"] for block in message["content"]] for message in sent[1::2]]
        answers = [
            [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
            for message in sent[2::2]
        ]
    assert asked == answers
    flat = [one for ids in asked for one in ids]
    assert len(set(flat)) == len(flat)
    assert [message["role"] for message in sent[:2]] == ["user", "model" if wire == "google" else "assistant"]


FORCED = {
    "openai": ({"tool_choice": "required"}, {"tool_choice": {"type": "function", "function": {"name": "read"}}}),
    "responses": ({"tool_choice": "required"}, {"tool_choice": {"type": "function", "name": "read"}}),
    "anthropic": ({"tool_choice": {"type": "any"}}, {"tool_choice": {"type": "tool", "name": "read"}}),
    "google": (
        {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
        {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["read"]}}},
    ),
}


async def test_a_tool_that_must_be_called_is_named_in_the_words_of_the_wire(
    provider: WireProvider, server: WireServer
) -> None:
    wire = next(name for name, cls in PROVIDERS.items() if isinstance(provider, cls))
    head = Head("be kind", (ToolSpec("read", "Read.", {"type": "object"}),))
    for choice in ("", ANY_TOOL, "read"):
        await events_of(provider, ModelRequest("m", head, REQUEST.messages, tool_choice=choice))
    free, *forced = server.requests
    for body, expected in zip(forced, FORCED[wire], strict=True):
        assert {name: value for name, value in body.items() if name not in free} == expected


def test_a_claude_that_thinks_is_not_forced() -> None:
    request = ModelRequest("claude-opus-5-5", Head("s"), REQUEST.messages, thinking="high", tool_choice=ANY_TOOL)
    assert "tool_choice" not in msgspec.json.decode(to_anthropic(request, provider="p"))
