"""Sessions through the gateway: listed, changed, started over and ended, with nothing lost and nothing done twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from family_asking import WAIT, Asking

from palinurus.config.home import Home
from palinurus.domain.errors import BadRequest, MissingScope, NotFound, NotOffered, Stale
from palinurus.domain.keys import SessionKey
from palinurus.providers.provider import ModelRequest, ReplyEvent
from palinurus.testing.fakes import ScriptedProvider
from palinurus.testing.harness import Harness

MAIN = "agent:main:main"
ANNA = "agent:main:direct:anna"


class SlowProvider(ScriptedProvider):
    """Answers when the gate is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        self.asked.set()
        await self.gate.wait()
        async for event in super().stream(request):
            yield event


@pytest.fixture
async def slow(workspace: Path, home: Home) -> AsyncIterator[Asking]:
    async with Harness(workspace, model=SlowProvider()) as pal:
        yield Asking(pal, home)


async def words(pal: Harness, key: str = MAIN) -> list[str]:
    return [message.text for message in await pal.messages(key)]


async def test_sessions_are_listed_newest_first_with_openclaw_s_names(ask: Asking) -> None:
    await ask.pal.hears("hello there", key=MAIN)
    ask.pal.clock.advance(minutes=5)
    await ask.pal.hears("hi", key=ANNA)
    listed = await ask("sessions.list", includeDerivedTitles=True, includeLastMessage=True)
    assert [row["key"] for row in listed["sessions"]] == [ANNA, MAIN]
    assert (listed["count"], listed["hasMore"]) == (2, False)
    row = listed["sessions"][1]
    assert (row["derivedTitle"], row["lastMessagePreview"]) == ("hello there", "you said: hello there")
    assert (row["modelProvider"], row["model"], row["totalTokens"]) == ("scripted", "model-1", 110)
    assert (row["kind"], row["hasActiveRun"], row["activeRunIds"]) == ("direct", False, [])


async def test_a_list_is_filtered_and_paged(ask: Asking) -> None:
    for number in range(5):
        await ask.pal.hears("hi", key=f"agent:main:direct:p{number}")
        ask.pal.clock.advance(minutes=10)
    await ask("sessions.patch", key="agent:main:direct:p1", label="Boat")
    page = await ask("sessions.list", limit=2, offset=1)
    assert [row["key"][-2:] for row in page["sessions"]] == ["p4", "p3"]
    assert page["hasMore"]
    assert [row["key"][-2:] for row in (await ask("sessions.list", label="Boat"))["sessions"]] == ["p1"]
    assert [row["key"][-2:] for row in (await ask("sessions.list", search="P2"))["sessions"]] == ["p2"]
    recent = await ask("sessions.list", activeMinutes=25)
    assert [row["key"][-2:] for row in recent["sessions"]] == ["p1", "p4", "p3"]


async def test_a_session_that_runs_is_told_as_active(slow: Asking) -> None:
    run = await slow.pal.submits("hi")
    row = (await slow("sessions.describe", key=MAIN))["session"]
    assert row is None or row["activeRunIds"] == [run.id]
    await asyncio.wait_for(slow.pal.model.asked.wait(), WAIT)
    assert [each["key"] for each in (await slow("sessions.list", activeOnly=True))["sessions"]] == [MAIN]
    assert (await slow("sessions.abort", key=MAIN))["count"] == 1
    await run.wait(WAIT)


async def test_the_one_that_is_named_is_shown_and_the_main_one_when_none_is(ask: Asking) -> None:
    await ask.pal.hears("one")
    await ask.pal.hears("two", key=ANNA)
    for method in ("sessions.show", "context.show", "status.session"):
        told = [await ask(method, **named) for named in ({"sessionKey": ANNA}, {})]
        assert [each.get("sessionKey") or each["session"]["key"] for each in told] == [ANNA, MAIN]


async def test_previews_show_the_last_words_and_say_what_is_missing(ask: Asking) -> None:
    await ask.pal.hears("one")
    await ask.pal.hears("two " * 100)
    told = await ask("sessions.preview", keys=[MAIN, ANNA], limit=3, maxChars=20)
    assert [(each["key"], each["status"]) for each in told["previews"]] == [(MAIN, "ok"), (ANNA, "missing")]
    items = told["previews"][0]["items"]
    assert [item["role"] for item in items] == ["assistant", "user", "assistant"]
    assert items[0]["text"] == "you said: one"
    assert len(items[1]["text"]) == 20


