"""Several `pal` processes on one home: they share it, hand it over, refuse what they cannot serve, and still read."""

from __future__ import annotations

import asyncio

import pytest
from audit import audit, check_answered_once

from homes import PATIENCE, PalHome, Talk, stopped
from palinurus.config.home import find_home
from palinurus.domain.envelope import Inbound
from palinurus.domain.errors import HomeHeld
from palinurus.operations.runs import submit_message
from palinurus.operations.sessions import list_sessions
from palinurus.runtime.home_access import HomeAccess
from support.behaviours import Says
from support.wire import WireServer

pytestmark = pytest.mark.slow


async def holding_chat(home: PalHome) -> Talk:
    """A `pal chat` that holds the home and has answered once."""
    chat = await home.start(*home.command, "chat")
    assert await chat.answer("first words") == "heard: first words"
    assert home.holder() == chat.pid
    return chat


async def test_two_chats_on_one_home_both_get_answers_and_the_one_that_stays_takes_over(home: PalHome) -> None:
    first = await holding_chat(home)
    second = await home.start(*home.command, "chat")
    try:
        for number in range(3):
            assert await second.answer(f"second {number}") == f"heard: second {number}"
            assert await first.answer(f"first {number}") == f"heard: first {number}"
        assert home.holder() == first.pid
        ended = await first.leave()
        assert (ended.code, ended.err) == (0, "")
        assert await second.answer("alone now") == "heard: alone now"
        assert home.holder() == second.pid
        ended = await second.leave()
        assert (ended.code, ended.err) == (0, "")
    finally:
        await first.kill()
        await second.kill()
    story = audit(home.database).sessions["agent:main:main"]
    check_answered_once(story)
    assert len(story) == 16


async def test_a_holder_that_leaves_finishes_what_it_accepted_for_another(home: PalHome, wire: WireServer) -> None:
    first = await holding_chat(home)
    async with home.talking("chat") as second:
        assert await second.answer("hello") == "heard: hello"
        wire.script.append(Says("a reply that takes its time", chunks=9, delay=0.05))
        await second.say("a long question")
        await wire.until(lambda server: len(server.requests) == 3, PATIENCE)
        ended = await first.leave()
        assert ended.code == 0
        assert ended.err == "pal: finishing 1 run(s) for another terminal\n"
        await second.until(lambda line: line.endswith("a reply that takes its time"))
        assert await second.answer("and on") == "heard: and on"
        assert (await second.leave()).code == 0
    assert audit(home.database).said("agent:main:main") == ["first words", "hello", "a long question", "and on"]
    assert len(wire.requests) == 4


async def test_a_killed_holder_costs_its_client_nothing_but_a_notice(home: PalHome, wire: WireServer) -> None:
    first = await holding_chat(home)
    async with home.talking("chat") as second:
        assert await second.answer("hello") == "heard: hello"
        wire.script.append(Says("a reply that takes its time", chunks=9, delay=0.05))
        await second.say("a long question")
        await wire.until(lambda server: len(server.requests) == 3, PATIENCE)
        await first.kill()
        await second.until(lambda line: line.endswith("heard: a long question"))
        ended = await second.leave()
    assert ended.code == 0
    assert ended.err.count("the process that ran it has ended") == 1
    story = audit(home.database).sessions["agent:main:main"]
    check_answered_once(story)


@pytest.mark.parametrize("option", ["--config", "--workspace"])
async def test_a_client_that_means_another_config_or_workspace_is_refused_and_told_why(
    home: PalHome, option: str
) -> None:
    first = await holding_chat(home)
    try:
        other = home.root.parent / "other"
        if option == "--config":
            other.write_text((home.root / "palinurus.json").read_text())
        else:
            other.mkdir()
        refused = await home.pal(option, str(other), "agent", "-m", "hello")
        assert refused.code == 1
        said = refused.one_clear_line()
        assert str(other) in said
        assert f"pid {first.pid}" in said
        assert await first.answer("still here") == "heard: still here"
    finally:
        await first.kill()
    assert audit(home.database).said("agent:main:main") == ["first words", "still here"]


async def test_behind_a_holder_that_does_not_answer_one_may_read_and_hears_who_holds_it(home: PalHome) -> None:
    chat = await holding_chat(home)
    warnings: list[str] = []
    try:
        with stopped(chat):
            here = find_home(home.env)
            async with HomeAccess(here, home.env, "test", warn=warnings.append, reach_seconds=0.3) as door:
                listed = await asyncio.wait_for(door.call(list_sessions, list_sessions.params()), PATIENCE)
                with pytest.raises(HomeHeld, match=f"pid {chat.pid} .pal chat. holds the home"):
                    await asyncio.wait_for(door.call(submit_message, Inbound("may I?", "key")), PATIENCE)
        assert [session.key for session in listed.sessions] == ["agent:main:main"]
        assert len(warnings) == 1
        assert f"pid {chat.pid} (pal chat)" in warnings[0]
        assert await chat.answer("awake again") == "heard: awake again"
    finally:
        await chat.kill()


async def test_the_command_reads_behind_a_stopped_holder_and_does_not_write(home: PalHome) -> None:
    chat = await holding_chat(home)
    try:
        with stopped(chat):
            reading, writing = await asyncio.gather(
                home.pal("sessions", "list"), home.pal("agent", "-m", "are you there?")
            )
        assert reading.code == 0
        assert "agent:main:main" in reading.out
        assert f"pid {chat.pid} (pal chat)" in reading.err
        assert writing.code == 1
        assert f"pid {chat.pid} (pal chat)" in writing.one_clear_line()
    finally:
        await chat.kill()
    assert audit(home.database).said("agent:main:main") == ["first words"]
