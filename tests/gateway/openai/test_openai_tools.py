"""Tools that the client does: the call ends the turn, the result goes on with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from speaking import Served, events, tool

from palinurus.context.assemble import NO_RESULT, violations
from palinurus.domain.messages import AssistantMessage, Origin, ToolCall, ToolResult, UserMessage
from palinurus.extensions.openai_api.client_tools import entries_of
from palinurus.extensions.openai_api.messages import ClientCall, ClientMessage
from palinurus.testing.fakes import call, calls

ASK = calls(call("weather", "c1", place="Ostia"))


def _asked(answer: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "tool_calls"
    return choice["message"], choice["message"]["tool_calls"]


def _result(call: dict[str, Any], text: str = "sunny") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


async def test_a_call_of_a_clients_tool_ends_the_turn_and_its_result_goes_on(served: Served) -> None:
    served.pal.model.says(ASK, "It is sunny in Ostia.")
    message, (asked,) = _asked((await served.chat("weather?", tools=[tool()])).json())
    assert message["content"] is None
    assert asked["function"] == {"name": "weather", "arguments": '{"place":"Ostia"}'}
    question = {"role": "user", "content": "weather?"}
    answer = (await served.chat(question, message, _result(asked), tools=[tool()])).json()
    assert answer["choices"][0]["message"]["content"] == "It is sunny in Ostia."
    (key,) = await served.keys()
    said = await served.pal.messages(key)
    assert [type(each) for each in said] == [UserMessage, AssistantMessage, ToolResult, AssistantMessage]
    assert said[2].text == "sunny"
    assert said[2].tool_call_id == "c1"
    assert said[2].origin == Origin.OUTSIDE


async def test_the_prompt_of_the_second_turn_goes_on_with_the_first(served: Served) -> None:
    served.pal.model.says(ASK, "Sunny.")
    _, (asked,) = _asked((await served.chat("weather?", tools=[tool()], user="a")).json())
    await served.chat(_result(asked), tools=[tool()], user="a")
    first, second = served.pal.model.requests
    assert first.head == second.head
    assert "weather" in {spec.name for spec in first.head.tools}
    assert second.messages[: len(first.messages)] == first.messages
    assert violations(second.messages) == []


async def test_a_stream_tells_the_calls_in_its_last_chunks(served: Served) -> None:
    served.pal.model.says(
        calls(call("weather", place="Ostia"), call("weather", "c2", place="Roma"), text="Let me see.")
    )
    *chunks, _ = events((await served.chat("weather?", tools=[tool()], stream=True)).text)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content", "") for delta in deltas) == "Let me see."
    (told,) = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
    assert [(each["index"], each["function"]["arguments"]) for each in told] == [
        (0, '{"place":"Ostia"}'),
        (1, '{"place":"Roma"}'),
    ]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_our_own_tools_are_run_beside_the_clients(served: Served) -> None:
    both = calls(call("read", "mine", path="SOUL.md"), call("weather", "yours", place="Ostia"))
    served.pal.model.says(both, "Done.")
    _, told = _asked((await served.chat("go", tools=[tool()], user="a")).json())
    assert [each["function"]["name"] for each in told] == ["weather"]
    await served.chat(_result(told[0]), tools=[tool()], user="a")
    messages = served.pal.model.requests[-1].messages
    assert violations(messages) == []
    results = [each for each in messages if isinstance(each, ToolResult)]
    assert "Curious and calm" in results[0].text
    assert results[1].text == "sunny"


async def test_a_call_that_nobody_answers_is_closed_when_somebody_speaks(served: Served) -> None:
    served.pal.model.says(ASK, "Never mind then.", "Too late.")
    _, (asked,) = _asked((await served.chat("weather?", tools=[tool()], user="a")).json())
    await served.chat("forget it", user="a")
    messages = served.pal.model.requests[-1].messages
    assert violations(messages) == []
    assert [each.text for each in messages if isinstance(each, ToolResult)] == [NO_RESULT]
    late = await served.chat(_result(asked), tools=[tool()], user="a")
    assert late.status_code == 200  # as labelled text: nobody waits for it any more
    last = served.pal.model.requests[-1].messages
    assert violations(last) == []
    (note,) = [note for note in last[-1].context if note.kind == "history"]
    assert note.text == "Tool:tool: sunny"
    assert note.origin == Origin.OUTSIDE


async def test_a_result_may_come_after_a_restart_and_with_further_words(served: Served) -> None:
    served.pal.model.says(ASK, "Sunny, and yes.")
    message, (asked,) = _asked((await served.chat("weather?", tools=[tool()])).json())
    served.pal.dispatcher.runs._ended.clear()  # as after a restart: only the rows know of the run
    history = [{"role": "user", "content": "weather?"}, message, _result(asked)]
    answer = await served.chat(*history, "and is it warm?", tools=[tool()])
    assert answer.json()["choices"][0]["message"]["content"] == "Sunny, and yes."
    last = served.pal.model.requests[-1].messages
    assert [type(each) for each in last] == [UserMessage, AssistantMessage, ToolResult, UserMessage]
    assert last[-1].text == "and is it warm?"
    assert violations(last) == []


async def test_a_part_of_the_results_is_not_enough(served: Served) -> None:
    served.pal.model.says(calls(call("weather", "a", place="x"), call("weather", "b", place="y")))
    _, (first, _) = _asked((await served.chat("weather?", tools=[tool()])).json())
    answer = await served.chat(_result(first), tools=[tool()])
    assert answer.status_code == 400
    assert "has no result" in answer.json()["error"]["message"]


async def test_a_result_that_nobody_asked_for_is_read_as_history(served: Served) -> None:
    history = [
        {"role": "user", "content": "weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_elsewhere", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_elsewhere", "content": "rainy"},
    ]
    answer = await served.chat(*history, tools=[tool()])
    assert answer.status_code == 200
    messages = served.pal.model.requests[0].messages
    assert [type(each) for each in messages] == [UserMessage, AssistantMessage, ToolResult, UserMessage]
    assert violations(messages) == []
    assert (messages[1].calls[0].name, messages[2].text, messages[2].origin) == ("weather", "rainy", Origin.OUTSIDE)


async def test_a_history_in_any_disorder_is_a_valid_one(served: Served) -> None:
    def asks(name: str, arguments: str, call_id: str = "c") -> dict[str, Any]:
        return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}

    deep = '{"a":' * 900 + "1" + "}" * 900
    history = [
        {"role": "assistant", "content": "I begin."},
        {"role": "assistant", "tool_calls": [asks("weather", "{}"), asks("no name", "{}"), asks("weather", "[1]", "")]},
        {"role": "tool", "tool_call_id": "c", "content": "rainy"},
        {"role": "tool", "tool_call_id": "c", "content": "again"},
        {"role": "tool", "tool_call_id": "other", "content": "from nowhere"},
        {"role": "user", "content": "one"},
        {"role": "user", "content": "two"},
        {"role": "assistant", "tool_calls": [asks("weather", deep)]},
        {"role": "function", "name": "old", "content": "of the old form"},
    ]
    answer = await served.chat(*history, "on", tools=[tool()])
    assert answer.status_code == 200, answer.text
    (request,) = served.pal.model.requests
    assert violations(request.messages) == []
    said = "\n".join(each.text for each in request.messages)
    assert all(words in said for words in ("I begin.", "[called no name({})]", "rainy", "one", "two"))
    notes = [note for each in request.messages if isinstance(each, UserMessage) for note in each.context]
    told = [(note.text, note.origin) for note in notes if note.kind == "history"]
    assert told == [("Tool:tool: from nowhere", Origin.OUTSIDE), ("Tool:old: of the old form", Origin.OUTSIDE)]


OURS = [tool("memory_write"), tool("read")]  # coding agents bring `read`, `write` and `exec` of their own


async def test_a_tool_named_like_one_of_ours_is_the_clients(served: Served) -> None:
    served.pal.model.says(calls(call("memory_write", "c1", text="theirs"), call("ls", "c2", path=".")), "Written.")
    _, (asked,) = _asked((await served.chat("write it", tools=OURS, user="a")).json())
    assert asked["function"] == {"name": "memory_write", "arguments": '{"text":"theirs"}'}
    offered = {spec.name: spec.description for spec in served.pal.model.requests[0].head.tools}
    assert (offered["memory_write"], offered["read"]) == ("Look.", "Look.")
    again = (await served.chat(_result(asked, "done"), tools=OURS, user="a")).json()
    assert again["choices"][0]["message"]["content"] == "Written."
    (key,) = await served.keys()
    assert {each.tool_name: each.origin for each in await served.pal.tool_results(key)} == {
        "memory_write": Origin.OUTSIDE,
        "ls": Origin.OWNER,
    }
    assert not served.pal.files.boundary.root.joinpath("memory").exists()


async def test_a_call_for_a_client_that_has_left_is_never_run_by_our_tool_of_that_name(served: Served) -> None:
    served.pal.model.says(calls(call("memory_write", "c1", text="theirs")), "Hello.")
    await served.chat("write it", tools=OURS, user="a")
    await served.chat("hi", user="a")  # without its tools: the agent's own are offered again
    last = served.pal.model.requests[-1]
    assert [each.text for each in last.messages if isinstance(each, ToolResult)] == [NO_RESULT]
    assert {spec.name: spec.description for spec in last.head.tools}["memory_write"] != "Look."
    assert not served.pal.files.boundary.root.joinpath("memory").exists()


async def test_names_that_are_doubled_or_wrong_are_refused(served: Served) -> None:
    for tools in (
        [tool(), tool()],
        [tool("no spaces")],
        [{"type": "web_search"}],
        [{"type": "function"}],
        [tool(f"t{n}") for n in range(200)],
    ):
        answer = await served.chat("hi", tools=tools)
        assert answer.status_code == 400, tools[0]
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"properties": {"x": deep}}
    odd = {"type": "function", "function": {"name": "deep", "parameters": deep}}
    assert (await served.chat("hi", tools=[odd])).status_code == 400
    assert served.pal.model.requests == []


async def test_tool_choice_is_for_the_first_reply_and_stands_in_the_instructions_too(served: Served) -> None:
    await served.chat("hi", tools=[tool()], tool_choice="none")
    assert "weather" not in {spec.name for spec in served.pal.model.requests[0].head.tools}
    assert served.pal.model.requests[0].tool_choice == ""
    named = {"type": "function", "function": {"name": "weather"}}
    await served.chat("hi", tools=[tool()], tool_choice=named)
    notes = served.pal.model.requests[1].messages[0].context
    assert [note.text for note in notes if note.kind == "notice"] == ["Call the tool weather before you answer."]
    assert served.pal.model.requests[1].tool_choice == "weather"
    served.pal.model.says(calls(call("ls", "c1", path=".")), "Done.")
    await served.chat("hi", tools=[tool()], tool_choice="required")
    assert [request.tool_choice for request in served.pal.model.requests[2:]] == ["*", ""]
    await served.chat("hi", tool_choice="required")  # there is nothing to require
    assert served.pal.model.requests[-1].tool_choice == ""
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "other"}}]}
    both = [tool(), tool("other")]
    await served.chat("hi", tools=both, tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    (request,) = [each for each in served.pal.model.requests if "other" in {spec.name for spec in each.head.tools}]
    assert (request.tool_choice, "weather" in {spec.name for spec in request.head.tools}) == ("*", False)
    unknown = await served.chat("hi", tools=[tool("other")], tool_choice=named)
    assert unknown.status_code == 400


async def test_a_turn_that_asked_its_client_gives_the_same_answer_twice(served: Served) -> None:
    served.pal.model.says(ASK)
    first = await served.chat("weather?", tools=[tool()], headers={"idempotency-key": "k"})
    again = await served.chat("weather?", tools=[tool()], headers={"idempotency-key": "k"})
    assert again.json() == first.json()
    assert len(served.pal.model.requests) == 1


async def test_of_two_clients_with_the_same_result_one_goes_on(served: Served) -> None:
    served.pal.model.says(ASK)
    message, (asked,) = _asked((await served.chat("weather?", tools=[tool()])).json())
    history = [{"role": "user", "content": "weather?"}, message, _result(asked)]
    answers = await asyncio.gather(*(served.chat(*history, tools=[tool()]) for _ in range(4)))
    assert any(answer.status_code == 200 for answer in answers)
    assert all(answer.status_code in (200, 500) for answer in answers)
    for request in served.pal.model.requests:
        assert violations(request.messages) == []


async def test_a_long_result_is_cut_to_what_the_model_can_use(served: Served) -> None:
    served.pal.model.says(ASK)
    _, (asked,) = _asked((await served.chat("weather?", tools=[tool()])).json())
    await served.chat(_result(asked, "sun " * 100_000), tools=[tool()])
    (result,) = [each for each in served.pal.model.requests[-1].messages if isinstance(each, ToolResult)]
    assert len(result.text) < 17_000
    assert "characters cut here" in result.text


def test_a_reply_in_many_parts_is_put_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0

    def count(reply: AssistantMessage) -> tuple[ToolCall, ...]:
        nonlocal looked_at
        looked_at += len(reply.content)
        return found.__get__(reply)

    found = AssistantMessage.calls
    monkeypatch.setattr(AssistantMessage, "calls", property(count))
    said = [ClientMessage("assistant", "", calls=(ClientCall(f"c{at}", "weather", "{}"),)) for at in range(500)]
    (reply, result), notes = entries_of([*said, ClientMessage("tool", "sunny", call_id="c3")], iter(()), 0)
    assert (len(reply.content), type(result), notes) == (500, ToolResult, ())
    assert looked_at <= 1_000
