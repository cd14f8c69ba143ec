"""POST /v1/responses, over HTTP."""

from __future__ import annotations

from typing import Any

from speaking import Served, events

from palinurus.context.assemble import violations
from palinurus.domain.errors import Failure
from palinurus.domain.messages import ToolResult
from palinurus.testing.fakes import Reply, call, calls, fails

TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


async def test_a_string_is_answered_as_a_response(served: Served) -> None:
    served.pal.model.says("Hello.")
    answer = (await served.respond("hi", instructions="Be kind.", metadata={"a": "b"})).json()
    (item,) = answer["output"]
    assert item["content"][0]["text"] == "Hello."
    assert answer["status"] == "completed"
    assert answer["metadata"] == {"a": "b"}
    assert answer["usage"]["input_tokens"] == 100
    notes = served.pal.model.requests[0].messages[0].context
    assert [note.text for note in notes if note.kind == "notice"] == ["Be kind."]


async def test_a_previous_response_is_gone_on_from(served: Served) -> None:
    first = (await served.respond("my boat is green")).json()
    served.pal.dispatcher.runs._ended.clear()  # as after a restart
    second = (await served.respond("what colour?", previous_response_id=first["id"])).json()
    assert len(await served.keys()) == 1
    assert len(served.pal.model.requests[1].messages) == 3
    assert second["previous_response_id"] == first["id"]
    for unknown in ("resp_0000000000000000", "../x", "resp_x"):
        answer = await served.respond("hi", previous_response_id=unknown)
        assert answer.status_code == 404
        assert answer.json()["error"]["param"] == "previous_response_id"


async def test_a_call_and_its_output_go_on_with_the_turn(served: Served) -> None:
    served.pal.model.says(calls(call("weather", "c1")), "Sunny.")
    first = (await served.respond("weather?", tools=[TOOL])).json()
    (asked,) = first["output"]
    assert asked["type"] == "function_call"
    output = {"type": "function_call_output", "call_id": asked["call_id"], "output": "sun"}
    second = (await served.respond([output], tools=[TOOL], previous_response_id=first["id"])).json()
    assert second["output"][0]["content"][0]["text"] == "Sunny."
    messages = served.pal.model.requests[-1].messages
    assert violations(messages) == []
    assert [each.text for each in messages if isinstance(each, ToolResult)] == ["sun"]


async def test_parallel_calls_may_be_sent_back_with_their_outputs_between_them(served: Served) -> None:
    served.pal.model.says(calls(call("weather", "c1"), call("weather", "c2")), "Both.")
    first = (await served.respond("weather?", tools=[TOOL])).json()
    items: list[Any] = [{"role": "user", "content": "weather?"}]
    for asked in first["output"]:
        items += [asked, {"type": "function_call_output", "call_id": asked["call_id"], "output": asked["call_id"]}]
    second = (await served.respond(items, tools=[TOOL])).json()
    assert second["output"][0]["content"][0]["text"] == "Both."
    assert len(await served.keys()) == 1


async def test_a_stream_tells_its_story_in_order(served: Served) -> None:
    served.pal.model.says(calls(call("weather", "c1"), text="Let me see."))
    answer = await served.respond("weather?", stream=True, tools=[TOOL])
    *told, done = events(answer.text)
    assert done == "[DONE]"
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    kinds = [event["type"].removeprefix("response.") for event in told]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    deltas = [event["delta"] for event in told if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == "Let me see."
    rest = [kind for kind in kinds[4:] if kind != "output_text.delta"]
    assert rest == [
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert [item["type"] for item in told[-1]["response"]["output"]] == ["message", "function_call"]


async def test_failures_are_told_by_status_or_by_the_last_event(served: Served) -> None:
    served.pal.model.says(fails(Failure.RATE_LIMIT))
    assert (await served.respond("hi", stream=True)).status_code == 429
    served.pal.model.says(Reply("Half", error=fails(Failure.NETWORK, "gone").error))
    *told, _ = events((await served.respond("hi", stream=True)).text)
    assert told[-1]["type"] == "response.failed"
    assert "gone" in told[-1]["response"]["error"]["message"]


async def test_items_of_all_kinds_are_read_or_refused(served: Served) -> None:
    items = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
        {"role": "user", "content": "and?"},
    ]
    assert (await served.respond(items)).status_code == 200
    messages = served.pal.model.requests[0].messages
    assert [each.text for each in messages] == ["hi", "Hello.", "and?"]
    assert {note.kind: note.text for note in messages[-1].context}["notice"] == "Be brief."
    for body in (
        [{"type": "computer_call_output", "call_id": "x"}],
        [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}],
        [],
        "",
        7,
    ):
        assert (await served.respond(body)).status_code == 400, body
    for further in ({"background": True}, {"conversation": "c"}, {"tools": [{"type": "web_search"}]}):
        assert (await served.respond("hi", **further)).status_code == 400, further
