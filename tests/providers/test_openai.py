"""The OpenAI wire against a loopback server, well-behaved and not."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from datetime import UTC, tzinfo
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.errors import ConfigError, Failure, ProviderError
from palinurus.domain.messages import AssistantMessage, Text, Thinking, ToolCall, Usage, UserMessage
from palinurus.providers.provider import (
    Head,
    ModelRequest,
    ReplyDone,
    ReplyEvent,
    ReplyFailed,
    TextDelta,
    ThinkingTextDelta,
)
from palinurus.providers.wires.failures import Call
from palinurus.providers.wires.http import parser_for
from palinurus.providers.wires.openai import OpenAIProvider, OpenAIReply
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

REQUEST = ModelRequest("m", Head("be kind"), (UserMessage("hello"),))
NOW = 1_794_700_800_000


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


Connect = Callable[..., OpenAIProvider]


@pytest.fixture
async def connect(server: WireServer) -> AsyncIterator[Connect]:
    opened: list[OpenAIProvider] = []

    def connect(base_url: str = "", api_key: str | None = "secret-key", **options: Any) -> OpenAIProvider:
        url = base_url or server.base_url
        opened.append(OpenAIProvider("test", url, api_key, windows={"m": 1000}, clock=StoppedClock(), **options))
        return opened[-1]

    yield connect
    for provider in opened:
        await provider.close()


async def events_of(provider: OpenAIProvider, request: ModelRequest = REQUEST) -> list[ReplyEvent]:
    async with asyncio.timeout(60), aclosing(provider.stream(request)) as stream:
        return [event async for event in stream]


async def reply_to(server: WireServer, connect: Connect, behaviour: Behaviour) -> AssistantMessage:
    server.script.append(behaviour)
    last = (await events_of(connect()))[-1]
    assert isinstance(last, ReplyDone), last
    return last.message


async def failure_from(server: WireServer, connect: Connect, behaviour: Behaviour) -> ReplyFailed:
    server.script.append(behaviour)
    last = (await events_of(connect()))[-1]
    assert isinstance(last, ReplyFailed), last
    return last


async def test_text_and_thinking_arrive_as_deltas_and_as_one_message_with_usage(
    server: WireServer, connect: Connect
) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 80}}
    server.script.append(Says("hello world", chunks=2, thinking="hm", usage=usage))
    assert await events_of(connect()) == [
        ThinkingTextDelta("hm"),
        TextDelta("hello "),
        TextDelta("world"),
        ReplyDone(
            AssistantMessage(
                content=(Thinking("hm"), Text("hello world")),
                provider="test",
                model="m",
                api="openai-completions",
                usage=Usage(input=20, output=7, cache_read=80),
                timestamp=NOW,
            )
        ),
    ]


async def test_the_request_carries_key_headers_and_the_streaming_options(server: WireServer, connect: Connect) -> None:
    await events_of(connect(headers={"X-Title": "pal"}))
    assert server.headers[0]["authorization"] == "Bearer secret-key"
    assert server.headers[0]["x-title"] == "pal"
    assert server.requests[0]["stream_options"] == {"include_usage": True}
    assert server.requests[0]["messages"] == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "hello"},
    ]


@pytest.mark.parametrize("whole", [True, False])
async def test_parallel_calls_keep_their_own_arguments(server: WireServer, connect: Connect, whole: bool) -> None:
    calls = Calls(("read", {"path": "a.md"}), ("grep", {"pattern": "x" * 30, "max": 3}), text="looking", whole=whole)
    message = await reply_to(server, connect, calls)
    assert message.stop_reason == "toolUse"
    assert message.content == (
        Text("looking"),
        ToolCall("call_0", "read", {"path": "a.md"}),
        ToolCall("call_1", "grep", {"pattern": "x" * 30, "max": 3}),
    )


@pytest.mark.parametrize("raw", ['{"path": "a', "[1]", "path=a"])
async def test_arguments_that_are_no_object_are_kept_as_text(server: WireServer, connect: Connect, raw: str) -> None:
    message = await reply_to(server, connect, Calls(("read", raw)))
    assert message.calls[0].arguments == {"_malformed": raw}


async def test_plain_json_instead_of_a_stream_is_understood(server: WireServer, connect: Connect) -> None:
    message = await reply_to(server, connect, PlainJson(Calls(("ls", {"path": "."}), text="looking")))
    assert message.text == "looking"
    assert message.calls == (ToolCall("call_0", "ls", {"path": "."}),)
    assert message.usage == Usage(input=20, output=5)


async def test_a_finished_stream_without_done_is_a_reply(server: WireServer, connect: Connect) -> None:
    assert (await reply_to(server, connect, Says("all of it", done=False))).text == "all of it"


@pytest.mark.parametrize(
    ("behaviour", "kind", "partial"),
    [
        (Cuts("par"), Failure.NETWORK, "par"),
        (CutsWithoutFinish("par"), Failure.NETWORK, "par"),
        (CutsWithoutFinish("par", done=True), Failure.NETWORK, "par"),
        (ErrorInStream("par"), Failure.OVERLOAD, "par"),
        (ErrorInStream("par", {"code": 429, "message": "slow"}), Failure.RATE_LIMIT, "par"),
        (Says("par", finish="content_filter"), Failure.REFUSAL, "par"),
        (Says("par", finish="error"), Failure.OVERLOAD, "par"),
        (Garbage(), Failure.MALFORMED, ""),
        (Garbage(b"<html>wrong address</html>"), Failure.MALFORMED, ""),
        (Garbage(b""), Failure.MALFORMED, ""),
        (Garbage(b'{"unexpected": true}'), Failure.MALFORMED, ""),
        (Garbage(b'data: {"choices": "many"}\n\n'), Failure.MALFORMED, ""),
        (Garbage(b"data: \xff\xfe\n\n"), Failure.MALFORMED, ""),
        (Answers(401, {"error": {"message": "no"}}), Failure.AUTH, ""),
        (Answers(402), Failure.BILLING, ""),
        (Answers(529, "overloaded"), Failure.OVERLOAD, ""),
        (Answers(400, {"error": {"code": "context_length_exceeded"}}), Failure.CONTEXT_OVERFLOW, ""),
        (Answers(302, headers={"Location": "https://elsewhere.example"}), Failure.BAD_REQUEST, ""),
    ],
)
async def test_a_bad_answer_is_one_failure_with_its_kind_and_the_text_so_far(
    server: WireServer, connect: Connect, behaviour: Behaviour, kind: Failure, partial: str
) -> None:
    failed = await failure_from(server, connect, behaviour)
    assert (failed.error.kind, failed.partial) == (kind, partial)
    assert "test/m" in failed.error.message


async def test_a_rate_limit_says_how_long_to_wait(server: WireServer, connect: Connect) -> None:
    failed = await failure_from(server, connect, Answers(429, headers={"Retry-After": "3"}))
    assert failed.error.retry_after == 3.0


async def test_the_connection_is_kept_for_the_next_call_and_survives_an_error_answer(
    server: WireServer, connect: Connect
) -> None:
    server.script += [Says("one"), Answers(429), Calls(("a", {})), Says("two", done=False)]
    provider = connect()
    for _ in range(5):
        await events_of(provider)
    assert (server.connections, len(server.requests)) == (1, 5)


async def test_a_silent_server_is_a_timeout(server: WireServer, connect: Connect) -> None:
    server.script.append(Hangs("par"))
    last = (await events_of(connect(idle_timeout=1.0)))[-1]
    assert isinstance(last, ReplyFailed)
    assert (last.error.kind, last.partial) == (Failure.TIMEOUT, "par")


async def test_a_refused_connection_is_a_network_failure_that_names_the_address(connect: Connect) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets the port meanwhile
        url = f"http://user:pass@127.0.0.1:{taken.getsockname()[1]}/v1"
        last = (await events_of(connect(url)))[-1]
    assert isinstance(last, ReplyFailed)
    assert last.error.kind is Failure.NETWORK
    assert "127.0.0.1" in last.error.message
    assert "pass" not in str(last.error)


@pytest.mark.parametrize(
    "url", ["no-scheme/v1", "http://127.0.0.1:99999/v1", "http://ex ample/v1", "", "http://[::1/v1", "http:///v1"]
)
def test_a_senseless_base_url_is_refused_before_any_call(url: str) -> None:
    with pytest.raises(ConfigError, match="provider test"):
        OpenAIProvider("test", url, None, windows={}, clock=StoppedClock())


@pytest.mark.parametrize("key", ["kéy-with-accent", "key\nwith-newline"])
async def test_a_key_that_cannot_be_sent_is_an_auth_failure_that_does_not_show_it(connect: Connect, key: str) -> None:
    last = (await events_of(connect(api_key=key)))[-1]
    assert isinstance(last, ReplyFailed)
    assert last.error.kind is Failure.AUTH
    assert key not in str(last.error)


async def test_a_cancelled_reader_lets_go_of_the_connection_at_once(server: WireServer, connect: Connect) -> None:
    server.script.append(Hangs("par"))
    reading = asyncio.create_task(events_of(connect()))
    await server.until(lambda seen: len(seen.requests) == 1)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await server.until(lambda seen: seen.departed == 1)


def test_windows_are_known_by_model_then_for_all_then_small() -> None:
    provider = OpenAIProvider("t", "http://x", None, windows={"a": 1, "*": 2}, clock=StoppedClock())
    bare = OpenAIProvider("t", "http://x", None, windows={}, clock=StoppedClock())
    assert (provider.context_window("a"), provider.context_window("b")) == (1, 2)
    assert bare.context_window("a") == 32_000


def test_importing_the_provider_loads_no_http_library() -> None:
    program = "import sys, palinurus.providers.wires.openai, palinurus.providers.choose as _"
    program += "; sys.exit('httpx2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


def gathered(data: bytes, cuts: list[int]) -> tuple[list[ReplyEvent], AssistantMessage]:
    reply = OpenAIReply(Call("test/m"))
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:stop] for start, stop in pairwise(edges) if start < stop]
    parser = parser_for(pieces[0])
    payloads = [payload for piece in pieces for payload in parser.feed(piece)] + parser.close()
    events = [event for payload in payloads for event in reply.add(payload)]
    return events, reply.finish(now_ms=NOW)


def sse(*deltas: dict[str, Any], finish: str = "tool_calls") -> bytes:
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return b"".join(b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


DELTAS = (
    {"reasoning_content": "hm, 漢"},
    {"content": "héllo"},
    {"content": " wörld"},
    {"tool_calls": [{"index": 0, "id": "c0", "function": {"name": "a", "arguments": ""}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": '{"x"'}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
)
WHOLE = gathered(sse(*DELTAS), [])


@given(cuts=st.lists(st.integers(1, len(sse(*DELTAS))), max_size=60))
def test_any_split_of_the_bytes_gives_the_same_events(cuts: list[int]) -> None:
    assert gathered(sse(*DELTAS), cuts) == WHOLE


def delta(index: int | None, call_id: str | None, name: str | None, arguments: Any) -> dict[str, Any]:
    call: dict[str, Any] = {"id": call_id, "function": {"name": name, "arguments": arguments}}
    return {"tool_calls": [call if index is None else {**call, "index": index}]}


A, B = ("a", {"x": 1}), ("b", {"y": 2})


@pytest.mark.parametrize(
    ("deltas", "calls"),
    [
        pytest.param(
            [
                delta(0, "i", "a", '{"x"'),
                delta(1, "j", "b", '{"y"'),
                delta(0, None, None, ":1}"),
                delta(1, "", "", ":2}"),
            ],
            [("i", *A), ("j", *B)],
            id="interleaved by index",
        ),
        pytest.param(
            [delta(0, "i", "a", '{"x"'), delta(0, "i", "a", ":1}")], [("i", *A)], id="id and name in every delta"
        ),
        pytest.param(
            [delta(None, "i", "a", '{"x":1}'), delta(None, "j", "b", '{"y":2}')],
            [("i", *A), ("j", *B)],
            id="whole calls without index",
        ),
        pytest.param(
            [delta(None, "i", "a", '{"x"'), delta(None, None, None, ":1}"), delta(None, "j", "b", '{"y":2}')],
            [("i", *A), ("j", *B)],
            id="pieces without index",
        ),
        pytest.param(
            [delta(0, "i", "a", '{"x":1}'), delta(0, "j", "b", '{"y":2}')],
            [("i", *A), ("j", *B)],
            id="one index for all",
        ),
        pytest.param(
            [delta(0, None, "a", '{"x":1}'), delta(0, None, "b", '{"y":2}')],
            [(f"call_{NOW:x}_0", *A), (f"call_{NOW:x}_1", *B)],
            id="one index for all and no ids",
        ),
        pytest.param(
            [delta(0, "i", "a", '{"x":1}'), delta(1, "i", "b", '{"y":2}')],
            [("i", *A), ("i_1", *B)],
            id="one id for two calls",
        ),
        pytest.param([delta(0, "i", "a", {"x": 1})], [("i", *A)], id="arguments as an object"),
        pytest.param([delta(0, "i", "a", '"{\\"x\\":1}"')], [("i", *A)], id="arguments encoded twice"),
        pytest.param([delta(0, "i", "a", None)], [("i", "a", {})], id="no arguments"),
        pytest.param([delta(0, "i", None, "{}")], [("i", "unknown", {})], id="no name"),
    ],
)
def test_every_servers_way_of_streaming_calls_is_understood(
    deltas: list[dict[str, Any]], calls: list[tuple[str, str, dict[str, Any]]]
) -> None:
    _, message = gathered(sse(*deltas, finish="stop"), [])
    assert [(call.id, call.name, call.arguments) for call in message.calls] == calls
    assert message.stop_reason == "toolUse"


def test_a_call_cut_by_the_length_limit_is_never_taken_for_a_call_without_arguments() -> None:
    _, message = gathered(sse(delta(0, "i", "a", ""), finish="length"), [])
    assert message.calls[0].arguments == {"_malformed": ""}
    assert message.stop_reason == "length"


def test_content_in_parts_and_a_refusal_are_text() -> None:
    events, _ = gathered(sse({"content": [{"type": "text", "text": "a"}]}, {"refusal": "no"}, finish="stop"), [])
    assert events == [TextDelta("a"), TextDelta("no")]


def test_an_error_without_an_error_field_is_an_error_too() -> None:
    reply = OpenAIReply(Call("test/m"))
    with pytest.raises(ProviderError) as raised:
        reply.add(b'{"object": "error", "message": "too long: maximum context length"}')
    assert raised.value.kind is Failure.CONTEXT_OVERFLOW


async def test_an_answer_without_end_is_refused(
    server: WireServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palinurus.providers.wires.http.MAX_REPLY_BYTES", 10_000)
    failed = await failure_from(server, connect, Says("x" * 50_000, chunks=100))
    assert failed.error.kind is Failure.MALFORMED
