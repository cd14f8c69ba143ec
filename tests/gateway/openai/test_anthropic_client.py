"""Anthropic's own client against /v1/messages: what it parses is what we mean."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import AsyncAnthropic
from speaking import TOKEN, Served, events

from palinurus.context.assemble import violations
from palinurus.domain.errors import Failure
from palinurus.domain.messages import Image, Origin, ToolResult, Usage, UserMessage
from palinurus.gateway.websocket.methods import Endpoints
from palinurus.testing.fakes import Reply, call, calls, fails

HI: Any = [{"role": "user", "content": "hi"}]
WEATHER: Any = {
    "name": "weather",
    "description": "Look.",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}},
}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ASK = calls(call("weather", "c1", place="Ostia"), text="Let me see.")


@pytest.fixture
async def client(served: Served) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=served.url, api_key=TOKEN, max_retries=2, timeout=60) as opened:
        yield opened


def create(client: AsyncAnthropic, messages: Any = HI, **more: Any) -> Any:
    return client.messages.create(model="palinurus", max_tokens=100, messages=messages, **more)


@pytest.mark.shows("Anthropic SDK (Python)", "messages, whole and streamed")
async def test_a_message_whole_and_streamed(served: Served, client: AsyncAnthropic) -> None:
    served.pal.model.says(Reply("Hello.", usage=Usage(10, 3, 5, 2)), "One two three.")
    message = await create(client, system="Be brief.")
    assert [block.text for block in message.content] == ["Hello."]
    assert (message.stop_reason, message.role, message.model) == ("end_turn", "assistant", "palinurus")
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (10, 5, 2)
    assert usage.output_tokens == 3
    async with client.messages.stream(model="palinurus", max_tokens=100, messages=HI) as stream:
        assert "".join([text async for text in stream.text_stream]) == "One two three."
        final = await stream.get_final_message()
    assert (final.content[0].text, final.stop_reason) == ("One two three.", "end_turn")  # type: ignore[union-attr]
    (note,) = [each for each in served.pal.model.requests[0].messages[0].context if each.kind == "notice"]
    assert note.text == "Be brief."


@pytest.mark.shows("Anthropic SDK (Python)", "client tools")
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_tool_is_called_and_its_result_goes_on(served: Served, client: AsyncAnthropic, streamed: bool) -> None:
    served.pal.model.says(ASK, "It rains.")
    if streamed:
        async with client.messages.stream(model="palinurus", max_tokens=100, messages=HI, tools=[WEATHER]) as stream:
            asked = await stream.get_final_message()
    else:
        asked = await create(client, tools=[WEATHER])
    text, use = asked.content
    assert (text.type, use.type, asked.stop_reason) == ("text", "tool_use", "tool_use")
    assert (use.name, use.input) == ("weather", {"place": "Ostia"})
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "no such place", "is_error": True}
    said = [*HI, {"role": "assistant", "content": asked.content}, {"role": "user", "content": [result]}]
    again = await create(client, said, tools=[WEATHER])
    assert again.content[0].text == "It rains."
    (key,) = await served.keys()  # both requests are one session, without a name
    (stored,) = await served.pal.tool_results(key)
    assert (stored.text, stored.is_error, stored.origin) == ("no such place", True, Origin.OUTSIDE)
    assert violations(served.pal.model.requests[-1].messages) == []


@pytest.mark.shows("Anthropic SDK (Python)", "pictures")
async def test_pictures_in_messages_and_in_results(served: Served, client: AsyncAnthropic) -> None:
    served.pal.model.says("A dot.", ASK, "The same dot.")
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    await create(client, [{"role": "user", "content": [{"type": "text", "text": "What?"}, picture]}])
    sent = served.pal.model.requests[0].messages[-1].content
    assert any(isinstance(block, Image) for block in sent)
    asked = await create(client, tools=[WEATHER])
    result = {"type": "tool_result", "tool_use_id": asked.content[1].id, "content": [picture]}
    said = [*HI, {"role": "assistant", "content": asked.content}, {"role": "user", "content": [result]}]
    await create(client, said, tools=[WEATHER])
    (stored,) = [each for each in served.pal.model.requests[-1].messages if isinstance(each, ToolResult)]
    assert any(isinstance(block, Image) for block in stored.content)


async def test_choices_of_tools_are_passed_on(served: Served, client: AsyncAnthropic) -> None:
    await create(client, tools=[WEATHER], tool_choice={"type": "none"})
    assert "weather" not in {spec.name for spec in served.pal.model.requests[0].head.tools}
    await create(client, tools=[WEATHER], tool_choice={"type": "tool", "name": "weather"})
    notes = [each.text for each in served.pal.model.requests[1].messages[-1].context if each.kind == "notice"]
    assert notes == ["Call the tool weather before you answer."]


@pytest.mark.shows("Anthropic SDK (Python)", "errors are its own types; no double runs")
async def test_errors_are_the_clients_own_and_failed_runs_are_not_tried_again(
    served: Served, client: AsyncAnthropic
) -> None:
    served.pal.model.says(fails(Failure.RATE_LIMIT, "slow down"))
    with pytest.raises(anthropic.RateLimitError, match="slow down"):
        await create(client)
    assert len(served.pal.model.requests) == 1
    with pytest.raises(anthropic.NotFoundError):
        await client.messages.create(model="claude-9", max_tokens=1, messages=HI)
    with pytest.raises(anthropic.AuthenticationError):
        await create(client.with_options(api_key="wrong"))
    source = {"type": "text", "media_type": "text/plain", "data": "x"}
    with pytest.raises(anthropic.BadRequestError, match="'document' is not supported"):
        await create(client, [{"role": "user", "content": [{"type": "document", "source": source}]}])
    with pytest.raises(anthropic.BadRequestError, match="web_search"):
        await create(client, tools=[{"type": "web_search_20250305", "name": "web_search"}])
    served.pal.model.says(Reply("Half", error=fails(Failure.NETWORK, "the line is dead").error))
    with pytest.raises(anthropic.APIError, match="the line is dead"):
        async with client.messages.stream(model="palinurus", max_tokens=100, messages=HI) as stream:
            await stream.get_final_message()


async def test_a_refusal_is_an_answer(served: Served, client: AsyncAnthropic) -> None:
    served.pal.model.says(fails(Failure.REFUSAL, "no"))
    assert (await create(client)).stop_reason == "refusal"


async def test_thinking_that_is_sent_back_is_left_out_and_roles_may_repeat(
    served: Served, client: AsyncAnthropic
) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    said = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "two"}]},
        {"role": "user", "content": "three"},
        {"role": "user", "content": "four"},
    ]
    await create(client, said)
    last = served.pal.model.requests[0].messages[-1]
    assert isinstance(last, UserMessage)
    assert last.text == "four"
    assert "hm" not in str(served.pal.model.requests[0].messages)


async def test_the_token_of_a_reader_is_not_enough_in_either_header(served: Served) -> None:
    _, secret = await served.register.make_token("reader", ["read"])
    for headers in ({"x-api-key": secret}, {"authorization": f"Bearer {secret}"}):
        async with httpx2.AsyncClient(base_url=served.url, headers=headers, timeout=60) as http:
            answer = await http.post("/v1/messages", json={"model": "palinurus", "messages": HI})
        assert answer.status_code == 403
        assert answer.json()["type"] == "error"
        assert answer.json()["error"]["type"] == "permission_error"


async def test_events_have_names_and_end_with_message_stop(served: Served) -> None:
    served.pal.model.says("Hello.")
    body = {"model": "palinurus", "messages": HI, "stream": True, "max_tokens": 9}
    answer = await asyncio.wait_for(served.http.post("/v1/messages", json=body), 60)
    kinds = [each["type"] for each in events(answer.text)]
    assert kinds == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * (len(kinds) - 5),
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert [line[7:] for line in answer.text.splitlines() if line.startswith("event: ")] == kinds


async def test_the_endpoint_can_be_switched_off(open_gateway: Any) -> None:
    served = await open_gateway(Endpoints(messages=False))
    answer = await served.http.post("/v1/messages", json={"model": "palinurus", "messages": HI})
    assert answer.status_code == 404
    assert "gateway.http.endpoints.messages.enabled" in answer.json()["error"]["message"]
