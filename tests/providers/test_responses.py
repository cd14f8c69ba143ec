"""The OpenAI Responses wire: what it sends, checked with OpenAI's own types, and odd servers that it understands."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from openai.types.responses import ResponseStreamEvent, response_create_params
from pydantic import TypeAdapter

from palinurus.config.secrets import MARKER
from palinurus.domain.errors import Failure, ProviderError
from palinurus.domain.messages import (
    AssistantMessage,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from palinurus.domain.tool import ToolSpec
from palinurus.providers.catalog import ModelRef
from palinurus.providers.choose import ReachableModel, wire_at
from palinurus.providers.provider import Head, ModelRequest
from palinurus.providers.wires.failures import Call
from palinurus.providers.wires.responses import ResponsesReply, to_responses
from support.dialects import ResponsesDialect
from support.wire import Calls, Says

TOOLS = (ToolSpec("read", "Read.", {"type": "object", "properties": {"path": {"type": "string"}}}),)
SEALED = '{"type":"reasoning","id":"rs_0","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"xyz"}'
PICTURE = Image("aGk=", "image/png")
# The types of a request without the fields whose types only the client knows.
REQUEST = TypeAdapter(response_create_params.ResponseCreateParamsStreaming)
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def sent(*messages: Message, **more: Any) -> dict[str, Any]:
    request = ModelRequest("m", Head("be kind", TOOLS), messages, **more)
    body: dict[str, Any] = msgspec.json.decode(to_responses(request, provider="p"))
    return body


def by(model: str, *content: Any) -> AssistantMessage:
    return AssistantMessage(content, provider="p", model=model, api="openai-responses")


def read(*payloads: Any) -> AssistantMessage:
    reply = ResponsesReply(Call("t/m"))
    for payload in payloads:
        reply.add(payload if isinstance(payload, bytes) else msgspec.json.encode(payload))
    return reply.finish(now_ms=0)


def test_a_request_is_valid_by_openais_types() -> None:
    called = ToolCall("call_1", "read", {"path": "a.md"})
    body = sent(
        UserMessage("hi"),
        by("m", Thinking("hm", SEALED), Text("Let me see."), called),
        ToolResult("call_1", "read", (Text("a picture"), PICTURE)),
        UserMessage((Text("and this?"), PICTURE)),
        max_tokens=100,
        thinking="high",
    )
    REQUEST.validate_python(body)
    kinds = ["message", "reasoning", "message", "function_call", "function_call_output", "message"]
    assert [item["type"] for item in body["input"]] == kinds
    assert (body["instructions"], body["store"], body["max_output_tokens"]) == ("be kind", False, 100)
    assert (body["reasoning"]["effort"], body["include"]) == ("high", ["reasoning.encrypted_content"])
    assert body["tools"][0]["strict"] is False
    assert body["input"][4]["output"][1]["image_url"] == "data:image/png;base64,aGk="


def test_without_a_thinking_level_nothing_is_sent_that_older_models_refuse() -> None:
    body = sent(UserMessage("hi"))
    assert not {"reasoning", "include", "max_output_tokens"} & body.keys()


@pytest.mark.parametrize(
    ("model", "signature", "sends"),
    [
        ("m", SEALED, True),
        ("other", SEALED, False),
        ("m", None, False),
        ("m", "an older signature", False),
        ("m", SEALED.replace("xyz", MARKER), False),
    ],
)
def test_reasoning_goes_back_only_to_its_model_and_whole(model: str, signature: str | None, sends: bool) -> None:
    body = sent(UserMessage("hi"), by(model, Thinking("hm", signature), Text("Hello.")), UserMessage("on"))
    assert ("reasoning" in [item["type"] for item in body["input"]]) == sends


def test_reasoning_that_nothing_follows_is_left_out() -> None:
    body = sent(UserMessage("hi"), by("m", Thinking("hm", SEALED)), UserMessage("on"))
    assert [item["type"] for item in body["input"]] == ["message", "message"]


def test_reasoning_is_stored_as_it_is_sent_back() -> None:
    message = read(*(line[6:] for event in ResponsesDialect().reply(Says("Hi.", thinking="hm", signature="xyz"), "m")
                     for line in event.splitlines() if line.startswith(b"data: ")))  # fmt: skip
    assert message.content == (Thinking("hm", SEALED), Text("Hi."))
    again = sent(UserMessage("x"), msgspec.structs.replace(message, provider="p", model="m", api="openai-responses"))
    assert again["input"][1] == msgspec.json.decode(SEALED)


def test_what_our_test_server_says_is_valid_by_openais_types() -> None:
    """Or the other tests would prove little."""
    known = {"sequence_number": 0, "item_id": "i", "content_index": 0, "summary_index": 0, "logprobs": []}
    for reply in (Says("Hi.", thinking="hm", signature="s"), Calls(("read", {"path": "a"}), text="See.")):
        for event in ResponsesDialect().reply(reply, "m"):
            data = msgspec.json.decode(event.partition(b"data: ")[2])
            if "response" not in data and "part" not in data and "item" not in data:
                EVENT.validate_python(known | data)
            else:
                assert data["type"].startswith("response.")


COMPLETED = {"type": "response.completed", "response": {"status": "completed", "output": []}}


def test_a_server_that_sends_only_the_last_event_is_understood() -> None:
    output = [
        {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "Hi."}]},
        {"type": "function_call", "call_id": "c", "name": "read", "arguments": '{"path":"a"}'},
        {"type": "web_search_call", "id": "ws"},
    ]
    message = read({"type": "response.completed", "response": {"status": "completed", "output": output}})
    assert message.content == (Thinking("hm"), Text("Hi."), ToolCall("c", "read", {"path": "a"}))
    assert message.stop_reason == "toolUse"


def test_text_that_came_in_deltas_is_not_said_twice() -> None:
    item = {"type": "message", "content": [{"type": "output_text", "text": "Hi."}]}
    message = read(
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Hi."},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"status": "completed", "output": [item]}},
    )
    assert message.text == "Hi."


def test_parts_of_a_summary_are_paragraphs_and_cached_tokens_are_counted_apart() -> None:
    part = {"type": "response.reasoning_summary_part.added", "output_index": 0}
    said = {"type": "response.reasoning_summary_text.delta", "output_index": 0}
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
        "output_tokens": 7,
    }
    message = read(
        *(part, said | {"delta": "first"}, part, said | {"delta": "second"}),
        {"type": "response.completed", "response": {"status": "completed", "usage": usage}},
    )
    assert message.content == (Thinking("first\n\nsecond"),)
    assert message.usage == Usage(10, 7, 60, 30)


def test_a_refusal_is_text() -> None:
    message = read({"type": "response.refusal.delta", "delta": "I will not."}, COMPLETED)
    assert message.text == "I will not."


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        ({"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow"}}, Failure.RATE_LIMIT),
        ({"status": "failed", "error": {"code": "server_error", "message": "broke"}}, Failure.OVERLOAD),
        ({"status": "failed", "error": {"code": "context_length_exceeded", "message": "x"}}, Failure.CONTEXT_OVERFLOW),
        ({"status": "cancelled"}, Failure.OVERLOAD),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, Failure.REFUSAL),
    ],
)
def test_a_response_that_failed_says_how(response: dict[str, Any], kind: Failure) -> None:
    with pytest.raises(ProviderError) as raised:
        read({"type": "response.failed", "response": response}, b"[DONE]")
    assert raised.value.kind == kind


def test_openai_is_spoken_to_on_this_wire_and_other_servers_under_its_name_are_not() -> None:
    choice = ReachableModel(ModelRef("openai", "gpt-5-mini"), wire="openai-responses")
    assert wire_at(choice, "https://api.openai.com/v1/") == "openai-responses"
    assert wire_at(choice, "http://127.0.0.1:8080/v1") == "openai-completions"
