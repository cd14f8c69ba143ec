"""Slash commands in a conversation, and sessions that start over by themselves."""

from __future__ import annotations

import pytest

from palinurus.domain.envelope import Inbound
from palinurus.domain.events import RunResult
from palinurus.domain.keys import SessionKey
from palinurus.sessions.reset import ResetPolicy
from palinurus.sessions.transcript import ResetEntry
from palinurus.testing.harness import Harness


def sent(pal: Harness) -> list[str]:
    return [message.text for message in pal.model.requests[-1].messages]


async def resets(pal: Harness) -> list[str]:
    return [entry.reason for entry in await pal.transcript() if isinstance(entry, ResetEntry)]


@pytest.mark.parametrize("word", ["/new", "/reset", "/NEW"])
async def test_a_fresh_start_forgets_for_the_model_and_calls_none(pal: Harness, word: str) -> None:
    await pal.hears("one")
    reply = await pal.hears(word)
    assert (reply.status, len(pal.model.requests)) == ("ok", 1)
    assert "session was reset" in reply.text
    await pal.hears("two")
    assert sent(pal) == ["two"]
    session = await pal.sessions.find(SessionKey.main())
    assert session is not None
    assert session.context_tokens == 110


async def test_new_with_a_message_starts_over_with_it(pal: Harness) -> None:
    await pal.hears("one")
    reply = await pal.hears("/new what is two?")
    assert reply.text == "you said: what is two?"
    assert sent(pal) == ["what is two?"]


async def test_new_keeps_its_place_in_the_line(pal: Harness) -> None:
    runs = [await pal.submits(text) for text in ("one", "/new", "two")]
    results: list[RunResult] = [await run.wait(60) for run in runs]
    assert [result.status for result in results] == ["ok", "ok", "ok"]
    assert [[message.text for message in request.messages] for request in pal.model.requests] == [["one"], ["two"]]


async def test_a_fresh_start_that_a_crash_cut_off_is_made_once(pal: Harness) -> None:
    await pal.hears("one")
    await pal.submits("/new two")
    await pal.crash()
    await pal.idle()
    assert await resets(pal) == ["new"]
    assert sent(pal) == ["two"]
    assert len([text for text in map(str, await pal.messages()) if "'two'" in text]) == 1


async def test_help_status_and_context_are_answered_without_a_model_or_an_entry(pal: Harness) -> None:
    async def say(key: SessionKey, rest: str, _: Inbound) -> str:
        return f"{key} {rest}".strip()

    pal.dispatcher.answers |= {"status": say, "context": say}
    assert "/stop" in (await pal.hears("/help")).text
    assert (await pal.hears("/status now")).text == "agent:main:main now"
    assert (await pal.hears("/context", key="agent:main:direct:alice")).text == "agent:main:direct:alice"
    assert pal.model.requests == []
    assert await pal.transcript() == []


async def test_a_daily_reset_happens_with_the_first_message_of_the_day(pal: Harness) -> None:
    pal.resets = ResetPolicy("daily", 4)
    await pal.hears("good evening")
    pal.clock.advance(days=1)
    await pal.hears("good morning")
    await pal.hears("how are you?")
    assert await resets(pal) == ["daily"]
    assert sent(pal)[::2] == ["good morning", "how are you?"]


async def test_an_idle_reset_happens_after_silence_and_talk_keeps_the_session_alive(pal: Harness) -> None:
    pal.resets = ResetPolicy("idle", idle_minutes=30)
    for text in ("one", "two", "three"):
        await pal.hears(text)
        pal.clock.advance(minutes=29)
    assert await resets(pal) == []
    pal.clock.advance(minutes=2)
    await pal.hears("four")
    assert await resets(pal) == ["idle"]
    assert sent(pal) == ["four"]


async def test_a_day_that_begins_while_nothing_is_there_to_reset_is_not_made_up_for_later(pal: Harness) -> None:
    pal.resets = ResetPolicy("daily", 4)
    await pal.hears("before midnight")
    await pal.hears("/new")
    pal.clock.advance(days=1)
    await pal.hears("good morning")
    await pal.hears("as I was saying")
    assert sent(pal)[::2] == ["good morning", "as I was saying"]


async def test_a_turn_that_is_taken_up_after_the_hour_is_not_cut_in_two(pal: Harness) -> None:
    pal.resets = ResetPolicy("idle", idle_minutes=5)
    await pal.hears("one")
    await pal.submits("two")
    pal.clock.advance(minutes=3)
    await pal.crash()
    await pal.idle()
    assert await resets(pal) == []
    assert sent(pal)[::2] == ["one", "two"]
