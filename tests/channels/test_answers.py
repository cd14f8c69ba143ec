"""Every message is answered, in the order in which they came: also when something is slow, gone or leaving."""

from __future__ import annotations

import asyncio
from typing import Any

from channels.channel_home import OPEN, channel_home
from channels.memory_network import MemoryChannel
from palinurus.config.home import Home
from palinurus.dispatch.channels import ChatTarget, OutgoingPart
from palinurus.domain.envelope import Delivery
from palinurus.domain.errors import JobFailed, JobRefused
from support.wire import Json, Says

FOLLOWUP = {"queue": {"mode": "followup"}}


def repeat(body: Json) -> Says:
    """Slow enough for a preview."""
    last = next(word for word in ("third", "second", "first") if word in str(body["messages"][-1]["content"]))
    return Says(f"{last} " * 20, chunks=20, delay=0.01)


async def test_a_preview_does_not_stand_before_the_reply_to_an_earlier_message(home: Home, monkeypatch: Any) -> None:
    async with channel_home(home, OPEN | {"streaming": "partial"}, otherwise=repeat, messages=FOLLOWUP) as channels:
        send, has_slots = channels.network.send, asyncio.Event()

        async def send_limited(target: ChatTarget, part: OutgoingPart) -> str:
            if not has_slots.is_set() and ":preview" not in part.idempotency_key:
                raise JobFailed("too many requests", retry_after=500)
            return await send(target, part)

        monkeypatch.setattr(channels.network, "send", send_limited)
        await channels.services.deliveries.post(Delivery("memory", "42"), "first", "before")
        await channels.network.writes("second")
        await channels.rests()
        assert channels.network.texts == []
        has_slots.set()
        await channels.services.deliveries.hurry("memory")
        await channels.rests()
        assert [text.split()[0] for text in channels.network.texts] == ["first", "second"]


async def test_replies_of_runs_that_end_while_the_gateway_leaves_are_sent(home: Home, monkeypatch: Any) -> None:
    free = asyncio.Event()
    async with channel_home(home, otherwise=repeat, messages=FOLLOWUP) as channels:
        send = channels.network.send

        async def send_slowly(*given: Any) -> str:
            await free.wait()
            return await send(*given)

        monkeypatch.setattr(channels.network, "send", send_slowly)
        channels.running.runtime.keep_up()
        for word in ("first", "second", "third"):
            await channels.network.writes(word)
        leaving = asyncio.create_task(channels.running.gateway.close())
        await channels.services.dispatcher.idle()
        free.set()
        await asyncio.wait_for(leaving, 60)
        assert [text.split()[0] for text in channels.network.texts] == ["first", "second", "third"]


async def test_a_reply_whose_preview_was_deleted_is_sent_as_a_message(home: Home, monkeypatch: Any) -> None:
    async with channel_home(home, OPEN | {"streaming": "partial"}, otherwise=repeat) as channels:

        async def refuse(*_: Any) -> None:
            raise JobRefused("message to edit not found")

        monkeypatch.setattr(MemoryChannel, "edit", refuse)
        await channels.network.writes("first")
        await channels.rests()
        for message in channels.network.shown:
            message.deleted = message.part.idempotency_key.endswith(":preview")
        assert [" ".join(text.split()) for text in channels.network.texts] == [("first " * 20).strip()]
