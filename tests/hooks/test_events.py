"""What happens is told under OpenClaw's names, in order, with what is needed to act on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from listeners import Listeners

from palinurus.dispatch.delivery import DeliveryJob
from palinurus.domain.envelope import Delivery, Inbound
from palinurus.domain.events import Notice
from palinurus.domain.hooks import EVENTS, Hooks, find_none
from palinurus.domain.tool import ToolOutput, ToolRun, tool
from palinurus.sessions.reset import ResetPolicy
from palinurus.testing.fakes import call, calls
from palinurus.testing.harness import WAIT, Harness
from support.windowed import WindowedProvider

MAIN = "agent:main:main"


@pytest.fixture
def listeners() -> Listeners:
    return Listeners()


@pytest.fixture
async def pal(workspace: Path, listeners: Listeners) -> AsyncIterator[Harness]:
    @tool("tide", "When the tide turns.")
    async def tide(run: ToolRun, place: str) -> ToolOutput:
        return ToolOutput(f"06:12 in {place}")

    async with Harness(workspace, tools=[tide], hooks=listeners.service) as whole:
        yield whole


async def test_a_message_a_tool_call_and_a_reply_are_told_in_order(pal: Harness, listeners: Listeners) -> None:
    listeners.add("all", *EVENTS[:10], "agent_end", "after_tool_call")
    pal.model.says(calls(call("tide", place="Aster")), "At 06:12.")
    await pal.hears("when?")
    await pal.hooks.idle()
    assert listeners.names == ["message:received", "session_start", "after_tool_call", "agent_end", "message:sent"]
    received, _, after, end, sent = (event.context for event in listeners.told)
    assert (received["from"], received["content"], received["channelId"]) == ("owner", "when?", "cli")
    assert (after["toolName"], after["params"], after["result"]) == ("tide", {"place": "Aster"}, "06:12 in Aster")
    assert (end["success"], end["content"], sent["content"], sent["success"]) == (True, "At 06:12.", "At 06:12.", True)
    assert {event.session_key for event in listeners.told} == {MAIN}
    assert all(event.timestamp == pal.clock.now_ms() for event in listeners.told)


async def test_a_family_hears_of_all_its_events_and_of_no_other(pal: Harness, listeners: Listeners) -> None:
    listeners.add("commands", "command")
    for text in ("hello", "/new", "/reset", "stop"):
        await pal.hears(text)
    await pal.hooks.idle()
    assert listeners.names == ["command:new", "command:reset", "command:stop"]
    assert {event.context["commandSource"] for event in listeners.told} == {"cli"}


async def test_a_hook_with_a_higher_priority_is_called_first(pal: Harness, listeners: Listeners) -> None:
    order: list[str] = []
    for name, priority in (("late", -1), ("first", 10), ("second", 0)):
        listeners.add(name, "command:new", call=lambda _, name=name: order.append(name), priority=priority)
    await pal.hears("/new")
    assert order == ["first", "second", "late"]


async def test_the_answer_to_new_says_what_hooks_add(pal: Harness, listeners: Listeners) -> None:
    listeners.add("greeter", "command:new", call=lambda event: event.messages.append("The log was saved."))
    reply = await pal.hears("/new")
    assert reply.text.endswith("stay in the transcript.\n\nThe log was saved.")
    run = await pal.submits("/new and go on")
    assert (await run.wait(WAIT)).text == "you said: and go on"
    assert Notice("The log was saved.") in [event async for event in run.events()]


async def test_messages_of_a_hook_are_bounded(pal: Harness, listeners: Listeners) -> None:
    listeners.add("noisy", "command:new", call=lambda event: event.messages.extend(["x" * 100_000] * 1_000))
    assert len((await pal.hears("/new")).text) < 11_000


async def test_an_automatic_reset_is_told_with_its_reason(pal: Harness, listeners: Listeners) -> None:
    listeners.add("resets", "session", "session_end")
    await pal.hears("hello")
    pal.resets = ResetPolicy("idle", idle_minutes=5)
    pal.clock.advance(minutes=6)
    await pal.hears("again")
    await pal.hooks.idle()
    assert listeners.names == ["session:auto-reset", "session_end"]
    assert {event.context["reason"] for event in listeners.told} == {"idle"}


async def test_compaction_is_told_before_and_after_and_its_hooks_are_heard(
    workspace: Path, listeners: Listeners
) -> None:
    def speak(event: object) -> None:
        listeners.told.append(event)  # type: ignore[arg-type]
        event.messages.append(f"{event.action}!")  # type: ignore[attr-defined]

    listeners.add("speaker", "session:compact:before", "session:compact:after", call=speak)
    async with Harness(workspace, model=WindowedProvider(window=8_000), hooks=listeners.service) as pal:
        for turn in range(6):
            await pal.hears(f"{turn} " + "the tide turns and the harbour lights come on " * 30)
        run = await pal.submits("/compact")
        await run.wait(WAIT)
        told = [event.text async for event in run.events() if isinstance(event, Notice)]
    assert told == ["compact:before!", "compact:after!"]
    after = listeners.told[-1].context
    assert after["trigger"] == "manual"
    assert after["tokensAfter"] < after["tokensBefore"]
    assert after["compactedCount"] > 0


async def test_what_a_channel_has_sent_is_told_once(pal: Harness, listeners: Listeners) -> None:
    class Printer:
        channel, repeatable = "printer", True

        async def send(self, delivery: DeliveryJob) -> str:
            return "1"

    listeners.add("sent", "message:sent")
    pal.deliveries.register(Printer())
    pal.jobs.open()
    inbound = Inbound("hi", "k", channel="printer", sender="desk", reply_to=Delivery("printer", "desk"))
    await (await pal.dispatcher.submit(inbound)).wait(WAIT)
    await pal.jobs.idle()
    await pal.hooks.idle()
    assert [(event.context["to"], event.context["content"]) for event in listeners.told] == [("desk", "you said: hi")]


async def test_runs_that_nobody_wrote_are_no_messages(pal: Harness, listeners: Listeners) -> None:
    listeners.add("messages", "message")
    run = await pal.dispatcher.submit(Inbound("go", "k", channel="boot", sender="gateway", plain=True))
    await run.wait(WAIT)
    await pal.hooks.idle()
    assert listeners.told == []


async def test_a_hook_of_one_agent_hears_nothing_of_another(pal: Harness, listeners: Listeners) -> None:
    listeners.add("other", "message", agents=frozenset({"other"}))
    listeners.add("own", "message:received", agents=frozenset({"main"}))
    await pal.hears("hello")
    await pal.hooks.idle()
    assert listeners.names == ["message:received"]


async def test_where_nobody_listens_nothing_is_prepared() -> None:
    hooks, prepared = Hooks(find_none), list[int]()
    hooks.observe("message:received", None, lambda: prepared.append(1) or {})
    await hooks.collect_messages("command:new", None, lambda: prepared.append(1) or {})
    assert (prepared, hooks.health) == ([], {})
