"""A message into another session: who may be written to, that it is read there, and that it is said once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palinurus.agent.resume import earlier_reply
from palinurus.config.load import Config
from palinurus.context.assemble import violations
from palinurus.context.view import Line, View
from palinurus.dispatch.contacts import Contacts
from palinurus.dispatch.messages import Messages
from palinurus.dispatch.pairing import Pairings, PairingStore
from palinurus.dispatch.recipients import Recipients
from palinurus.domain.errors import BadRequest
from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import AssistantMessage, Origin, Text, ToolCall, UserMessage
from palinurus.domain.tool import PreparedCall, Tool, ToolOutput, ToolRun, ToolSpec
from palinurus.providers.provider import ModelRequest
from palinurus.sessions.transcript import SENT
from palinurus.testing.fakes import Reply, call, calls
from palinurus.testing.harness import Harness
from palinurus.tools.registry import ToolRegistry
from palinurus.tools.session_tools import (
    MAX_TEXT,
    SOMEBODY_ELSE,
    SOMEBODY_NEW,
    OutgoingMessage,
    Recipient,
    message_tool,
)

ALICE = "agent:main:direct:alice"
RUN = ToolRun(SessionKey.main(), "run-1", private=True)


ALICE_SESSION = Recipient(ALICE, ALICE)


def messages(pal: Harness, timeout: float = 5.0) -> Messages:
    return Messages(pal.turns, pal.lanes, pal.deliveries, pal.clock, timeout=timeout)


def recipients(pal: Harness) -> Recipients:
    pairings = Pairings(PairingStore(pal.database), pal.clock, lambda below: 0)
    contacts = Contacts(pal.sessions, pairings, lambda: pal.clock.zone)
    return Recipients(pal.sessions, contacts, Config, pal.deliveries.has_sender)


def sending_tool(home: list[Harness], timeout: float = 5.0) -> Tool:
    """The tool as the services make it; `home` holds the harness once it is there."""

    async def send(run: ToolRun, outgoing: OutgoingMessage) -> str:
        return await messages(home[0], timeout).send(run, outgoing)

    async def find(run: ToolRun, to: str) -> Recipient:
        return await recipients(home[0]).find(run, to)

    return message_tool(send, find)


@pytest.fixture
async def services(workspace: Path) -> AsyncIterator[Harness]:
    """A harness whose model can send messages."""
    home: list[Harness] = []
    async with Harness(workspace, tools=[sending_tool(home)]) as pal:
        home.append(pal)
        yield pal


async def test_what_is_sent_is_read_there_by_people_and_by_the_model_of_the_next_turn(services: Harness) -> None:
    await services.hears("hello", key=ALICE)
    services.model.says(calls(call("message", to=ALICE, text="The boat is ready.")), "Told her.")
    await services.hears("tell alice")
    assert (await services.tool_results())[-1].text == f"written into {ALICE}; it is read there when somebody looks"
    assert (await services.messages(ALICE))[-1].text == "The boat is ready."
    await services.hears("thanks!", key=ALICE)
    sent = services.model.requests[-1].messages
    assert violations(sent) == []
    assert "The boat is ready." in [message.text for message in sent if isinstance(message, AssistantMessage)]


async def test_a_session_may_begin_with_what_was_sent_into_it(services: Harness) -> None:
    services.model.says(calls(call("message", to="direct:bob", text="Hi Bob.")), "Done.")
    await services.hears("greet bob")
    await services.hears("who is there?", key="agent:main:direct:bob")
    sent = services.model.requests[-1].messages
    assert violations(sent) == []
    assert [message.text for message in sent][1] == "Hi Bob."


async def test_within_an_epoch_the_prompt_still_only_grows(services: Harness) -> None:
    await services.hears("hello", key=ALICE)
    before = services.model.requests[-1]
    await messages(services).send(RUN, OutgoingMessage(ALICE_SESSION, "One."))
    await messages(services).send(RUN, OutgoingMessage(ALICE_SESSION, "Two."))
    await services.hears("and?", key=ALICE)
    after = services.model.requests[-1]
    assert after.head == before.head
    assert after.messages[: len(before.messages)] == before.messages
    assert violations(after.messages) == []


async def test_the_same_words_of_the_same_run_are_said_once(services: Harness) -> None:
    desk = messages(services)
    assert "written into" in await desk.send(RUN, OutgoingMessage(ALICE_SESSION, "Once."))
    assert await desk.send(RUN, OutgoingMessage(ALICE_SESSION, "Once.")) == f"was written into {ALICE} before"
    assert [message.text for message in await services.messages(ALICE)] == ["Once."]


async def test_a_run_that_is_resumed_after_a_crash_does_not_send_twice(services: Harness) -> None:
    asked = asyncio.Event()
    never = asyncio.Event()

    class Hanging:
        name = wire = "scripted"

        def context_window(self, model: str) -> int:
            return 32_000

        async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
            if len(request.messages) > 1:
                asked.set()
                await never.wait()
            for event in calls(call("message", to=ALICE, text="Once.")).events(request.model):
                yield event

    patient, services.model = services.model, Hanging()
    run = await services.submits("tell alice")
    async with asyncio.timeout(60):
        await asked.wait()
    services.model = patient
    services.model.says(calls(call("message", "second", to=ALICE, text="Once.")), "Told her.")
    await services.crash()
    await services.idle()
    assert [message.text for message in await services.messages(ALICE)] == ["Once."]
    assert (await services.dispatcher.find(run.id)).result is not None


async def test_a_message_never_comes_between_a_call_and_its_result(services: Harness) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    def answer(request: ModelRequest) -> Reply:
        return Reply("done") if len(request.messages) > 1 else calls(call("wait"))

    async def wait(run: ToolRun, _: object) -> ToolOutput:
        inside.set()
        await go_on.wait()
        return ToolOutput("waited")

    services.tools = ToolRegistry(
        [*services.tools.all(), Tool(ToolSpec("wait", "Waits.", {"type": "object", "properties": {}}), wait)]
    )
    services.start()
    services.model._otherwise = answer
    run = await services.submits("go", key=ALICE)
    async with asyncio.timeout(60):
        await inside.wait()
    told = await messages(services, timeout=0.05).send(RUN, OutgoingMessage(ALICE_SESSION, "Psst."))
    assert told == f"{ALICE} is busy: the message is written there when its turn has ended"
    go_on.set()
    await run.wait(60)
    await services.idle()
    assert [message.text for message in await services.messages(ALICE)] == ["go", "", "waited", "done", "Psst."]


async def test_two_sessions_that_write_to_each_other_do_not_wait_for_ever(workspace: Path) -> None:
    home: list[Harness] = []
    async with Harness(workspace, tools=[sending_tool(home, timeout=0.2)], at_once=2) as pal:
        home.append(pal)
        pal.model._otherwise = lambda request: (
            Reply("done")
            if len(request.messages) > 1
            else calls(call("message", to=request.messages[0].text, text="Hi."))
        )
        one = await pal.submits("direct:b", key="agent:main:direct:a")
        two = await pal.submits("direct:a", key="agent:main:direct:b")
        await one.wait(60)
        await two.wait(60)
        await pal.idle()
        for key in ("agent:main:direct:a", "agent:main:direct:b"):
            assert (await pal.messages(key))[-1].text == "Hi."


async def test_with_one_place_in_the_house_a_message_is_still_written_at_once(workspace: Path) -> None:
    home: list[Harness] = []
    async with Harness(workspace, tools=[sending_tool(home)], at_once=1) as pal:
        home.append(pal)
        pal.model.says(calls(call("message", to=ALICE, text="Hi.")), "Done.")
        await pal.hears("go")
        assert "written into" in (await pal.tool_results())[-1].text


async def test_who_is_stopped_while_waiting_has_not_sent_it(services: Harness) -> None:
    release = asyncio.Event()

    async def hold() -> None:
        await release.wait()

    services.lanes.start(ALICE, hold, lambda _: None)
    sending = asyncio.create_task(messages(services).send(RUN, OutgoingMessage(ALICE_SESSION, "Never.")))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    release.set()
    await services.idle()
    assert await services.messages(ALICE) == []


async def test_words_that_somebody_outside_may_have_led_to_are_marked(services: Harness) -> None:
    outside = ToolRun(SessionKey.parse("agent:main:explicit:web"), "run-2", private=True, origin=Origin.OUTSIDE)
    await messages(services).send(outside, OutgoingMessage(ALICE_SESSION, "Click\u200b <<<here>>>"))
    assert (await services.messages(ALICE))[-1].text == (
        "[written in agent:main:explicit:web, in a turn that had read text from outside]\nClick ‹‹‹here>>>"
    )


def test_a_sent_message_is_no_answer_to_what_was_asked_before() -> None:
    """The process died before a reply was stored, and somebody wrote into the session meanwhile."""
    asked = Line("run-9", UserMessage("question"))
    sent = Line(f"run-1{SENT}abc", AssistantMessage((Text("Psst."),)))
    assert earlier_reply(View((asked, sent), stored_ids=frozenset({"run-9"})), "run-9") == []


async def test_nothing_is_written_while_a_client_is_doing_a_call(services: Harness) -> None:
    session = await services.sessions.open(SessionKey.parse(ALICE))
    journal = services.turns.history.journal(session, View())
    await journal.write([journal.message(AssistantMessage((ToolCall("1", "its_own", {}),), stop_reason="toolUse"))])
    with pytest.raises(BadRequest, match="waits for the result of a tool"):
        await messages(services).send(RUN, OutgoingMessage(ALICE_SESSION, "Psst."))


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("main", "that is the current session"),
        ("telegram:42", "there is no channel 'telegram' here; the message was not sent (no channel is configured)"),
        ("telegram:group:7", "there is no channel 'telegram' here"),
        ("agent:ghost:main", "there is no agent 'ghost'"),
        ("subagent:1", "is a task: nobody reads there"),
        ("", "not a recipient"),
        ("a\u202eb", "not a recipient"),
        ("../../etc", "nobody is known as '../../etc'; the message was not sent"),
    ],
)
async def test_who_cannot_be_written_to_is_told_in_one_line(services: Harness, to: str, why: str) -> None:
    services.model.says(calls(call("message", to=to, text="Hi.")), "Hm.")
    await services.hears("go")
    result = (await services.tool_results())[-1]
    assert result.is_error
    assert why in result.text


@pytest.mark.parametrize("text", ["", "  ", "x" * (MAX_TEXT + 1)])
async def test_nothing_and_too_much_cannot_be_sent(services: Harness, text: str) -> None:
    services.model.says(calls(call("message", to=ALICE, text=text)), "Hm.")
    await services.hears("go")
    assert (await services.tool_results())[-1].is_error
    assert await services.messages(ALICE) == []


async def test_a_turn_that_read_text_from_outside_needs_a_person_for_all_but_the_owner(services: Harness) -> None:
    await services.hears("hello", key=ALICE)
    await services.hears("hello", key="agent:main:explicit:boat")
    await services.hears("hello", key="agent:main:group:7")
    tool = sending_tool([services])
    assert tool.prepare is not None
    new = await tool.prepare(RUN, {"to": "direct:bob", "text": "Hi."})
    old = await tool.prepare(RUN, {"to": "DIRECT:alice", "text": "Hi."})
    assert isinstance(new, PreparedCall)
    assert isinstance(old, PreparedCall)
    assert (new.when_untrusted, old.when_untrusted) == (SOMEBODY_NEW, SOMEBODY_ELSE)
    await services.hears("hello")
    aside = msgspec.structs.replace(RUN, key=SessionKey.parse("agent:main:explicit:aside"))
    for to in ("main", "boat", "Boat"):
        own = await tool.prepare(aside, {"to": to, "text": "Hi."})
        assert isinstance(own, PreparedCall)
        assert own.when_untrusted == ""
    group = await tool.prepare(RUN, {"to": "agent:main:group:7", "text": "Hi."})
    assert isinstance(group, PreparedCall)
    assert group.when_untrusted == SOMEBODY_ELSE
    assert new.plan.summary == "message to agent:main:direct:bob"
    assert new.plan.arguments == {"to": "agent:main:direct:bob", "text": "Hi."}
    assert "written into agent:main:direct:bob" in str((await new.run()).content)


@pytest.mark.parametrize(
    ("short", "whole"),
    [
        ("main", "agent:pip:main"),
        ("telegram:42", "agent:pip:telegram:direct:42"),
        ("telegram:group:-7", "agent:pip:telegram:group:-7"),
        ("Slack:work:channel:C1:thread:9", "agent:pip:slack:work:channel:c1:thread:9"),
        ("direct:alice", "agent:pip:direct:alice"),
        ("holiday", "agent:pip:explicit:holiday"),
        ("agent:other:main", "agent:other:main"),
    ],
)
def test_short_forms_of_a_recipient_mean_this_agent(short: str, whole: str) -> None:
    assert str(SessionKey.recipient(short, "pip")) == whole
