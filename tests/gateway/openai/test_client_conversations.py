"""Clients that keep the conversation themselves and send all of it each time: the same session goes on."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from speaking import Served, events, tool

from palinurus.context.assemble import violations
from palinurus.domain.messages import AssistantMessage, Message, ToolResult, UserMessage
from palinurus.testing.fakes import call, calls

ASK = calls(call("weather", "c1", place="Ostia"), text="Let me see.")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


async def reply(served: Served, history: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    answer = await served.chat(*history, **more)
    assert answer.status_code == 200, answer.text
    if more.get("stream"):
        chunks = [each["choices"][0]["delta"] for each in events(answer.text)[:-1]]
        return assistant("".join(each.get("content") or "" for each in chunks))
    message: dict[str, Any] = answer.json()["choices"][0]["message"]
    return message


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_of_fifty_messages_is_one_session_whose_requests_repeat_the_one_before(
    served: Served, stream: bool
) -> None:
    """The instructions stay the same, as clients send them each time."""
    history = [{"role": "system", "content": "Answer in Latin. " * 100}]
    for number in range(25):
        history.append(user(f"question {number}"))
        history.append(await reply(served, history, stream=stream))
    assert len(await served.keys()) == 1
    requests = served.pal.model.requests
    for before, after in pairwise(requests):
        assert after.head == before.head
        assert after.messages[: len(before.messages)] == before.messages
    last = [msgspec.json.encode(each) for each in (requests[-1].head, *requests[-1].messages)]
    repeated = [msgspec.json.encode(each) for each in (requests[-2].head, *requests[-2].messages)]
    assert sum(map(len, repeated)) > 0.95 * sum(map(len, last))
    assert [type(each) for each in requests[-1].messages[:2]] == [UserMessage, AssistantMessage]


async def test_calls_and_results_in_the_middle_are_real_entries(served: Served) -> None:
    served.pal.model.says(ASK, "Rain.", "Since noon.")
    history = [user("weather?")]
    asked = await reply(served, history, tools=[tool()])
    history += [asked, {"role": "tool", "tool_call_id": asked["tool_calls"][0]["id"], "content": "rainy"}]
    history += [await reply(served, history, tools=[tool()]), user("since when?")]
    await reply(served, history, tools=[tool()])
    assert len(await served.keys()) == 1
    kinds = [UserMessage, AssistantMessage, ToolResult, AssistantMessage, UserMessage]
    assert [type(each) for each in served.pal.model.requests[-1].messages] == kinds
    assert violations(served.pal.model.requests[-1].messages) == []


@pytest.mark.parametrize("stream", [False, True])
async def test_text_around_a_call_of_ours_is_recognised_as_it_was_sent(served: Served, stream: bool) -> None:
    served.pal.model.says(calls(call("ls", "c", path="."), text="Looking."), "Found.", "Yes.")
    said = await reply(served, [user("look")], stream=stream)
    await reply(served, [user("look"), said, user("sure?")])
    assert len(await served.keys()) == 1


async def test_a_changed_history_and_another_reply_are_other_conversations(served: Served) -> None:
    first = await reply(served, [user("hi")])
    await reply(served, [user("hello"), first, user("on")])  # an edited message
    await reply(served, [user("hi"), assistant("Something else."), user("on")])
    assert len(await served.keys()) == 3
    await reply(served, [user("hi"), first, user("on")])
    assert len(await served.keys()) == 3
    await reply(served, [user("hi"), first, user("on")])  # asked for another reply: the session has gone on
    assert len(await served.keys()) == 4


async def test_of_two_requests_that_go_on_at_once_one_gets_the_session(served: Served) -> None:
    first = await reply(served, [user("hi")])
    await asyncio.gather(*(reply(served, [user("hi"), first, user(f"on {number}")]) for number in range(4)))
    assert len(await served.keys()) == 4
    for request in served.pal.model.requests:
        assert sum(isinstance(each, UserMessage) for each in request.messages) <= 2


async def test_a_session_with_a_name_is_not_gone_on_with_by_who_does_not_name_it(served: Served) -> None:
    named = await reply(served, [user("my boat is green")], user="alice")
    await reply(served, [user("my boat is green"), named, user("what colour?")])
    assert len(await served.keys()) == 2


async def test_a_conversation_goes_on_in_any_format(served: Served) -> None:
    first = await reply(served, [user("hi")])
    items = [
        user("hi"),
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": first["content"]}]},
    ]
    answer = await served.respond([*items, user("on")])
    text = answer.json()["output"][0]["content"][0]["text"]
    said = [user("hi"), first, user("on"), {"role": "assistant", "content": [{"type": "text", "text": text}]}]
    body = {"model": "palinurus", "max_tokens": 9, "messages": [*said, user("and on")]}
    assert (await served.http.post("/v1/messages", json=body)).status_code == 200
    assert len(await served.keys()) == 1


async def test_after_a_restart_the_history_is_a_session_that_repeats_what_was_sent_before(served: Served) -> None:
    served.pal.model.says("One.", ASK, "Rain.", "On.")
    history = [user("hi")]
    history += [await reply(served, history), user("weather?")]
    asked = await reply(served, history, tools=[tool()])
    history += [asked, {"role": "tool", "tool_call_id": asked["tool_calls"][0]["id"], "content": "rainy"}]
    history += [await reply(served, history, tools=[tool()]), user("on")]
    vars(served.services).pop("kept")  # as after a restart
    await reply(served, history, tools=[tool()])
    assert len(await served.keys()) == 2
    before, after = (request.messages for request in served.pal.model.requests[-2:])
    assert [*map(said, before)] == [*map(said, after)][: len(before)]
    assert len(after) == len(before) + 2
    assert violations(after) == []
    assert served.pal.model.requests[-1].head == served.pal.model.requests[-2].head


def said(message: Message) -> tuple[type[Message], str, list[Any]]:
    made = message.calls if isinstance(message, AssistantMessage) else ()
    return type(message), message.text, [(each.name, each.arguments) for each in made]