async def test_a_session_is_found_by_its_name_or_id(ask: Asking) -> None:
    await ask.pal.hears("hi")
    row = (await ask("sessions.get", key=MAIN))["session"]
    await ask("sessions.patch", key=MAIN, label="Boat")
    assert await ask("sessions.resolve", sessionId=row["sessionId"]) == {"ok": True, "key": MAIN}
    assert await ask("sessions.resolve", label="Boat") == {"ok": True, "key": MAIN}
    assert await ask("sessions.resolve", label="Train", allowMissing=True) == {"ok": False}
    with pytest.raises(NotFound):
        await ask("sessions.resolve", label="Train")
    with pytest.raises(BadRequest):
        await ask("sessions.resolve", label="Boat", key=MAIN)


async def test_a_patch_keeps_name_model_thinking_and_preferences(ask: Asking) -> None:
    patched = await ask(
        "sessions.patch",
        key=MAIN,
        label="  The   boat ",
        model="scripted/other",
        thinkingLevel="high",
        verboseLevel="full",
        responseUsage="on",
        queueMode="collect",
        queueCap=7,
        queueDebounceMs=1500,
        queueDrop="old",
    )
    entry = patched["entry"]
    assert entry["label"] == "The boat"
    assert {
        "verboseLevel": "full",
        "responseUsage": "tokens",
        "queueMode": "collect",
        "queueCap": 7,
        "queueDebounceMs": 1500,
        "queueDrop": "old",
        "thinkingLevel": "high",
    }.items() <= entry.items()
    assert patched["resolved"] == {"modelProvider": "scripted", "model": "other", "thinkingLevel": "high"}
    await ask.pal.hears("hi")
    assert (ask.pal.model.requests[-1].model, ask.pal.model.requests[-1].thinking) == ("other", "high")


async def test_null_goes_back_to_what_the_config_says(ask: Asking) -> None:
    await ask("sessions.patch", key=MAIN, label="x", model="scripted/other", thinkingLevel="high", verboseLevel="on")
    patched = await ask("sessions.patch", key=MAIN, label=None, model=None, thinkingLevel=None, verboseLevel=None)
    assert "label" not in patched["entry"]
    assert "verboseLevel" not in patched["entry"]
    assert patched["resolved"] == {"modelProvider": "scripted", "model": "model-1", "thinkingLevel": "off"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"thinkingLevel": "enormous"},
        {"verboseLevel": "loud"},
        {"queueMode": "chaos"},
        {"queueCap": 0},
        {"queueDebounceMs": -1},
        {"queueDrop": "all"},
        {"label": "x" * 600},
        {"elevatedLevel": "root"},
    ],
)
async def test_a_wrong_value_changes_nothing(ask: Asking, wrong: dict[str, object]) -> None:
    with pytest.raises(BadRequest):
        await ask("sessions.patch", key=MAIN, **{"label": "good", **wrong})
    assert await ask.pal.sessions.find(SessionKey.main()) is None


async def test_leaving_the_sandbox_needs_the_scope_of_approvals(ask: Asking) -> None:
    with pytest.raises(MissingScope, match="approvals"):
        await ask("sessions.patch", ("write",), key=MAIN, elevatedLevel="full")
    await ask("sessions.patch", ("write",), key=MAIN, elevatedLevel="off")
    await ask("sessions.patch", ("write", "approvals"), key=MAIN, elevatedLevel="full")


@pytest.mark.parametrize("lifted", [None, "", "on", "ask", "full"])
async def test_what_keeps_commands_in_the_sandbox_is_not_lifted_by_who_may_only_write(
    ask: Asking, lifted: str | None
) -> None:
    await ask("sessions.patch", ("write",), key=MAIN, elevatedLevel="off")
    with pytest.raises(MissingScope, match="approvals"):
        await ask("sessions.patch", ("write",), key=MAIN, elevatedLevel=lifted)
    await ask("sessions.reset", key=MAIN, reason="new")
    assert (await ask("sessions.describe", key=MAIN))["session"]["elevatedLevel"] == "off"
    await ask("sessions.patch", ("write", "approvals"), key=MAIN, elevatedLevel=lifted)


