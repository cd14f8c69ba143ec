"""What is Google's own on its wire: parts with signatures, calls without ids, schemas cut down, reasons to stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, tzinfo
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palinurus.domain.errors import Failure, ProviderError
from palinurus.domain.messages import (
    AssistantMessage,
    ContextNote,
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
from palinurus.providers.provider import Head, ModelRequest, ReplyDone
from palinurus.providers.wires.failures import Call
from palinurus.providers.wires.google import (
    KEPT,
    UNSIGNED,
    WIRE,
    GoogleProvider,
    GoogleReply,
    to_google,
    to_google_schema,
)
from support.wire import Calls, Says, WireServer

NOW = 1_794_700_800_000
MODEL = "gemini-3.8-flash"
OLD = "gemini-2.5-flash"
KIND = Head("be kind")
PICTURE = Image("QUJD", "image/png")


class StoppedClock:
    @property
    def zone(self) -> tzinfo:
        return UTC

    def now_ms(self) -> int:
        return NOW


def body(*messages: Message, model: str = MODEL, head: Head = KIND, **fields: Any) -> dict[str, Any]:
    request = ModelRequest(model, head, messages, **fields)
    decoded: dict[str, Any] = msgspec.json.decode(to_google(request, provider="google"))
    return decoded


def said(*content: Text | Thinking | ToolCall, model: str = MODEL, provider: str = "google") -> AssistantMessage:
    return AssistantMessage(content, provider=provider, model=model, api=WIRE)


def test_the_whole_body_of_a_small_conversation() -> None:
    spec = ToolSpec("ls", "List files.", {"type": "object", "properties": {"path": {"type": "string", "default": "."}}})
    sent = body(
        UserMessage("hi", context=(ContextNote("time", "now"),)),
        said(Text("looking"), ToolCall("c1", "ls", {"path": "."}, "sig"), ToolCall("c2", "ls", {})),
        ToolResult("c1", "ls", "a.md"),
        ToolResult("c2", "ls", "no such folder", is_error=True),
        head=Head("be kind", (spec, ToolSpec("now", "Tell the time.", {"type": "object", "properties": {}}))),
        max_tokens=100,
        thinking="low",
    )
    assert sent == {
        "systemInstruction": {"parts": [{"text": "be kind"}]},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "ls",
                        "description": "List files.",
                        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
                    },
                    {"name": "now", "description": "Tell the time."},
                ]
            }
        ],
        "contents": [
            {"role": "user", "parts": [{"text": "[time: now]\nhi"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "looking"},
                    {"functionCall": {"id": "c1", "name": "ls", "args": {"path": "."}}, "thoughtSignature": "sig"},
                    {"functionCall": {"id": "c2", "name": "ls", "args": {}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "c1", "name": "ls", "response": {"output": "a.md"}}},
                    {"functionResponse": {"id": "c2", "name": "ls", "response": {"error": "no such folder"}}},
                ],
            },
        ],
        "generationConfig": {
            "maxOutputTokens": 100,
            "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"},
        },
    }


def test_signed_parts_go_back_as_they_came_and_summaries_of_thoughts_stay_here() -> None:
    reply = said(Thinking("hm"), Thinking("ha", "s1"), Text("yes"), Text("", "s2"))
    assert body(UserMessage("x"), reply)["contents"][1]["parts"] == [
        {"text": "ha", "thought": True, "thoughtSignature": "s1"},
        {"text": "yes"},
        {"text": "", "thoughtSignature": "s2"},
    ]


@pytest.mark.parametrize("other", [{"model": "gemini-4-argon"}, {"provider": "elsewhere"}])
def test_signatures_go_to_no_other_model_and_its_calls_get_a_stand_in(other: dict[str, str]) -> None:
    reply = said(Thinking("hm", "s1"), Text("yes", "s2"), ToolCall("c", "t", {}, "s3"), ToolCall("d", "t", {}), **other)
    parts = body(UserMessage("x"), reply)["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [None, UNSIGNED, None]


def test_older_models_are_sent_no_stand_in() -> None:
    reply = said(ToolCall("c", "t", {}))
    assert "thoughtSignature" not in msgspec.json.encode(body(UserMessage("x"), reply, model=OLD)).decode()


def test_images_go_inline_and_those_of_tools_where_the_model_reads_them() -> None:
    inline = {"inlineData": {"mimeType": "image/png", "data": "QUJD"}}
    story = (
        UserMessage((Text("see"), PICTURE)),
        said(ToolCall("c", "t", {})),
        ToolResult("c", "t", (Text("here"), PICTURE)),
    )
    new, old = body(*story)["contents"], body(*story, model=OLD)["contents"]
    assert new[0]["parts"] == [{"text": "see"}, inline]
    answers = [contents[2]["parts"][0]["functionResponse"] for contents in (new, old)]
    assert (answers[0]["response"], answers[0]["parts"]) == ({"output": "here"}, [inline])
    assert (answers[1]["response"], "parts" in answers[1]) == ({"output": "here\n[image: image/png]"}, False)


def test_a_conversation_that_starts_with_a_reply_or_not_at_all_is_opened_by_a_user() -> None:
    assert [content["role"] for content in body(said(Text("a")))["contents"]] == ["user", "model"]
    assert [content["role"] for content in body()["contents"]] == ["user"]


@pytest.mark.parametrize(
    ("model", "level", "expected"),
    [
        (MODEL, "off", None),
        (MODEL, "minimal", {"thinkingLevel": "low"}),
        (MODEL, "medium", {"thinkingLevel": "medium"}),
        (MODEL, "ultra", {"thinkingLevel": "high"}),
        ("gemini-3-pro-preview", "medium", {"thinkingLevel": "high"}),
        ("gemini-flash-latest", "low", {"thinkingLevel": "low"}),
        (OLD, "adaptive", {"thinkingBudget": -1}),
        (OLD, "max", {"thinkingBudget": 24_576}),
        (OLD, "off", None),
        ("gemma-3-27b", "high", None),
        ("gemini-2.0-flash", "high", None),
    ],
)
def test_a_thinking_level_is_said_as_the_model_understands_it(
    model: str, level: str, expected: dict[str, Any] | None
) -> None:
    found = body(UserMessage("x"), model=model, thinking=level).get("generationConfig")
    assert found == ({"thinkingConfig": {"includeThoughts": True, **expected}} if expected else None)


REF = {
    "$defs": {"node": {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/node"}}}}
}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (
            {"$schema": "x", "type": "object", "additionalProperties": False, "properties": {"a": {"type": "string"}}},
            {"type": "object", "properties": {"a": {"type": "string"}}},
        ),
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}, {"type": "string", "nullable": True}),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"type": "integer", "enum": [1, 2]}, {"type": "integer"}),
        ({"type": "integer", "exclusiveMinimum": 0}, {"type": "integer", "minimum": 1}),
        ({"type": "number", "exclusiveMaximum": 1.5}, {"type": "number", "maximum": 1.5}),
        ({"type": "string", "format": "uri"}, {"type": "string"}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"type": "array"}, {"type": "array", "items": {"type": "string"}}),
        ({"type": {}, "format": None, "required": [[1]]}, {"type": "string"}),
        ({"type": "object", "properties": {}, "required": ["gone"]}, {"type": "object"}),
        ({"properties": {"default": True}}, {"type": "object", "properties": {"default": {"type": "string"}}}),
        (
            {"allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}], "properties": {"b": {}}},
            {
                "type": "object",
                "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                "required": ["a"],
            },
        ),
        (
            {**REF, "$ref": "#/$defs/node"},
            {"type": "object", "properties": {"name": {"type": "string"}, "next": {"type": "object"}}},
        ),
    ],
)
def test_a_schema_is_cut_down_to_what_the_wire_knows(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert to_google_schema(schema) == expected


WORDS = st.sampled_from(
    [*KEPT, "$ref", "$defs", "allOf", "oneOf", "const", "default", "exclusiveMinimum", "string", "null"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | WORDS | st.just("#/properties"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=20,
)


@given(schema=st.dictionaries(WORDS, JSON, max_size=5))
def test_whatever_a_stranger_calls_a_schema_only_known_words_are_left(schema: dict[str, Any]) -> None:
    assert set(to_google_schema(schema)) <= KEPT


def gathered(*chunks: dict[str, Any]) -> AssistantMessage:
    reply = GoogleReply(Call("google/m"))
    for chunk in chunks:
        reply.add(msgspec.json.encode(chunk))
    return reply.finish(now_ms=NOW)


def chunk(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **fields}]}


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        *((reason, Failure.REFUSAL) for reason in ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII")),
        *((reason, Failure.MALFORMED) for reason in ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL")),
        *((reason, Failure.OVERLOAD) for reason in ("OTHER", "SOMETHING_NEW")),
    ],
)
def test_a_finish_reason_that_is_no_good_end_is_a_failure_of_its_kind(reason: str, kind: Failure) -> None:
    with pytest.raises(ProviderError, match=f"{reason} so it was") as raised:
        gathered(chunk({"text": "x"}, finishReason=reason, finishMessage="so it was"))
    assert raised.value.kind is kind


@pytest.mark.parametrize(("reason", "stop"), [("STOP", "stop"), ("MAX_TOKENS", "length")])
def test_a_good_end_says_whether_the_limit_was_reached(reason: str, stop: str) -> None:
    assert gathered(chunk({"text": "x"}, finishReason=reason)).stop_reason == stop


def test_a_prompt_that_was_blocked_is_a_refusal_that_names_the_reason() -> None:
    with pytest.raises(ProviderError, match="PROHIBITED_CONTENT") as raised:
        gathered({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 3}})
    assert raised.value.kind is Failure.REFUSAL


def test_thoughts_count_as_output_and_what_the_cache_served_does_not_count_as_input() -> None:
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 80,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 30,
        "toolUsePromptTokenCount": 2,
    }
    reply = gathered({**chunk({"text": "x"}, finishReason="STOP"), "usageMetadata": usage})
    assert reply.usage == Usage(input=22, output=35, cache_read=80)


def test_unsigned_pieces_are_joined_and_signed_ones_kept_apart() -> None:
    reply = gathered(
        chunk({"text": "h", "thought": True}),
        chunk({"text": "m", "thought": True}, {"text": "a"}),
        chunk({"text": "b"}, {"text": "c", "thoughtSignature": "s1"}, {"text": "d"}),
        chunk({"text": "", "thoughtSignature": "s2"}, finishReason="STOP"),
    )
    assert reply.content == (Thinking("hm"), Text("ab"), Text("c", "s1"), Text("d"), Text("", "s2"))


def test_a_second_candidate_and_the_whole_stream_as_one_array_are_understood() -> None:
    reply = GoogleReply(Call("google/m"))
    other = {"candidates": [{"index": 1, "content": {"parts": [{"text": "no"}]}}]}
    reply.add(msgspec.json.encode([chunk({"text": "a"}), other, chunk({"text": "b"}, finishReason="STOP")]))
    assert reply.finish(now_ms=NOW).content == (Text("ab"),)


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    async with WireServer() as started:
        yield started


async def reply_of(provider: GoogleProvider, request: ModelRequest) -> AssistantMessage:
    async with asyncio.timeout(60), aclosing(provider.stream(request)) as stream:
        last = [event async for event in stream][-1]
    assert isinstance(last, ReplyDone), last
    return last.message


async def test_calls_without_ids_get_their_own_and_come_back_signed(server: WireServer) -> None:
    server.script.append(Calls(("ls", {"path": "a"}), ("ls", {"path": "b"}), nameless=True, signature="c2ln"))
    provider = GoogleProvider("google", server.base_url, "k", windows={}, clock=StoppedClock())
    asked = ModelRequest(MODEL, Head("s"), (UserMessage("x"),))
    reply = await reply_of(provider, asked)
    ids = [call.id for call in reply.calls]
    assert (len(set(ids)), all(ids)) == (2, True)
    stored = msgspec.json.decode(msgspec.json.encode(reply), type=AssistantMessage)
    results = tuple(ToolResult(call_id, "ls", "ok") for call_id in ids)
    await reply_of(provider, msgspec.structs.replace(asked, messages=(UserMessage("x"), stored, *results)))
    await provider.close()
    sent = server.requests[1]["contents"]
    assert [part.get("thoughtSignature") for part in sent[1]["parts"]] == ["c2ln", None]
    assert [part["functionCall"]["id"] for part in sent[1]["parts"]] == ids
    assert [part["functionResponse"]["id"] for part in sent[2]["parts"]] == ids


async def test_the_signature_of_a_text_is_kept(server: WireServer) -> None:
    server.script.append(Says("hello", signature="c2ln"))
    provider = GoogleProvider("google", server.base_url, "k", windows={}, clock=StoppedClock())
    reply = await reply_of(provider, ModelRequest(MODEL, Head("s"), (UserMessage("x"),)))
    await provider.close()
    assert (reply.text, reply.content[-1]) == ("hello", Text("", "c2ln"))


@pytest.mark.parametrize(
    ("ending", "model", "path"),
    [
        ("", MODEL, "/v1beta/models/gemini-3.8-flash"),
        ("/v1beta/", f"models/{MODEL}", "/v1beta/models/gemini-3.8-flash"),
        ("/v1", "../x?key=y", "/v1/models/..%2Fx%3Fkey%3Dy"),
    ],
)
async def test_the_address_names_version_and_model(server: WireServer, ending: str, model: str, path: str) -> None:
    base_url = server.base_url.removesuffix("/v1") + ending
    provider = GoogleProvider("google", base_url, "k", windows={}, clock=StoppedClock())
    await reply_of(provider, ModelRequest(model, Head("s"), (UserMessage("x"),)))
    await provider.close()
    assert server.paths == [f"{path}:streamGenerateContent?alt=sse"]
