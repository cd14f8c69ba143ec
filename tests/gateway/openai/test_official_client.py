"""The official client of OpenAI speaks to an agent as to any model."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from speaking import TOKEN, Served, tool

from palinurus.domain.errors import Failure
from palinurus.testing.fakes import Reply, call, calls, fails

pytestmark = pytest.mark.real


@pytest.fixture
async def client(served: Served) -> Any:
    async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key=TOKEN, timeout=60, max_retries=2) as made:
        yield made


ASKED: Any = [{"role": "user", "content": "hi"}]


@pytest.mark.shows("openai (Python)", "chat completions, whole and streamed with usage")
async def test_a_completion_whole_and_streamed(served: Served, client: AsyncOpenAI) -> None:
    served.pal.model.says("Hello there.", "One two three.")
    whole = await client.chat.completions.create(model="palinurus", messages=ASKED)
    assert whole.choices[0].message.content == "Hello there."
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage is not None
    assert whole.usage.total_tokens == 110
    stream = await client.chat.completions.create(
        model="palinurus/main", messages=ASKED, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == "One two three."
    assert chunks[-1].usage is not None


@pytest.mark.shows("openai (Python)", "its stream helper")
async def test_the_clients_own_stream_helper_and_a_typed_answer(served: Served, client: AsyncOpenAI) -> None:
    served.pal.model.says("One two three.")
    async with client.chat.completions.stream(model="palinurus", messages=ASKED) as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == "One two three."


@pytest.mark.shows("openai (Python)", "client tools")
async def test_tools_are_asked_for_and_answered(served: Served, client: AsyncOpenAI) -> None:
    served.pal.model.says(calls(call("weather", place="Ostia")), "It is sunny.")
    messages: Any = [{"role": "user", "content": "weather?"}]
    first = await client.chat.completions.create(model="palinurus", messages=messages, tools=[tool()])  # type: ignore[list-item]
    choice = first.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    (asked,) = choice.message.tool_calls
    assert json.loads(asked.function.arguments) == {"place": "Ostia"}  # type: ignore[union-attr]
    messages += [choice.message, {"role": "tool", "tool_call_id": asked.id, "content": "sunny"}]
    second = await client.chat.completions.create(model="palinurus", messages=messages, tools=[tool()])  # type: ignore[list-item]
    assert second.choices[0].message.content == "It is sunny."
    assert len(await served.keys()) == 1


@pytest.mark.shows("openai (Python)", "client tools in a stream")
async def test_tools_in_a_stream(served: Served, client: AsyncOpenAI) -> None:
    served.pal.model.says(calls(call("weather", place="Ostia"), text="Wait."))
    async with client.chat.completions.stream(model="palinurus", messages=ASKED, tools=[tool()]) as stream:  # type: ignore[list-item]
        async for _ in stream:
            pass
        message = (await stream.get_final_completion()).choices[0].message
    assert message.content == "Wait."
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.name == "weather"


@pytest.mark.shows("openai (Python)", "responses: whole, streamed, gone on from, with tools")
async def test_responses_whole_streamed_and_gone_on_from(served: Served, client: AsyncOpenAI) -> None:
    served.pal.model.says("Hello.", "One two.", calls(call("weather", place="x")), "Sunny.")
    first = await client.responses.create(model="palinurus", input="hi", instructions="Be kind.")
    assert first.output_text == "Hello."
    async with client.responses.stream(model="palinurus", input="more", previous_response_id=first.id) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert final.output_text == "One two."
    spec: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
    third = await client.responses.create(model="palinurus", input="weather?", tools=[spec])
    (asked,) = third.output
    assert asked.type == "function_call"
    result: Any = {"type": "function_call_output", "call_id": asked.call_id, "output": "sun"}
    fourth = await client.responses.create(
        model="palinurus", input=[result], tools=[spec], previous_response_id=third.id
    )
    assert fourth.output_text == "Sunny."


@pytest.mark.shows("openai (Python)", "responses: retrieved again")
async def test_a_response_is_shown_again(served: Served, client: AsyncOpenAI) -> None:
    served.pal.model.says("Hello.", fails(Failure.OVERLOAD, "too busy"))
    first = await client.responses.create(model="palinurus", input="hi")
    again = await client.responses.retrieve(first.id)
    assert (again.id, again.output_text, again.status) == (first.id, "Hello.", "completed")
    assert again.usage == first.usage
    with pytest.raises(openai.APIStatusError) as failed:
        await client.responses.create(model="palinurus", input="hi")
    shown = await client.responses.retrieve(f"resp_{failed.value.response.headers['x-request-id']}")
    assert shown.status == "failed"
    assert shown.error is not None
    assert "too busy" in shown.error.message
    for unknown in ("resp_0123456789abcdef", "nonsense"):
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(unknown)


@pytest.mark.shows("openai (Python)", "models")
async def test_models_are_listed(client: AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["palinurus", "palinurus/main"]
    assert (await client.models.retrieve("palinurus")).id == "palinurus"


@pytest.mark.shows("openai (Python)", "errors are its own types; no double runs")
async def test_errors_are_the_clients_own_and_failed_runs_are_not_tried_again(
    served: Served, client: AsyncOpenAI
) -> None:
    served.pal.model.says(fails(Failure.RATE_LIMIT, "slow down"))
    with pytest.raises(openai.RateLimitError, match="slow down"):
        await client.chat.completions.create(model="palinurus", messages=ASKED)
    assert len(served.pal.model.requests) == 1
    with pytest.raises(openai.NotFoundError):
        await client.chat.completions.create(model="gpt-9", messages=ASKED)
    twice = [tool("read"), tool("read")]
    with pytest.raises(openai.BadRequestError, match="the name read"):
        await client.chat.completions.create(model="palinurus", messages=ASKED, tools=twice)  # type: ignore[arg-type]
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key="wrong").models.list()
    with pytest.raises(openai.APIStatusError, match="no embedder"):
        await client.embeddings.create(model="palinurus", input="x")
    served.pal.model.says(Reply("Half", error=fails(Failure.NETWORK, "the line is dead").error))
    with pytest.raises(openai.APIError, match="the line is dead"):
        async for _ in await client.chat.completions.create(model="palinurus", messages=ASKED, stream=True):
            pass


@pytest.mark.shows("openai (Python)", "idempotency keys")
async def test_the_same_key_is_one_turn(served: Served, client: AsyncOpenAI) -> None:
    headers = {"Idempotency-Key": "once"}
    answers = await asyncio.gather(
        *(
            client.chat.completions.create(model="palinurus", messages=ASKED, user="a", extra_headers=headers)
            for _ in range(5)
        )
    )
    assert len({answer.id for answer in answers}) == 1
    assert len(served.pal.model.requests) == 1
