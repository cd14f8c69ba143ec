"""The families by a real socket: scopes, keys that come twice, and what others hear of a change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from family_asking import WAIT, Asking, Line

MAIN = "agent:main:main"


@pytest.fixture
async def line(ask: Asking) -> AsyncIterator[Line]:
    async with Line(ask) as opened:
        yield opened


async def test_a_token_reaches_what_its_scopes_reach(ask: Asking, line: Line) -> None:
    tries = {
        "health": "read",
        "sessions.list": "read",
        "sessions.patch": "write",
        "sessions.reset": "admin",
        "chat.inject": "admin",
        "exec.approval.list": "approvals",
        "config.get": "admin",
        "agents.files.set": "admin",
        "agents.create": "admin",
    }
    await ask.pal.hears("hi")
    for held, reached in (("read", {"read"}), ("write", {"read", "write"}), ("approvals", {"approvals"})):
        _, secret = await ask.register.make_token(f"for {held}", [held])  # type: ignore[list-item]
        client = await line.connect(secret)
        for method, needed in tries.items():
            answer = await line.call(client, method, key=MAIN, sessionKey=MAIN, message="x")
            refused = not answer["ok"] and answer["error"]["code"] == "FORBIDDEN"
            assert refused is (needed not in reached), (held, method, answer)


async def test_a_request_that_comes_again_gets_the_first_answer_also_on_a_new_connection(
    ask: Asking, line: Line
) -> None:
    await ask.pal.hears("before")
    client = await line.connect()
    first = await line.call(client, "sessions.reset", key=MAIN, idempotencyKey="k")
    await client.close()
    ask.pal.clock.advance(minutes=5)
    await ask.pal.hears("after")
    again = await line.call(await line.connect(), "sessions.reset", key=MAIN, idempotencyKey="k")
    assert again["payload"] == first["payload"]
    resets = [entry for entry in await ask.pal.transcript() if type(entry).__name__ == "ResetEntry"]
    assert len(resets) == 1


async def test_at_the_same_time_from_two_clients_it_is_done_once(ask: Asking, line: Line) -> None:
    one, two = await line.connect(), await line.connect()
    made = await asyncio.wait_for(
        asyncio.gather(*(line.call(client, "agents.create", name="Anna", idempotencyKey="k") for client in (one, two))),
        WAIT,
    )
    assert made[0]["payload"] == made[1]["payload"]
    refused = await line.call(one, "agents.create", name="Anna", idempotencyKey="another")
    assert "already" in refused["error"]["message"]


async def test_what_only_reads_is_read_anew_under_the_same_key(ask: Asking, line: Line) -> None:
    client = await line.connect()
    assert (await line.call(client, "sessions.list", idempotencyKey="k"))["payload"]["count"] == 0
    await ask.pal.hears("hi")
    assert (await line.call(client, "sessions.list", idempotencyKey="k"))["payload"]["count"] == 1


async def test_who_comes_back_and_sends_again_hears_the_run_and_it_runs_once(ask: Asking, line: Line) -> None:
    first = await line.connect()
    sent = await line.call(first, "chat.send", sessionKey=MAIN, message="hi", idempotencyKey="k")
    await line.until(first, "chat", state="final")
    await first.close()
    second = await line.connect()
    again = await line.call(second, "chat.send", sessionKey=MAIN, message="hi", idempotencyKey="k")
    assert again["payload"]["runId"] == sent["payload"]["runId"]
    await line.call(second, "chat.send", sessionKey=MAIN, message="more", idempotencyKey="l")
    await line.until(second, "chat", state="final")
    assert len(ask.pal.model.requests) == 2


async def test_others_hear_that_a_session_changed(ask: Asking, line: Line) -> None:
    await ask.pal.hears("hi")
    watcher, actor = await line.connect(), await line.connect()
    await line.call(watcher, "sessions.subscribe", sessionKey="*")
    for method, params, reason in (
        ("sessions.patch", {"label": "Boat"}, "patch"),
        ("sessions.reset", {}, "reset"),
        ("sessions.delete", {}, "delete"),
    ):
        assert (await line.call(actor, method, key=MAIN, **params))["ok"]
        assert (await line.until(watcher, "sessions.changed", reason=reason))["sessionKey"] == MAIN


async def test_errors_have_codes_for_programs(ask: Asking, line: Line) -> None:
    client = await line.connect()
    compact = await line.call(client, "sessions.compact", key=MAIN, maxLines=10)
    assert compact["error"]["code"] == "UNAVAILABLE"
    assert compact["error"]["details"]["code"] == "NOT_IMPLEMENTED"
    assert "never cut" in compact["error"]["message"]
    stale = await line.call(client, "config.patch", raw="{}", baseHash="0" * 64)
    assert (stale["error"]["code"], stale["error"]["details"]["code"]) == ("INVALID_REQUEST", "STALE")
    program = {"mcp": {"servers": {"x": {"command": "sh"}}}}
    told = (await line.call(client, "config.get"))["payload"]
    refused = await line.call(client, "config.patch", raw=str(program).replace("'", '"'), baseHash=told["hash"])
    assert (refused["error"]["code"], refused["error"]["details"]["code"]) == ("FORBIDDEN", "UNTOUCHABLE")
    nowhere = await line.call(client, "sessions.reset", key="agent:nobody:main")
    assert nowhere["error"]["code"] == "NOT_FOUND"
    wrong = await line.call(client, "sessions.reset", key=MAIN, idempotencyKey=7)
    assert wrong["error"]["code"] == "INVALID_REQUEST"