async def test_a_reset_puts_away_what_was_said_and_keeps_it(ask: Asking) -> None:
    await ask.pal.hears("before")
    ask.hub.listen(ask, MAIN)
    done = await ask("sessions.reset", key=MAIN, reason="new")
    assert (done["ok"], done["key"]) == (True, MAIN)
    assert ("sessions.changed", {"sessionKey": MAIN, "reason": "new"}) in ask.heard
    await ask.pal.hears("after")
    assert [message.text for message in ask.pal.model.requests[-1].messages] == ["after"]
    assert "before" in await words(ask.pal)


async def test_a_reset_waits_for_the_turn_that_runs(slow: Asking) -> None:
    run = await slow.pal.submits("a long story")
    await asyncio.wait_for(slow.pal.model.asked.wait(), WAIT)
    reset = asyncio.create_task(slow("sessions.reset", key=MAIN))
    await asyncio.sleep(0)
    assert not reset.done()
    slow.pal.model.gate.set()
    await asyncio.wait_for(reset, WAIT)
    assert (await run.wait(WAIT)).status == "ok"
    kinds = [type(entry).__name__ for entry in await slow.pal.transcript()]
    assert kinds.index("ResetEntry") > kinds.index("MessageEntry")


async def test_a_reset_that_is_asked_for_again_after_a_crash_puts_nothing_more_away(ask: Asking) -> None:
    await ask.pal.hears("before")
    await ask("sessions.reset", key=MAIN, idempotencyKey="once")
    await ask.pal.crash()
    await ask.pal.hears("after")
    again = Asking(ask.pal, ask.home)
    await again("sessions.reset", key=MAIN, idempotencyKey="once")
    await again.pal.hears("later")
    assert again.pal.model.requests[-1].messages[0].text == "after"
    await again("sessions.reset", key=MAIN, idempotencyKey="twice")
    await again.pal.hears("fresh")
    assert [message.text for message in again.pal.model.requests[-1].messages] == ["fresh"]


async def test_who_goes_by_another_conversation_is_told(ask: Asking) -> None:
    await ask.pal.hears("hi")
    for method in ("sessions.reset", "sessions.delete", "sessions.patch"):
        with pytest.raises(Stale):
            await ask(method, key=MAIN, expectedSessionId="somebody-else")
    row = (await ask("sessions.describe", key=MAIN))["session"]
    assert (await ask("sessions.delete", key=MAIN, expectedSessionId=row["sessionId"]))["deleted"]


async def test_a_deleted_session_is_archived_and_its_key_begins_anew(ask: Asking) -> None:
    await ask.pal.hears("the secret plan")
    session = await ask.pal.sessions.find(SessionKey.main())
    assert session is not None
    done = await ask("sessions.delete", key=MAIN)
    assert done == {"key": MAIN, "deleted": True, "archived": [session.id], "ok": True}
    assert (await ask("sessions.list"))["sessions"] == []
    assert (await ask("sessions.delete", key=MAIN))["deleted"] is False
    await ask.pal.hears("hello again")
    assert await words(ask.pal) == ["hello again", "you said: hello again"]
    assert [message.text for message in ask.pal.model.requests[-1].messages] == ["hello again"]
    assert len(await ask.pal.sessions.rows(session.id)) > 2
    found = await ask("sessions.search", query="secret plan")
    assert found["hits"][0]["sessionId"] == session.id


async def test_deleting_stops_what_runs_and_what_waits(slow: Asking) -> None:
    runs = [await slow.pal.submits("one"), await slow.pal.submits("two")]
    await asyncio.wait_for(slow.pal.model.asked.wait(), WAIT)
    assert (await slow("sessions.delete", key=MAIN))["deleted"]
    assert [(await run.wait(WAIT)).status for run in runs] == ["aborted", "aborted"]
    slow.pal.model.gate.set()
    await slow.pal.hears("three")
    assert (await words(slow.pal))[0] == "three"


