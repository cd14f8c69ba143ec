"""What every Provider keeps: one last event, no exception, prompt letting go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, tzinfo

import pytest

from palinurus.domain.messages import AssistantMessage, Message, ToolCall, ToolResult, UserMessage
from palinurus.domain.tool import ToolSpec
from palinurus.providers.provider import (
    Head,
    ModelRequest,
    Provider,
    ReplyDone,
    ReplyEvent,
    ReplyFailed,
    TextDelta,
    ThinkingTextDelta,
)
from palinurus.providers.scout.scout import Scout
from palinurus.providers.wires.anthropic import AnthropicProvider
from palinurus.providers.wires.google import GoogleProvider
from palinurus.providers.wires.openai import OpenAIProvider
from palinurus.providers.wires.responses import ResponsesProvider
from support.wire import Calls, Json, Says, WireServer, dialect_of

TOOLS = tuple(ToolSpec(name, name, {"type": "object"}) for name in ("note", "grep", "ls", "read"))


class StoppedClock:
    @property
    def zone(self) -> tzinfo:
        return UTC

    def now_ms(self) -> int:
        return 1_794_700_800_000


WIRES: dict[str, tuple[type[OpenAIProvider | ResponsesProvider | AnthropicProvider | GoogleProvider], str]] = {
    "openai": (OpenAIProvider, "/chat/completions"),
    "responses": (ResponsesProvider, "/responses"),
    "anthropic": (AnthropicProvider, "/messages"),
    "google": (GoogleProvider, ":streamGenerateContent"),
}


@pytest.fixture(params=[*WIRES, "scout"])
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[Provider]:
    if request.param == "scout":
        yield Scout(StoppedClock())
        return
    cls, path = WIRES[request.param]

    def model(body: Json) -> Says | Calls:
        """A model that lists the files first and then speaks of them."""
        last = dialect_of(path).last(body)
        return Says(last.text, chunks=3) if last.role == "tool" else Calls(("ls", {}))

    async with WireServer(otherwise=model) as server:
        opened: Provider = cls("test", server.base_url, None, windows={"m": 1000}, clock=StoppedClock())
        yield opened
        await opened.close()


def asking(*messages: Message) -> ModelRequest:
    return ModelRequest("m", Head("be kind", TOOLS), messages)


CALLED = AssistantMessage((ToolCall("c", "ls", {}),), stop_reason="toolUse")
CONVERSATIONS = [
    asking(UserMessage("list files")),
    asking(UserMessage("list files"), CALLED, ToolResult("c", "ls", "AGENTS.md\nmemory/")),
    asking(UserMessage("list files"), CALLED, ToolResult("c", "ls", "no such directory", is_error=True)),
    asking(UserMessage("")),
    asking(),
]


async def heard(provider: Provider, request: ModelRequest) -> list[ReplyEvent]:
    async with asyncio.timeout(60):
        return [event async for event in provider.stream(request)]


@pytest.mark.parametrize("request_sent", CONVERSATIONS)
async def test_the_last_event_and_only_the_last_says_how_it_ended(
    provider: Provider, request_sent: ModelRequest
) -> None:
    *deltas, last = await heard(provider, request_sent)
    assert isinstance(last, ReplyDone | ReplyFailed)
    assert all(isinstance(event, TextDelta | ThinkingTextDelta) for event in deltas)


async def test_the_deltas_are_the_text_of_the_message(provider: Provider) -> None:
    *deltas, last = await heard(provider, CONVERSATIONS[1])
    assert isinstance(last, ReplyDone)
    assert "".join(event.text for event in deltas if isinstance(event, TextDelta)) == last.message.text
    assert "AGENTS.md" in last.message.text
    assert last.message.stop_reason == "stop"


async def test_a_call_comes_with_an_id_a_name_and_the_stop_reason_for_tools(provider: Provider) -> None:
    last = (await heard(provider, CONVERSATIONS[0]))[-1]
    assert isinstance(last, ReplyDone)
    assert last.message.stop_reason == "toolUse"
    assert [(bool(call.id), call.name) for call in last.message.calls] == [(True, "ls")]


async def test_the_message_says_who_spoke_on_which_wire_and_when(provider: Provider) -> None:
    last = (await heard(provider, CONVERSATIONS[0]))[-1]
    assert isinstance(last, ReplyDone)
    message = last.message
    assert (message.provider, message.model, message.api) == (provider.name, "m", provider.wire)
    assert message.timestamp == StoppedClock().now_ms()


async def test_a_reader_may_leave_in_the_middle_and_come_back(provider: Provider) -> None:
    stream = provider.stream(CONVERSATIONS[1])
    assert isinstance(stream, AsyncGenerator)
    async with asyncio.timeout(60):
        assert isinstance(await anext(stream), TextDelta)
        await stream.aclose()
    assert isinstance((await heard(provider, CONVERSATIONS[1]))[-1], ReplyDone)


async def test_closing_twice_is_harmless_and_the_provider_can_be_used_again(provider: Provider) -> None:
    await heard(provider, CONVERSATIONS[0])
    await provider.close()
    await provider.close()
    assert isinstance((await heard(provider, CONVERSATIONS[0]))[-1], ReplyDone)


def test_every_model_has_a_window(provider: Provider) -> None:
    assert provider.context_window("m") > 0
    assert provider.context_window("unheard of") > 0
