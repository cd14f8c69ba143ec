"""Transcripts of bare lines, as the model reads them after they were brought over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palinurus.config.home import find_home
from palinurus.domain.envelope import Inbound
from palinurus.extensions.migrate.operations import MigrateHome, migrate_home
from palinurus.operations.runs import converse
from palinurus.operations.table import LocalCaller
from palinurus.runtime.runtime import Runtime
from support.wire import Says, WireServer

Line = dict[str, Any]


def call(tool: str, **arguments: Any) -> Line:
    return {"role": "tool", "name": tool, "input": arguments, "timestamp": "2026-04-15T10:02:05Z"}


def result(tool: str, content: Any, **more: Any) -> Line:
    return {"role": "tool_result", "name": tool, "content": content, "timestamp": "2026-04-15T10:02:06Z", **more}


def said(role: str, content: Any) -> Line:
    return {"role": role, "content": content, "timestamp": "2026-04-15T10:02:07Z"}


async def sent_after(tmp_path: Path, lines: list[Line]) -> list[dict[str, Any]]:
    """The messages that a model is sent for the first word that is said here in a session of these lines."""
    theirs = tmp_path / ".openclaw" / "agents" / "main" / "sessions"
    theirs.mkdir(parents=True)
    (theirs / "abc123.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (theirs / "sessions.json").write_text(json.dumps([{"id": "abc123", "name": "tide clock"}]))
    (tmp_path / ".openclaw" / "openclaw.json").write_text("{}")
    root = tmp_path / "home"
    root.mkdir()
    async with WireServer(otherwise=Says("yes")) as server:
        providers = {"alpha": {"baseUrl": server.base_url}}
        config = {"models": {"providers": providers}, "agents": {"defaults": {"model": "alpha/a"}}}
        (root / "palinurus.json").write_text(json.dumps(config))
        runtime = Runtime(find_home({"PALINURUS_HOME": str(root), "HOME": str(tmp_path)}), {"HOME": str(tmp_path)})
        try:
            caller = LocalCaller(runtime.services)
            params = MigrateHome(str(tmp_path / ".openclaw"), apply=True)
            assert [step.report async for step in caller.follow(migrate_home, params)][-1]
            inbound = Inbound("and now?", "1", session_key="agent:main:explicit:abc123")
            assert (await converse(caller, inbound, lambda _: None)).text == "yes"
        finally:
            await runtime.close()
        found: list[dict[str, Any]] = server.requests[0]["messages"]
        return found


def answers(sent: list[dict[str, Any]]) -> dict[str, str]:
    """What the model reads as the result of each call, by the call's arguments."""
    calls = {call["id"]: call["function"]["arguments"] for each in sent for call in each.get("tool_calls", ())}
    return {calls[each["tool_call_id"]]: each["content"] for each in sent if each["role"] == "tool"}


async def test_a_house_that_is_open_knows_the_agents_that_have_come(tmp_path: Path) -> None:
    theirs = tmp_path / ".openclaw" / "agents" / "default" / "sessions"
    theirs.mkdir(parents=True)
    (theirs / "abc123.jsonl").write_text(json.dumps(said("user", "hello")) + "\n")
    (tmp_path / ".openclaw" / "openclaw.json").write_text("{}")
    root = tmp_path / "home"
    (root / "workspace").mkdir(parents=True)
    (root / "palinurus.json").write_text('{"agents": {"defaults": {"model": "embedded/scout"}}}')
    runtime = Runtime(find_home({"PALINURUS_HOME": str(root), "HOME": str(tmp_path)}), {"HOME": str(tmp_path)})
    try:
        caller = LocalCaller(runtime.services)
        params = MigrateHome(str(tmp_path / ".openclaw"), apply=True)
        assert [step.report async for step in caller.follow(migrate_home, params)][-1]
        replied = await converse(caller, Inbound("hello", "1"), lambda _: None)
    finally:
        await runtime.close()
    assert (replied.status, replied.session_key) == ("ok", "agent:default:main")


A, B = call("read", path="a"), call("read", path="b")
ORDERS: dict[str, list[Line]] = {
    "one by one": [A, result("read", "of a"), B, result("read", "of b")],
    "together": [A, B, result("read", "of a"), result("read", "of b")],
    "by their ids": [
        {**A, "id": "c1"},
        {**B, "id": "c2"},
        result("read", "of b", tool_call_id="c2"),
        result("read", "of a", tool_call_id="c1"),
    ],
}


@pytest.mark.parametrize("lines", ORDERS.values(), ids=ORDERS)
async def test_each_call_has_its_own_result(tmp_path: Path, lines: list[Line]) -> None:
    sent = await sent_after(tmp_path, [said("user", "read both"), *lines, said("assistant", "done")])
    assert answers(sent) == {'{"path":"a"}': "of a", '{"path":"b"}': "of b"}


async def test_calls_of_several_tools_are_told_apart_by_name(tmp_path: Path) -> None:
    lines = [call("read", path="a"), call("exec", command="b"), result("exec", "ran"), result("read", "text")]
    sent = await sent_after(tmp_path, [said("user", "both"), *lines, said("assistant", "done")])
    assert answers(sent) == {'{"path":"a"}': "text", '{"command":"b"}': "ran"}


async def test_calls_without_end_are_read_in_replies_of_a_bounded_size(tmp_path: Path) -> None:
    lines = [call("read", path=str(number)) for number in range(250)]
    sent = await sent_after(tmp_path, [said("user", "read all"), *lines, result("read", "of 150"), said("user", "?")])
    sizes = [len(each["tool_calls"]) for each in sent if each.get("tool_calls")]
    assert sizes == [100, 100, 50]


async def test_content_that_is_an_object_is_read(tmp_path: Path) -> None:
    lines = [
        said("user", {"type": "text", "text": "how deep is it?"}),
        call("sound", at="quay"),
        result("sound", [{"metres": 4}]),
        said("assistant", {"text": "four metres"}),
        said("user", {"question": "and at low water?"}),
        said("assistant", [{"type": "text", "text": "two"}, {"metres": 2}]),
    ]
    sent = await sent_after(tmp_path, lines)
    told = json.dumps(sent)
    assert answers(sent) == {'{"at":"quay"}': '{"metres": 4}'}
    for words in ("how deep is it?", "four metres", "and at low water?", "two", "metres"):
        assert words in told
