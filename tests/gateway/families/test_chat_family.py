"""What clients of the gateway hear of a run, and what is refused before there is one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from family_asking import WAIT, Asking

from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.keys import SessionKey
from palinurus.sessions.session import SessionChange
from palinurus.testing.fakes import call, calls
from support.wire import WireServer

MAIN = "agent:main:main"


async def send(ask: Asking, text: str, key: str = MAIN) -> dict[str, Any]:
    started: dict[str, Any] = await ask("chat.send", sessionKey=key, message=text, idempotencyKey=ask.pal.new_id())
    run = await ask.services.dispatcher.find(started["runId"])
    await run.wait(WAIT)
    return started


async def test_a_tool_call_is_told_under_openclaws_names(ask: Asking) -> None:
    ask.pal.model.says(calls(call("read", "c1", path="SOUL.md"), text="let me look"), "done now")
    started = await send(ask, "who are you?")
    events = [payload for event, payload in ask.heard if event == "agent" and payload["stream"] == "tool"]
    assert all(payload["runId"] == started["runId"] for payload in events)
    start, end = (payload["data"] for payload in events)
    assert start == {"phase": "start", "name": "read", "toolCallId": "c1", "args": {"path": "SOUL.md"}}
    assert (end["phase"], end["name"], end["toolCallId"], end["isError"]) == ("result", "read", "c1", False)
    assert "Curious and calm." in end["result"]["content"][0]["text"]
    assert not [payload for event, payload in ask.heard if event == "agent" and payload["stream"].startswith("tool.")]


async def test_pieces_of_a_reply_around_a_tool_call_are_apart(ask: Asking) -> None:
    ask.pal.model.says(calls(call("read", path="SOUL.md"), text="let me look"), "done now", "and on")
    for text in ("look", "again"):
        await send(ask, text)
    deltas = [payload["deltaText"] for event, payload in ask.heard if event == "chat" and payload["state"] == "delta"]
    assert "".join(deltas) == "let me look\n\ndone nowand on"  # the last is another run's


async def test_a_typo_is_refused_to_the_client_and_costs_nothing(ask: Asking) -> None:
    started = await send(ask, "/hlep")
    ended = [payload for event, payload in ask.heard if event == "chat" and payload["state"] == "error"]
    assert [payload["runId"] for payload in ended] == [started["runId"]]
    assert "did you mean /help?" in ended[0]["errorMessage"]
    assert ask.pal.model.requests == []


async def test_a_name_means_the_same_session_in_every_method(ask: Asking) -> None:
    trip = "agent:main:explicit:trip"
    assert (await send(ask, "hello", "trip"))["sessionKey"] == trip
    session = await ask.pal.sessions.find(SessionKey.parse(trip))
    assert session is not None
    await ask.pal.sessions.append(session.id, (), SessionChange(label="To the lakes"))
    for name in ("trip", "to the lakes", session.id):
        assert (await ask("chat.history", sessionKey=name))["sessionId"] == session.id
        assert (await ask("sessions.describe", key=name))["session"]["label"] == "To the lakes"
        assert (await ask("sessions.resolve", key=name))["key"] == trip
        assert (await ask("sessions.preview", keys=[name]))["previews"][0]["status"] == "ok"
        assert (await ask("sessions.export", sessionKey=name))["sessionKey"] == trip
    assert (await ask("sessions.reset", key="trip"))["key"] == trip
    assert (await ask("sessions.delete", key="trip"))["archived"] == [session.id]
    assert "Archived" in (await ask("sessions.export", sessionKey=session.id))["content"]


@pytest.mark.parametrize("method", ["sessions.reset", "sessions.delete", "sessions.compact"])
async def test_what_does_not_exist_is_not_acted_on(ask: Asking, method: str) -> None:
    for name in ("tripp", "agent:main:tripp"):
        with pytest.raises(NotFound, match="there is no session"):
            await ask(method, key=name)
    with pytest.raises(NotFound):
        await ask("sessions.patch", key="agent:main:tripp", label="X")
    assert await ask.pal.sessions.recent(archived=True) == []


async def test_a_model_that_is_none_is_not_patched(ask: Asking) -> None:
    with pytest.raises(BadRequest, match="'nosuch' is not a model"):
        await ask("sessions.patch", key=MAIN, model="nosuch")


async def test_the_list_of_models_has_those_of_the_configured_provider(ask: Asking) -> None:
    async with WireServer(models=("m", "m2", "text-embed")) as server:
        server.about = {"m": {"context_window": 131_072}}
        config = json.loads(ask.home.config_path.read_text())
        config["agents"]["defaults"]["model"] = "mock/m"
        config["models"] = {"providers": {"mock": {"baseUrl": server.base_url}}}
        ask.home.config_path.write_text(json.dumps(config))
        listed = (await ask("models.list"))["models"]
    mine = {each["id"]: each.get("contextWindow") for each in listed if each["provider"] == "mock"}
    assert mine == {"m": 131_072, "m2": None}
