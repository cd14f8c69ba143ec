"""Replies in a form: told and forced where that is possible, and checked before the client gets them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from speaking import Served, events

from palinurus.domain.messages import ReplyFormat, UserMessage
from palinurus.extensions.openai_api.reply_format import SchemaCheck
from palinurus.providers.provider import Head, ModelRequest
from palinurus.providers.wires.openai import to_openai
from palinurus.providers.wires.responses import to_responses
from palinurus.testing.fakes import call, calls

NODE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "enum": ["Aster", "Iris"]},
        "berths": {"type": ["integer", "null"]},
        "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name"],
    "additionalProperties": False,
}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "boat", "schema": NODE, "strict": True}}
OBJECT = {"type": "json_object"}
GOOD = '{"name":"Aster","berths":4,"next":{"name":"Iris","next":null},"tags":["old"]}'


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_of_the_form_comes_without_its_fence_and_without_what_was_said_before_a_tool(
    served: Served, stream: bool
) -> None:
    served.pal.model.says(calls(call("ls", path="."), text="Let me look."), f"```json\n{GOOD}\n```")
    answer = await served.chat("which boat?", response_format=SCHEMA, stream=stream)
    if stream:
        chunks = [each["choices"][0]["delta"].get("content") or "" for each in events(answer.text)[:-1]]
        assert "".join(chunks) == GOOD
    else:
        assert answer.json()["choices"][0]["message"]["content"] == GOOD
    assert served.pal.model.requests[0].reply_format == ReplyFormat(NODE, "boat", strict=True)
    assert served.pal.model.requests[1].reply_format == ReplyFormat(NODE, "boat", strict=True)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("form", "reply", "why"),
    [
        (OBJECT, "Aster is a boat.", "not JSON"),
        (OBJECT, "[1]", "$ is not object"),
        (OBJECT, "[" * 100_000, "not JSON"),
        (SCHEMA, '{"name": "Rose"}', "$.name is none of"),
        (SCHEMA, '{"berths": 1}', "$.name is missing"),
        (SCHEMA, '{"name": "Iris", "berths": true}', "$.berths is not"),
        (SCHEMA, '{"name": "Iris", "mast": 1}', "$.mast is not in the schema"),
        (SCHEMA, '{"name": "Iris", "tags": ["a", 2]}', "$.tags[1] is not string"),
        (SCHEMA, '{"name": "Iris", "next": {"name": 1}}', "$.next matches none"),
    ],
)
async def test_a_reply_of_another_form_is_an_error(
    served: Served, form: Any, reply: str, why: str, stream: bool
) -> None:
    served.pal.model.says(reply)
    answer = await served.chat("which boat?", response_format=form, stream=stream)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (502, "invalid_reply_format")
    assert why in error["message"]
    assert answer.headers["x-should-retry"] == "false"


async def test_forms_of_the_other_formats_are_checked_too(served: Served) -> None:
    inner = {"type": "json_schema", "name": "boat", "schema": NODE}
    body: dict[str, Any] = {"model": "palinurus", "max_tokens": 9, "messages": [{"role": "user", "content": "which?"}]}
    for reply, status in ((GOOD, 200), ("Aster", 502)):
        served.pal.model.says(reply, reply, reply)
        assert (await served.respond("which?", text={"format": inner})).status_code == status
        for more in ({"output_config": {"format": inner}}, {"output_format": inner}):
            assert (await served.http.post("/v1/messages", json=body | more)).status_code == status


@pytest.mark.parametrize(
    "form", [{"type": "grammar"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"name": "x"}}]
)
async def test_a_form_that_cannot_be_checked_is_refused(served: Served, form: Any) -> None:
    assert (await served.chat("hi", response_format=form)).status_code == 400
    assert served.pal.model.requests == []


async def test_a_schema_that_multiplies_does_not_hold_the_gateway(served: Served) -> None:
    schema = {"type": "array", "anyOf": [{"items": {"$ref": "#"}}] * 4}
    served.pal.model.says("[" * 25 + "1" + "]" * 25)  # 4^25 ways to see that 1 is no array
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert (await served.chat("hi", response_format=form)).status_code == 200


def test_openais_wires_enforce_it_and_other_servers_are_not_asked() -> None:
    def asks(form: ReplyFormat) -> ModelRequest:
        return ModelRequest("m", Head("x"), (UserMessage("hi"),), reply_format=form)

    boat = ReplyFormat(NODE, "boat", strict=True)
    schema = {"name": "boat", "schema": NODE, "strict": True}
    there = msgspec.json.decode(to_openai(asks(boat), at_openai=True))
    assert there["response_format"] == {"type": "json_schema", "json_schema": schema}
    assert msgspec.json.decode(to_openai(asks(ReplyFormat()), at_openai=True))["response_format"] == OBJECT
    assert "response_format" not in msgspec.json.decode(to_openai(asks(boat)))
    new = msgspec.json.decode(to_responses(asks(boat), provider="openai"))
    assert new["text"] == {"format": {"type": "json_schema", **schema}}
    assert msgspec.json.decode(to_responses(asks(ReplyFormat()), provider="openai"))["text"] == {"format": OBJECT}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("schema", [{"required": 5}, {"type": [{}]}, {"properties": {"name": {"enum": 3}}}])
async def test_a_schema_that_is_none_is_the_clients_mistake(served: Served, schema: Any, stream: bool) -> None:
    served.pal.model.says(GOOD)
    form = {"type": "json_schema", "json_schema": {"name": "boat", "schema": schema}}
    answer = await served.chat("which boat?", response_format=form, stream=stream)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "json_schema is not a JSON Schema")


def test_a_check_ends_whatever_a_schema_lists() -> None:
    looked_at = 0

    class Names(list[str]):
        def __iter__(self) -> Iterator[str]:
            nonlocal looked_at
            looked_at += len(self)
            return super().__iter__()

    schema = {"items": {"required": Names(["name"] * 10_000)}}
    assert list(SchemaCheck(schema).problems([{"name": "Iris"}] * 1_000, schema, "$")) == []
    assert looked_at < 3_000_000
