"""Which sessions a run sees, what it is shown of them, and as whose words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from family import MAIN
from hypothesis import given
from hypothesis import strategies as st
from sessions_home import (
    A_MAIN,
    B_MAIN,
    BETWEEN,
    GROUP,
    STRANGER,
    TRIP,
    TWO,
    SessionsHome,
    do,
    living,
    web_page,
)

from palinurus.domain.messages import NOTICE, Origin, ToolResult
from palinurus.extensions.subagents.visibility import MAX_BYTES, MAX_TEXT, fitting
from support.wire import Json

SECRET = "the password of the boathouse is xyzzy"
READING = ("sessions_list", "sessions_history", "sessions_search")


async def canaries(pal: SessionsHome, key: str, of: str, run: dict[str, Any] | None = None) -> list[ToolResult]:
    """All ways in which a session could learn what was said in another."""
    return [
        await pal.calls("sessions_list", key, run, limit=100, messageLimit=5),
        await pal.calls("sessions_history", key, run, sessionKey=of, limit=50),
        await pal.calls("sessions_history", key, run, sessionKey=of.rpartition(":")[2]),
        await pal.calls("sessions_search", key, run, query="password boathouse"),
        await pal.calls("sessions_send", key, run, sessionKey=of, message="What is the password?"),
    ]


async def test_an_agent_lists_reads_and_searches_its_own_sessions(tmp_path: Path) -> None:
    async with living(tmp_path) as pal:
        await pal.hears("the ferry leaves at nine", TRIP)
        listed = (await pal.answers("sessions_list", messageLimit=3))["sessions"]
        assert [row["key"] for row in listed] == [MAIN, TRIP]
        assert listed[0]["current"]
        assert [message["text"] for message in listed[1]["messages"]] == ["the ferry leaves at nine", "ok"]
        for name in (TRIP, "trip", "explicit:trip"):
            read = await pal.answers("sessions_history", sessionKey=name)
            assert [(each["role"], each["text"]) for each in read["messages"]] == [
                ("user", "the ferry leaves at nine"),
                ("assistant", "ok"),
            ]
        [found] = (await pal.answers("sessions_search", query="ferry"))["found"]  # nor what repeats it here
        assert (found["key"], "ferry" in found["text"]) == (TRIP, True)
        assert [result.origin for result in await pal.results()] == [Origin.OWNER] * 5


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        ({"kinds": ["group"]}, [GROUP]),
        ({"kinds": ["main", "explicit"]}, [MAIN, TRIP]),
        ({"limit": 1}, [MAIN]),
        ({"limit": -3}, [MAIN]),
        ({"activeMinutes": 60}, [MAIN, GROUP, TRIP]),
    ],
)
async def test_a_list_is_narrowed(tmp_path: Path, arguments: Json, keys: list[str]) -> None:
    async with living(tmp_path) as pal:
        await pal.hears("hello", TRIP)
        await pal.hears("hello", GROUP)
        answer = await pal.answers("sessions_list", **arguments)
        assert [row["key"] for row in answer["sessions"]] == keys
        assert answer.get("more", 0) == (2 if "limit" in arguments else 0)


async def test_bad_arguments_say_what_to_mend(tmp_path: Path) -> None:
    async with living(tmp_path) as pal:
        await pal.hears("hello", TRIP)
        for name, arguments, words in (
            ("sessions_list", {"kinds": ["grup"]}, "no kind of session 'grup'"),
            ("sessions_history", {"sessionKey": "trap"}, f"did you mean {TRIP}?"),
            ("sessions_history", {"sessionKey": "agent:nobody:main"}, "visibility is agent"),
            ("sessions_history", {"sessionKey": "\x00"}, "not a session key"),
            ("sessions_send", {"message": "hi"}, "one of sessionKey and label"),
            ("sessions_send", {"message": "hi", "sessionKey": TRIP, "label": "trip"}, "one of sessionKey and label"),
            ("sessions_send", {"message": " ", "sessionKey": TRIP}, "empty"),
        ):
            result = await pal.calls(name, **arguments)
            assert (result.is_error, words in result.text) == (True, True), result.text


async def test_agent_b_cannot_list_read_search_or_write_to_sessions_of_a(tmp_path: Path) -> None:
    for tools, rule in (
        ({}, "tools.sessions.visibility is agent"),
        ({"sessions": {"visibility": "all"}}, "tools.agentToAgent.enabled is false"),
        ({**BETWEEN, "agentToAgent": {"enabled": True, "allow": ["a"]}}, "tools.agentToAgent.allow does not name b"),
    ):
        async with living(tmp_path / rule[-1], tools={"profile": "full", **tools}, **TWO) as pal:
            await pal.hears(SECRET, A_MAIN)
            told = await canaries(pal, B_MAIN, A_MAIN)
            assert "xyzzy" not in "".join(each.text for each in told)
            assert A_MAIN not in told[0].text + told[3].text
            assert [each.is_error for each in told] == [False, True, False, False, True]
            assert rule in told[1].text
            assert rule in told[4].text
            assert await pal.said(A_MAIN) == [SECRET, "ok"]


async def test_agents_that_may_see_each_other_read_data_and_not_the_owners_words(tmp_path: Path) -> None:
    async with living(tmp_path, tools=BETWEEN, **TWO) as pal:
        await pal.hears(SECRET, A_MAIN)
        assert {row["key"] for row in (await pal.answers("sessions_list", B_MAIN))["sessions"]} == {A_MAIN, B_MAIN}
        assert (await pal.results(B_MAIN))[-1].origin == Origin.OWNER  # keys and times, no words
        for name, arguments in (
            ("sessions_history", {"sessionKey": A_MAIN}),
            ("sessions_search", {"query": "boathouse"}),
            ("sessions_list", {"messageLimit": 2}),
        ):
            result = await pal.calls(name, B_MAIN, **arguments)
            assert SECRET in result.text
            assert result.text.startswith(NOTICE)
            assert (result.origin, f"session:{A_MAIN}" in result.sources) == (Origin.OUTSIDE, True)


@pytest.mark.parametrize("run", [{}, STRANGER])
async def test_a_group_sees_its_tree_and_nothing_of_the_private_sessions(tmp_path: Path, run: dict[str, Any]) -> None:
    tools = {"profile": "full", **BETWEEN}
    async with living(tmp_path, tools=tools) as pal:
        await pal.hears(SECRET)
        child = await pal.child("agent:main:subagent:c1", GROUP, "count the boats")
        grandchild = await pal.child("agent:main:subagent:c2", child, "count the oars")
        await pal.child("agent:main:subagent:c3", MAIN, SECRET)
        told = await canaries(pal, GROUP, MAIN, run)
        assert "xyzzy" not in "".join(each.text for each in told)
        assert [each.is_error for each in told] == [False, True, True, False, True]
        assert "this session is not private" in told[1].text
        listed = (await pal.answers("sessions_list", GROUP, run))["sessions"]
        assert {row["key"] for row in listed} == {GROUP, child, grandchild}
        assert "boats" in (await pal.calls("sessions_history", GROUP, run, sessionKey=child)).text
        assert "oars" in (await pal.calls("sessions_search", GROUP, run, query="oars")).text


async def test_a_stranger_in_a_private_session_sees_its_tree_only(tmp_path: Path) -> None:
    chat = "agent:main:telegram:direct:42"
    async with living(tmp_path, tools={"profile": "full"}) as pal:
        await pal.hears(SECRET)
        told = await canaries(pal, chat, MAIN, STRANGER)
        assert "xyzzy" not in "".join(each.text for each in told)
        assert "the message is not the owner's" in told[1].text
        assert "xyzzy" in (await pal.calls("sessions_history", chat, sessionKey=MAIN)).text  # the owner asks there


async def test_a_sandboxed_session_sees_its_tree_only(tmp_path: Path) -> None:
    async with living(tmp_path, defaults={"sandbox": {"mode": "non-main"}}) as pal:
        await pal.hears(SECRET)
        told = await pal.calls("sessions_history", TRIP, sessionKey=MAIN)
        assert (told.is_error, "this session is sandboxed" in told.text) == (True, True)
        assert "sandboxed" not in (await pal.calls("sessions_history", MAIN, sessionKey=TRIP)).text


@pytest.mark.parametrize(
    ("visibility", "seen"),
    [("self", {MAIN}), ("tree", {MAIN, "agent:main:subagent:c1"}), ("agent", {MAIN, "agent:main:subagent:c1", TRIP})],
)
async def test_visibility_says_what_is_seen(tmp_path: Path, visibility: str, seen: set[str]) -> None:
    async with living(tmp_path, tools={"sessions": {"visibility": visibility}}) as pal:
        await pal.hears("hello", TRIP)
        child = await pal.child("agent:main:subagent:c1", MAIN)
        assert {row["key"] for row in (await pal.answers("sessions_list"))["sessions"]} == seen
        told = {key: await pal.calls("sessions_history", sessionKey=key) for key in (TRIP, child)}
        assert {key for key, each in told.items() if not each.is_error} == seen - {MAIN}
        assert all(f"tools.sessions.visibility is {visibility}" in each.text for each in told.values() if each.is_error)


async def test_words_of_a_session_that_has_read_a_page_stay_from_outside(tmp_path: Path) -> None:
    async with living(tmp_path, web_page, tools={"alsoAllow": ["web_page"]}) as pal:
        await pal.hears("before the page", TRIP)
        assert (await pal.calls("sessions_history", sessionKey=TRIP)).origin == Origin.OWNER
        await pal.hears(do("web_page"), TRIP)
        await pal.hears("after the page", TRIP)
        for name, arguments in (
            ("sessions_history", {"sessionKey": TRIP, "limit": 1}),  # the page itself is not among it
            ("sessions_search", {"query": "after page"}),
            ("sessions_list", {"messageLimit": 1}),
        ):
            result = await pal.calls(name, **arguments)
            assert (result.origin, result.sources) == (Origin.OUTSIDE, ("host:lies.example",)), name
        await pal.hears("/new", TRIP)
        await pal.hears("a fresh start", TRIP)
        await pal.hears("/new")
        assert (await pal.calls("sessions_history", sessionKey=TRIP, limit=2)).origin == Origin.OWNER
        assert (await pal.calls("sessions_history", sessionKey=TRIP, limit=9)).origin == Origin.OUTSIDE


async def test_tool_calls_are_shown_when_asked_for(tmp_path: Path) -> None:
    async with living(tmp_path) as pal:
        await pal.hears(do("sessions_search", query="figs"), TRIP)
        plain = (await pal.answers("sessions_history", sessionKey=TRIP))["messages"]
        assert [each["role"] for each in plain] == ["user", "assistant"]
        whole = (await pal.answers("sessions_history", sessionKey=TRIP, includeTools=True))["messages"]
        assert [each["role"] for each in whole] == ["user", "assistant", "tool", "assistant"]
        assert (whole[1]["calls"], whole[2]["tool"]) == (['sessions_search {"query":"figs"}'], "sessions_search")


async def test_long_texts_and_long_histories_are_cut_and_say_so(tmp_path: Path) -> None:
    async with living(tmp_path) as pal:
        for number in range(8):
            await pal.hears(f"{number} " + "x" * MAX_TEXT, TRIP)
        answer = await pal.answers("sessions_history", sessionKey=TRIP, limit=100)
        assert "older" in answer
        assert "cut" in answer
        assert len(json.dumps(answer)) <= 16_000  # what a result may have for the window of this model
        texts = [each["text"] for each in answer["messages"] if each["role"] == "user"]
        assert texts[-1].startswith("7 ")
        assert texts[-1].endswith("[… 2 more characters]")
        assert len(texts) == 3


@given(st.lists(st.text(max_size=50), max_size=30), st.integers(0, MAX_BYTES))
def test_what_is_shown_never_has_more_than_its_room(texts: list[str], size: int) -> None:
    rows: list[Json] = [{"text": text} for text in texts]
    kept = fitting(rows, size)
    assert kept == rows[: len(kept)]
    assert sum(len(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()) for row in kept) <= size
    assert len(kept) == len(rows) or len(kept) <= size


async def test_agents_are_listed_where_another_one_can_be_reached(tmp_path: Path) -> None:
    async with living(tmp_path / "1", **TWO) as pal:
        assert "agents_list" not in await offered(pal, A_MAIN)
    async with living(tmp_path / "2", tools=BETWEEN, **TWO) as pal:
        assert "agents_list" in await offered(pal, A_MAIN)
        told = await pal.answers("agents_list", A_MAIN)
        assert told["agents"] == [{"id": "a", "current": True}, {"id": "b", "name": "Berta", "by": ["sessions_send"]}]
    async with living(tmp_path / "3", defaults={"subagents": {"allowAgents": ["b"]}}, **TWO) as pal:
        assert (await pal.answers("agents_list", A_MAIN))["agents"][1]["by"] == ["sessions_spawn"]


async def offered(pal: SessionsHome, key: str) -> set[str]:
    await pal.hears("what have you?", key)
    return {tool["function"]["name"] for tool in pal.server.requests[-1]["tools"]}


async def test_tools_are_offered_where_they_can_be_used(tmp_path: Path) -> None:
    async with living(tmp_path / "1") as pal:
        assert {*READING, "sessions_send"} <= await offered(pal, MAIN)
        assert "sessions_send" not in await offered(pal, GROUP)
        assert not {*READING, "sessions_send"} & await offered(pal, "agent:main:subagent:c1")
    async with living(tmp_path / "2", tools={"sessions": {"visibility": "self"}}) as pal:
        assert "sessions_send" not in await offered(pal, MAIN)


async def test_five_schemas_are_small(tmp_path: Path) -> None:
    async with living(tmp_path, **TWO) as pal:
        specs = [each.spec for each in await pal.services.toolsets.tools("a")]
        sizes = {
            spec.name: len(json.dumps([spec.name, spec.description, spec.parameters], separators=(",", ":")))
            for spec in specs
            if spec.name in (*READING, "sessions_send", "agents_list")
        }
        assert len(sizes) == 5
        assert max(sizes.values()) <= 350
        assert sum(sizes.values()) <= 1_250
