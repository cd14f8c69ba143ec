"""Model classes of pydantic-ai against a model server on loopback: what every wire of ours keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, tzinfo

import pytest

from palinurus.domain.errors import Failure
from palinurus.domain.messages import AssistantMessage, Image, Text, ToolCall, ToolResult, Usage, UserMessage
from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import (
    ANY_TOOL,
    Head,
    ModelRequest,
    ReplyDone,
    ReplyEvent,
    ReplyFailed,
    TextDelta,
)
from palinurus.testing.loop_time import excuse
from support.wire import Answers, Calls, Cuts, CutsWithoutFinish, Garbage, Hangs, Says, WireServer

pytest.importorskip("pydantic_ai")
pytest.importorskip("mistralai")
pytestmark = pytest.mark.real
with excuse("first imports"):
    from palinurus_pydantic_ai import messages as _  # noqa: F401
    from palinurus_pydantic_ai.provider import PydanticProvider

NOW = 1_794_700_800_000
TOOLS = (ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),)
KEY = "sk-canary-2718281828"


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


@pytest.fixture(params=["openai-chat:gpt-test", "mistral:mistral-test"])
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def provider(model: str, server: WireServer) -> AsyncIterator[PydanticProvider]:
    base = server.base_url if model.startswith("openai") else server.base_url.removesuffix("/v1")
    opened = PydanticProvider("tail", base, KEY, windows={"*": 9_000}, clock=StoppedClock(), idle_timeout=20.0)
    yield opened
    await opened.close()


async def events_of(provider: PydanticProvider, request: ModelRequest) -> list[ReplyEvent]:
    async with asyncio.timeout(60), aclosing(provider.stream(request)) as stream:
        with excuse("the vendor's library is imported"):
            return [event async for event in stream]


def asking(model: str, *messages: UserMessage | AssistantMessage | ToolResult, **more: str) -> ModelRequest:
    return ModelRequest(model, Head("be kind", TOOLS), messages or (UserMessage("hello"),), **more)


async def test_text_arrives_in_pieces_and_as_one_message_with_usage(
    provider: PydanticProvider, server: WireServer, model: str
) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
    server.script.append(Says("hello wide world", chunks=3, usage=usage))
    *deltas, last = await events_of(provider, asking(model))
    assert "".join(each.text for each in deltas if isinstance(each, TextDelta)) == "hello wide world"
    assert len(deltas) >= 2
    assert isinstance(last, ReplyDone)
    message = last.message
    assert (message.text, message.stop_reason, message.usage) == ("hello wide world", "stop", Usage(100, 7))
    assert (message.provider, message.model, message.api) == ("tail", model, "pydantic-ai")
    assert provider.context_window(model) == 9_000


async def test_tools_are_offered_called_and_answered(
    provider: PydanticProvider, server: WireServer, model: str
) -> None:
    is_mistral = model.startswith("mistral")  # it streams each call whole, several only in one chunk
    paths = ["a.md"] if is_mistral else ["a.md", "b.md"]
    calls = Calls(*(("read", {"path": path}) for path in paths), text="looking", whole=is_mistral)
    server.script += [calls, Says("done")]
    called = (await events_of(provider, asking(model, UserMessage("read both"))))[-1]
    assert isinstance(called, ReplyDone), called
    assert called.message.stop_reason == "toolUse"
    assert [call.arguments for call in called.message.calls] == [{"path": path} for path in paths]
    results = [ToolResult(call.id, "read", f"text of {call.arguments['path']}") for call in called.message.calls]
    answered = (await events_of(provider, asking(model, UserMessage("read both"), called.message, *results)))[-1]
    assert isinstance(answered, ReplyDone), answered
    first, second = server.requests
    assert first["tools"][0]["function"]["name"] == "read"
    roles = [each["role"] for each in second["messages"]]
    assert roles == ["system", "user", "assistant", *["tool" for _ in paths]]
    sent = [call["id"] for call in second["messages"][2]["tool_calls"]]
    assert [each["tool_call_id"] for each in second["messages"][3:]] == sent
    assert second["messages"][:2] == first["messages"]


async def test_a_tool_can_be_demanded(provider: PydanticProvider, server: WireServer, model: str) -> None:
    server.script.append(Calls(("read", {"path": "a"})))
    await events_of(provider, asking(model, tool_choice=ANY_TOOL))
    assert server.requests[0]["tool_choice"] in ("required", "any")


async def test_a_picture_is_sent(provider: PydanticProvider, server: WireServer, model: str) -> None:
    await events_of(provider, asking(model, UserMessage((Text("what is it?"), Image("aGVsbG8=", "image/png")))))
    assert "data:image/png;base64,aGVsbG8=" in str(server.requests[0]["messages"])


async def test_malformed_old_messages_cost_nothing_but_themselves(
    provider: PydanticProvider, server: WireServer, model: str
) -> None:
    odd = AssistantMessage((ToolCall("bad id!", "no such tool", {}),), stop_reason="toolUse")
    last = (await events_of(provider, asking(model, UserMessage(""), odd, ToolResult("bad id!", "x", ""))))[-1]
    assert isinstance(last, ReplyDone), last


FAILURES = [
    (Answers(401, '{"error": {"message": "Incorrect API key provided"}}'), Failure.AUTH),
    (Answers(429, '{"error": {"message": "Rate limit reached"}}', headers={"Retry-After": "7"}), Failure.RATE_LIMIT),
    (Answers(503, '{"error": {"message": "overloaded"}}'), Failure.OVERLOAD),
    (Answers(400, '{"error": {"message": "maximum context length is 10 tokens"}}'), Failure.CONTEXT_OVERFLOW),
    (Answers(404, '{"error": {"message": "The model does not exist", "code": "model_not_found"}}'), Failure.MODEL_NOT_FOUND),
]


@pytest.mark.parametrize(("behaviour", "kind"), FAILURES)
async def test_failures_have_our_kinds_and_are_not_tried_again_in_secret(
    provider: PydanticProvider, server: WireServer, model: str, behaviour: Answers, kind: Failure
) -> None:
    server.script.append(behaviour)
    [last] = await events_of(provider, asking(model))
    assert isinstance(last, ReplyFailed)
    assert last.error.kind == kind
    assert len(server.requests) == 1
    assert KEY not in str(last.error)
    assert kind != Failure.RATE_LIMIT or last.error.retry_after == 7


@pytest.mark.parametrize("behaviour", [Cuts("half of"), CutsWithoutFinish("half of"), Garbage()])
async def test_a_stream_that_breaks_off_is_a_failure(
    provider: PydanticProvider, server: WireServer, model: str, behaviour: Cuts | CutsWithoutFinish | Garbage
) -> None:
    server.script.append(behaviour)
    last = (await events_of(provider, asking(model)))[-1]
    assert isinstance(last, ReplyFailed), last
    assert last.error.kind in (Failure.NETWORK, Failure.MALFORMED)


async def test_a_silent_server_is_a_timeout(model: str, server: WireServer) -> None:
    server.script.append(Hangs())
    base = server.base_url if model.startswith("openai") else server.base_url.removesuffix("/v1")
    provider = PydanticProvider("tail", base, KEY, windows={}, clock=StoppedClock(), idle_timeout=0.5)
    [*_, last] = await events_of(provider, asking(model))
    await provider.close()
    assert isinstance(last, ReplyFailed)
    assert last.error.kind in (Failure.TIMEOUT, Failure.NETWORK)


@pytest.mark.parametrize("name", ["gpt", "nobody:gpt", "cohere:command"])
async def test_what_is_no_model_of_the_library_is_a_bad_request(server: WireServer, name: str) -> None:
    provider = PydanticProvider("tail", server.base_url, KEY, windows={}, clock=StoppedClock())
    [last] = await events_of(provider, asking(name))
    await provider.close()
    assert isinstance(last, ReplyFailed)
    assert last.error.kind == Failure.BAD_REQUEST
    assert server.requests == []
