"""Replies that have to be sent: stored with the run's result, once, and to the right place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from palinurus.dispatch.delivery import MOST_WAITING
from palinurus.dispatch.queue import QueueSettings
from palinurus.domain.envelope import Delivery, Inbound
from palinurus.domain.errors import NotFound
from palinurus.domain.events import RunResult
from palinurus.domain.keys import SessionKey
from palinurus.providers.provider import ModelRequest, ReplyEvent
from palinurus.storage.jobs import Job, JobQueue
from palinurus.testing.fakes import ScriptedProvider
from palinurus.testing.harness import Harness
from support.delivery import MemorySender

CHAT = Delivery("telegram", "-100", "second", "9")


def said(text: str, key: str = "k1", *, channel: str = "telegram", reply_to: Delivery | None = None) -> Inbound:
    return Inbound(text, key, channel=channel, sender="42", reply_to=reply_to)


async def answered(pal: Harness, inbound: Inbound) -> RunResult:
    run = await pal.dispatcher.submit(inbound)
    return await run.wait(60)


async def sent_all(pal: Harness) -> None:
    await asyncio.wait_for(pal.jobs.idle(), 60)


@pytest.fixture
async def sender(pal: Harness) -> MemorySender:
    """Carries the channel telegram."""
    sender = MemorySender("telegram")
    pal.deliveries.register(sender)
    await pal.jobs.start()
    return sender


async def test_a_reply_is_sent_back_to_its_sender_under_the_id_of_its_run(pal: Harness, sender: MemorySender) -> None:
    result = await answered(pal, said("hi"))
    await sent_all(pal)
    (delivery,) = sender.network.shown
    assert (delivery.to, delivery.text, delivery.idempotency_key) == ("42", "you said: hi", result.run_id)
    assert (delivery.session_key, delivery.run_id) == ("agent:main:main", result.run_id)
    assert [each.state for each in await pal.deliveries.recent()] == ["sent"]


async def test_a_reply_goes_where_the_message_says(pal: Harness, sender: MemorySender) -> None:
    await answered(pal, said("hi", reply_to=CHAT))
    await sent_all(pal)
    (delivery,) = sender.network.shown
    assert (delivery.to, delivery.account, delivery.thread) == ("-100", "second", "9")
    session = await pal.sessions.find(SessionKey.main("main"))
    assert session is not None
    assert session.delivery == CHAT


async def test_the_same_message_twice_is_answered_and_sent_once(pal: Harness, sender: MemorySender) -> None:
    await answered(pal, said("hi"))
    await answered(pal, said("hi"))
    await pal.crash()
    pal.deliveries.register(sender)
    await pal.jobs.start()
    await answered(pal, said("hi"))
    await sent_all(pal)
    assert sender.texts == ["you said: hi"]


async def test_a_channel_without_a_sender_gets_no_delivery(pal: Harness, sender: MemorySender) -> None:
    await answered(pal, said("hi", channel="cli"))
    assert await pal.deliveries.recent() == []


async def test_a_message_that_says_where_to_is_answered_even_before_there_is_a_sender(
    pal: Harness,
) -> None:
    await answered(pal, said("hi", reply_to=CHAT))
    assert (await pal.deliveries.counts()).uncarried == {"telegram": 1}


@pytest.mark.parametrize("reply", ["NO_REPLY", " no_reply\n", "", "  "])
async def test_nothing_to_say_is_not_sent(pal: Harness, sender: MemorySender, reply: str) -> None:
    pal.model.says(reply)
    await answered(pal, said("hi"))
    assert await pal.deliveries.recent() == []


async def test_a_turn_that_failed_says_so_to_its_sender(pal: Harness, sender: MemorySender) -> None:
    pal.agents.get = lambda agent_id: (_ for _ in ()).throw(NotFound("gone"))  # type: ignore[method-assign]
    assert (await answered(pal, said("hi"))).status == "error"
    await sent_all(pal)
    assert sender.texts == ["⚠️ gone"]


async def test_what_usage_asks_for_stands_below_the_reply(pal: Harness, sender: MemorySender) -> None:
    await answered(pal, said("/usage tokens"))
    await answered(pal, said("hi", "k2"))
    await sent_all(pal)
    assert sender.texts[1].startswith("you said: hi\n\n")
    assert sender.texts[1].endswith(" out")


async def test_a_command_that_is_answered_at_once_is_sent_once_however_often_it_comes(
    pal: Harness, sender: MemorySender
) -> None:
    await answered(pal, said("/stop"))
    await answered(pal, said("/stop"))
    await answered(pal, said("/verbose on", "k2"))
    await sent_all(pal)
    assert len(sender.texts) == 2
    assert sender.texts[0] == "Nothing was running."
    assert "verbose on" in sender.texts[1]


async def test_stop_stops_also_when_no_more_can_be_sent(pal: Harness) -> None:
    for number in range(MOST_WAITING):
        await pal.deliveries.post(CHAT, "words", f"k{number}")
    assert (await answered(pal, said("/stop", reply_to=CHAT))).text == "Nothing was running."
    assert (await answered(pal, said("hi", "k2", reply_to=CHAT))).text == "you said: hi"
    (failed,) = await pal.deliveries.recent(states=["failed"])
    assert failed.text == "you said: hi"
    assert failed.trouble == "100 jobs of the kind delivery:telegram already wait in the lane -100"


class Gated(ScriptedProvider):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ReplyEvent]:
        self.asked.set()
        await self.gate.wait()
        async for event in super().stream(request):
            yield event


async def test_those_who_joined_a_turn_hear_its_reply_once(workspace: Path) -> None:
    async with Harness(workspace, model=Gated()) as pal:
        sender = MemorySender("telegram")
        pal.deliveries.register(sender)
        await pal.jobs.start()
        pal.agents.queueing = QueueSettings("collect", debounce=0.01)
        first = await pal.dispatcher.submit(said("one"))
        await asyncio.wait_for(pal.model.asked.wait(), 60)
        others = [await pal.dispatcher.submit(said(text, text)) for text in ("two", "three")]
        pal.model.gate.set()
        results = [await run.wait(60) for run in (first, *others)]
        await sent_all(pal)
        assert [bool(result.joined) for result in results] == [False, False, True]
        assert sender.texts == ["you said: one", "you said: two\n\nthree"]


class DiesAfterTheResult(JobQueue):
    """The process ends as soon as the result is on the disk."""

    async def finish(self, held: Job, outcome: Any, *further: Any) -> Job | None:
        await super().finish(held, outcome, *further)
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]


async def test_a_crash_right_behind_the_result_loses_no_reply(workspace: Path) -> None:
    async with Harness(workspace, queue=DiesAfterTheResult) as pal:
        sender = MemorySender("telegram")
        pal.deliveries.register(sender)
        run = await pal.dispatcher.submit(said("hi"))
        async with asyncio.timeout(60):
            while await pal.result(run.id) is None:
                await asyncio.sleep(0)
        await pal.crash()
        assert sender.texts == []
        pal.deliveries.register(sender)
        await pal.jobs.start()
        await sent_all(pal)
        assert sender.texts == ["you said: hi"]
