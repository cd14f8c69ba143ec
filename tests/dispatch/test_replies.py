"""Replies that have to be carried: in the outbox with the run's result, once, and to the right place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palinurus.dispatch.parcel import MOST_WAITING, Parcel
from palinurus.dispatch.queueing import QueueSettings
from palinurus.domain.envelope import Delivery, Inbound
from palinurus.domain.errors import NotFound
from palinurus.domain.events import RunResult
from palinurus.domain.keys import SessionKey
from palinurus.providers.provider import ModelRequest, ReplyEvent
from palinurus.testing.harness import Harness
from palinurus.testing.outbox import MemoryCarrier, MemoryOutbox
from palinurus.testing.provider import ScriptedProvider
from palinurus.testing.stores import MemoryInbox

CHAT = Delivery("telegram", "-100", "second", "9")


def said(text: str, key: str = "k1", *, channel: str = "telegram", reply_to: Delivery | None = None) -> Inbound:
    return Inbound(text, key, channel=channel, sender="42", reply_to=reply_to)


async def answered(pal: Harness, inbound: Inbound) -> RunResult:
    run = await pal.dispatcher.submit(inbound)
    return await run.wait(5)


async def carried(pal: Harness) -> None:
    await asyncio.wait_for(pal.deliveries.idle(), 5)


@pytest.fixture
async def carrier(pal: Harness) -> MemoryCarrier:
    """Carries the channel telegram."""
    carrier = MemoryCarrier("telegram")
    pal.deliveries.register(carrier)
    await pal.deliveries.start()
    return carrier


async def test_a_reply_is_carried_back_to_its_sender_under_the_id_of_its_run(
    pal: Harness, carrier: MemoryCarrier
) -> None:
    result = await answered(pal, said("hi"))
    await carried(pal)
    (parcel,) = carrier.network.shown
    assert (parcel.to, parcel.text, parcel.idempotency_key) == ("42", "you said: hi", result.run_id)
    assert (parcel.session_key, parcel.run_id) == ("agent:main:main", result.run_id)
    assert pal.outbox.parcels[parcel.id].state == "sent"


async def test_a_reply_goes_where_the_message_says(pal: Harness, carrier: MemoryCarrier) -> None:
    await answered(pal, said("hi", reply_to=CHAT))
    await carried(pal)
    (parcel,) = carrier.network.shown
    assert (parcel.to, parcel.account, parcel.thread) == ("-100", "second", "9")
    session = await pal.sessions.find(SessionKey.main("main"))
    assert session is not None
    assert session.delivery == CHAT


async def test_the_same_message_twice_is_answered_and_carried_once(pal: Harness, carrier: MemoryCarrier) -> None:
    await answered(pal, said("hi"))
    await answered(pal, said("hi"))
    await pal.crash()
    pal.deliveries.register(carrier)
    await pal.deliveries.start()
    await answered(pal, said("hi"))
    await carried(pal)
    assert carrier.texts == ["you said: hi"]


async def test_a_door_that_nobody_carries_gets_no_parcel(pal: Harness, carrier: MemoryCarrier) -> None:
    await answered(pal, said("hi", channel="cli"))
    assert pal.outbox.parcels == {}


async def test_a_message_that_says_where_to_is_answered_by_parcel_even_before_somebody_carries_there(
    pal: Harness,
) -> None:
    await answered(pal, said("hi", reply_to=CHAT))
    assert (await pal.deliveries.standing()).uncarried == {"telegram": 1}


@pytest.mark.parametrize("reply", ["NO_REPLY", " no_reply\n", "", "  "])
async def test_nothing_to_say_is_not_carried(pal: Harness, carrier: MemoryCarrier, reply: str) -> None:
    pal.model.says(reply)
    await answered(pal, said("hi"))
    assert pal.outbox.parcels == {}


async def test_a_turn_that_failed_has_no_reply(pal: Harness, carrier: MemoryCarrier) -> None:
    pal.agents.get = lambda agent_id: (_ for _ in ()).throw(NotFound("gone"))  # type: ignore[method-assign]
    assert (await answered(pal, said("hi"))).status == "error"
    assert pal.outbox.parcels == {}


async def test_what_usage_asks_for_stands_below_the_reply(pal: Harness, carrier: MemoryCarrier) -> None:
    await answered(pal, said("/usage tokens"))
    await answered(pal, said("hi", "k2"))
    await carried(pal)
    assert carrier.texts[1].startswith("you said: hi\n\n")
    assert carrier.texts[1].endswith(" out")


async def test_a_command_that_is_answered_at_once_is_carried_once_however_often_it_comes(
    pal: Harness, carrier: MemoryCarrier
) -> None:
    await answered(pal, said("/stop"))
    await answered(pal, said("/stop"))
    await answered(pal, said("/verbose on", "k2"))
    await carried(pal)
    assert len(carrier.texts) == 2
    assert carrier.texts[0] == "Nothing was running."
    assert "verbose on" in carrier.texts[1]


async def test_stop_stops_also_when_no_more_can_be_sent(pal: Harness) -> None:
    for number in range(MOST_WAITING):
        await pal.outbox.add(Parcel(f"p{number}", f"k{number}", "telegram", "-100", "words"))
    assert (await answered(pal, said("/stop", reply_to=CHAT))).text == "Nothing was running."
    assert (await answered(pal, said("hi", "k2", reply_to=CHAT))).text == "you said: hi"
    (failed,) = await pal.outbox.recent(states=["failed"])
    assert (failed.text, failed.trouble) == ("you said: hi", "100 parcels already wait for telegram:-100")


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
        carrier = MemoryCarrier("telegram")
        pal.deliveries.register(carrier)
        await pal.deliveries.start()
        pal.agents.queueing = QueueSettings("collect", debounce=0.01)
        first = await pal.dispatcher.submit(said("one"))
        await asyncio.wait_for(pal.model.asked.wait(), 5)
        others = [await pal.dispatcher.submit(said(text, text)) for text in ("two", "three")]
        pal.model.gate.set()
        results = [await run.wait(5) for run in (first, *others)]
        await carried(pal)
        assert [bool(result.joined) for result in results] == [False, False, True]
        assert carrier.texts == ["you said: one", "you said: two\n\nthree"]


class DiesAfterTheResult(MemoryInbox):
    """The process ends as soon as the result is on the disk."""

    async def finish(self, result: RunResult, parcel: Parcel | None = None) -> Parcel | None:
        await super().finish(result, parcel)
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]


async def test_a_crash_right_behind_the_result_loses_no_reply(workspace: Path) -> None:
    outbox = MemoryOutbox()
    inbox = DiesAfterTheResult(outbox)
    async with Harness(workspace, inbox=inbox) as pal:
        carrier = MemoryCarrier("telegram")
        pal.deliveries.register(carrier)
        await pal.dispatcher.submit(said("hi"))
        async with asyncio.timeout(5):
            while not any(record.result for record in inbox.records.values()):
                await asyncio.sleep(0)
        await pal.crash()
        assert carrier.texts == []
        pal.deliveries.register(carrier)
        await pal.deliveries.start()
        await carried(pal)
        assert carrier.texts == ["you said: hi"]
