"""Whatever a client says was said: it is refused in words, or the model is asked something that no provider refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from speaking import Served, tool

from palinurus.config.home import Home, find_home
from palinurus.context.assemble import violations
from palinurus.domain.messages import ToolResult
from palinurus.gateway.websocket.methods import Endpoints
from palinurus.providers.provider import ModelRequest
from palinurus.testing.fakes import Reply, ScriptedProvider, call, calls
from palinurus.testing.harness import Harness

ROLES = ("user", "assistant", "tool", "system", "developer", "function", "alien")
LAST = "the last call of this conversation"

ids = st.sampled_from([LAST, LAST, "call_x", "", "call_0123456789abcdef_0"])
words = st.text(max_size=20) | st.sampled_from(["stop", "/new", "hi", "</context>"])
parts = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image_url", "refusal", "audio"])},
    optional={"text": words, "image_url": st.sampled_from([{"url": "http://x"}, {"url": "data:,"}, None])},
)
contents = st.none() | words | words | st.lists(parts, max_size=3)
functions = st.fixed_dictionaries({"name": st.sampled_from(["weather", "read", ""])}, optional={"arguments": words})
wire_calls = st.fixed_dictionaries({"id": ids, "type": st.just("function")}, optional={"function": functions})
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(ROLES), "content": contents},
    optional={"tool_calls": st.lists(wire_calls, max_size=3), "tool_call_id": ids, "name": words},
)
sane = st.sampled_from(
    [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": "Well."},
        {"role": "assistant", "tool_calls": [{"id": LAST, "function": {"name": "weather", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": LAST, "content": "sunny"},
        {"role": "system", "content": "Be kind."},
    ]
)
answering = {"role": "tool", "tool_call_id": LAST, "content": "rainy"}
stories = (
    st.lists(messages, max_size=6)
    | st.lists(sane, max_size=6)
    | st.just([{"role": "user", "content": "weather?"}])
    | st.lists(sane, max_size=3).map(lambda story: [*story, answering])
    | st.lists(sane, max_size=3).map(lambda story: [answering, *story])
)
requests = st.fixed_dictionaries(
    {"messages": stories, "tools": st.sampled_from([[tool()], [tool()], [tool()], None])},
    optional={
        "user": st.sampled_from(["u", ""]),
        "stream": st.booleans(),
        "tool_choice": st.sampled_from(["none", "auto", "required"]),
    },
)


def _moody(request: ModelRequest) -> Reply:
    """Calls the client's tool, or ours beside it, or several, until it has read a result."""
    mood = 0 if isinstance(request.messages[-1], ToolResult) else 1 + len(request.messages) // 2 % 3
    if mood == 0 or not any(spec.name == "weather" for spec in request.head.tools):
        return Reply("Well.")
    asked = call("weather", "c"), call("read", "r", path="SOUL.md")
    return calls(*asked[:mood]) if mood < 3 else calls(asked[0], call("weather", "c"), call("weather", "d"))


def _named(messages: list[dict[str, Any]], call_ids: list[str]) -> list[dict[str, Any]]:
    """The messages with the calls that were really asked for last: a result for each of them."""
    named = []
    for message in messages:
        for call_id in call_ids if message.get("tool_call_id") == LAST else call_ids[:1]:
            text = msgspec.json.encode(message).decode().replace(LAST, call_id)
            named.append(msgspec.json.decode(text))
    return named


def _asked_for(answer: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"call_[0-9a-f]{16}_\d", answer)))


def _home(tmp_path: Path) -> Home:
    return find_home({"PALINURUS_HOME": str(tmp_path), "HOME": str(tmp_path)})


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(asked=st.lists(requests, min_size=2, max_size=6))
async def test_a_conversation_is_refused_or_makes_a_valid_request(
    asked: list[dict[str, Any]], workspace: Path, tmp_path: Path
) -> None:
    async with Harness(workspace, model=ScriptedProvider(otherwise=_moody)) as pal:
        served = Served(pal, _home(tmp_path), Endpoints())
        await served.start()
        try:
            call_ids = ["call_none"]
            for body in asked:
                said = {**body, "messages": _named(body["messages"], call_ids)}
                answer = await served.http.post("/v1/chat/completions", json=said)
                assert answer.status_code == 200 or 400 <= answer.status_code < 500, answer.text
                call_ids = _asked_for(answer.text) or call_ids
            for request in pal.model.requests:
                assert violations(request.messages) == []
        finally:
            await served.close()