async def test_a_delete_that_is_asked_for_again_spares_the_conversation_after_it(ask: Asking) -> None:
    await ask.pal.hears("first life")
    first = await ask("sessions.delete", key=MAIN, idempotencyKey="once")
    await ask.pal.crash()
    again = Asking(ask.pal, ask.home)
    await again.pal.hears("second life")
    assert await again("sessions.delete", key=MAIN, idempotencyKey="once") == first
    assert (await words(again.pal))[0] == "second life"


async def test_injected_words_stand_in_the_transcript_once_and_are_read_next_time(ask: Asking) -> None:
    await ask.pal.hears("hi")
    ask.hub.listen(ask, MAIN)
    done = await ask("chat.inject", sessionKey=MAIN, message="The post has come.", label="door", idempotencyKey="k")
    again = await ask("chat.inject", sessionKey=MAIN, message="The post has come.", label="door", idempotencyKey="k")
    assert done["messageId"] == again["messageId"]
    assert (await words(ask.pal)).count("[door]\n\nThe post has come.") == 1
    final = next(payload for event, payload in ask.heard if event == "chat")
    assert (final["state"], final["message"]["content"][0]["text"]) == ("final", "[door]\n\nThe post has come.")
    await ask.pal.hears("what was that?")
    assert any("The post has come." in message.text for message in ask.pal.model.requests[-1].messages)


async def test_words_are_not_injected_into_nothing_nor_empty_nor_with_secrets(workspace: Path, home: Home) -> None:
    async with Harness(workspace, secrets=("hunter2-hunter2",)) as pal:
        ask = Asking(pal, home)
        with pytest.raises(NotFound):
            await ask("chat.inject", sessionKey=MAIN, message="hello")
        await pal.hears("hi")
        with pytest.raises(BadRequest):
            await ask("chat.inject", sessionKey=MAIN, message="  ")
        ask.hub.listen(ask, MAIN)
        await ask("chat.inject", sessionKey=MAIN, message="it is hunter2-hunter2")
        assert "hunter2-hunter2" not in str(await pal.transcript()) + str(ask.heard)


async def test_compacting_sums_up_once_and_says_what_came_of_it(ask: Asking) -> None:
    with pytest.raises(NotFound):
        await ask("sessions.compact", key=MAIN)
    for number in range(4):
        await ask.pal.hears(f"message {number} " + "about the boat and the harbour " * 10)
    ask.hub.listen(ask, MAIN)
    done = await ask("sessions.compact", key=MAIN, focus="the boat", idempotencyKey="once")
    assert (done["ok"], done["compacted"], done["entry"]["compactionCount"]) == (True, True, 1)
    assert done["tokensAfter"] < done["tokensBefore"]
    again = await ask("sessions.compact", key=MAIN, focus="the boat", idempotencyKey="once")
    assert again["entry"]["compactionCount"] == 1
    with pytest.raises(NotOffered, match="never cut"):
        await ask("sessions.compact", key=MAIN, maxLines=10)


async def test_history_is_the_newest_that_fits(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        await ask.pal.hears(f"message {number}")
    told = await ask("chat.history", sessionKey=MAIN, limit=3)
    assert [message["role"] for message in told["messages"]] == ["assistant", "user", "assistant"]
    monkeypatch.setattr("palinurus.gateway.openclaw.chat.MAX_BYTES", 700)
    few = (await ask("chat.history", sessionKey=MAIN))["messages"]
    assert 0 < len(few) < 12
    assert few[-1]["content"][0]["text"] == "you said: message 5"
    monkeypatch.setattr("palinurus.gateway.openclaw.chat.MAX_BYTES", 10)
    (one,) = (await ask("chat.history", sessionKey=MAIN, limit=1))["messages"]
    assert "too large" in one["content"]


async def test_an_unknown_agent_is_not_found_and_a_key_that_is_none_is_refused(ask: Asking) -> None:
    for method in ("sessions.reset", "sessions.patch"):
        with pytest.raises(NotFound):
            await ask(method, key="agent:nobody:main")
        with pytest.raises(BadRequest):
            await ask(method, key="agent:???")
