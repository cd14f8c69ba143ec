"""Whole homes on the networks that post to us: from a person's message by HTTP to the agent's answer on the network."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from channels.conftest import until
from channels.network import SentFile, SentMessage
from channels.networks.webhook import FakeProgram
from channels.networks.whatsapp import FakeWhatsApp
from palinurus.config.home import Home
from support.wire import Says, WireServer

sys.path.insert(0, str(Path(__file__).parent.parent / "gateway"))
from serving import Running, configure, running

Fake = FakeWhatsApp | FakeProgram


@pytest.fixture(params=[FakeWhatsApp, FakeProgram])
async def network(request: pytest.FixtureRequest) -> AsyncIterator[Fake]:
    fake: Fake = request.param()
    await fake.start()
    try:
        yield fake
    finally:
        await fake.stop()


@asynccontextmanager
async def living(home: Home, network: Fake, *, later: bool = False) -> AsyncIterator[tuple[Running, WireServer]]:
    """A gateway with one account on the network, on which 42 is the owner. `later`: it is added to a running one."""
    async with WireServer(otherwise=Says("aye")) as model:
        provider = {"baseUrl": model.base_url, "models": [{"id": "test", "contextWindow": 32000}]}
        known = json.loads(home.config_path.read_text())["agents"]["defaults"]
        settings: dict[str, Any] = {
            "agents": {"defaults": known | {"model": "mine/test"}},
            "models": {"providers": {"mine": provider}},
            "commands": {"ownerAllowFrom": [f"{network.channel}:42"]},
        }
        with_channel = settings | {"channels": {network.channel: {**network.config(), "allowFrom": ["42"]}}}
        configure(home, **(settings if later else with_channel))
        async with running(home) as served:
            served.runtime.services.sleep = lambda _: asyncio.sleep(0.01)
            served.runtime.keep_up()
            if later:
                configure(home, **with_channel)
            network.gateway_url = f"http://127.0.0.1:{served.port}"
            try:
                yield served, model
            finally:
                network.gateway_url = ""


async def test_a_message_by_http_is_answered_on_the_network(home: Home, network: Fake) -> None:
    await network.write("hello there")  # before the gateway is up: the network posts it again
    async with living(home, network) as (_, model):
        await until(lambda: network.sent)
        assert (network.sent[0].chat, network.sent[0].text.strip()) == ("42", "aye")
        assert "hello there" in json.dumps(model.requests[-1])
        await network.repeat()
        await network.write("and now?")
        await until(lambda: len(network.sent) == 2)
        assert "and now?" in json.dumps(model.requests[-1])
        assert len(model.requests) == 2


async def test_a_channel_that_is_added_to_a_running_gateway_needs_no_restart(home: Home, network: Fake) -> None:
    async with living(home, network, later=True):
        await network.write("hello there")
        await until(lambda: network.sent)
        assert network.sent[0].text.strip() == "aye"


@pytest.mark.parametrize("network", [FakeWhatsApp], indirect=True)
async def test_what_whatsapp_took_and_did_not_deliver_is_listed_as_failed_and_can_be_sent_again(
    home: Home, network: FakeWhatsApp
) -> None:
    async with living(home, network) as (served, model):
        model.otherwise = Says("aye\n\n" + "b" * 5000)  # two messages
        await network.write("long")
        await until(lambda: len(network.sent) == 2)
        model.otherwise = Says("aye")
        await network.write("short")
        await until(lambda: len(network.sent) == 3)
        deliveries = served.runtime.services.deliveries
        for message in network.sent[1:]:
            network.report_failure(message)
        async with asyncio.timeout(60):
            while {each.state for each in await deliveries.recent()} != {"failed", "ambiguous"}:
                await asyncio.sleep(0.01)
        short, long = await deliveries.recent()
        assert (short.state, long.state) == ("failed", "ambiguous")  # of the long one a part has arrived
        assert "131047" in short.trouble
        await deliveries.retry(short.id, "again")
        await until(lambda: len(network.sent) == 4)
        assert network.sent[3].text == "aye"
        network.report_failure(SentMessage("wamid.of-nobody", "42", ""))
        await network.write("still there?")
        await until(lambda: len(network.sent) == 5)


async def test_a_file_is_there_when_the_agent_looks(home: Home, network: Fake, workspace: Path) -> None:
    async with living(home, network) as (_, model):
        await network.write("look", files=(SentFile("notes.txt", b"the tide turns", "text/plain"),))
        await until(lambda: network.sent)
        [stored] = (workspace / "media" / "inbox").iterdir()
        assert stored.read_bytes() == b"the tide turns"
        assert stored.name in json.dumps(model.requests[-1])


async def test_a_stranger_gets_no_answer_of_the_agent(home: Home, network: Fake) -> None:
    async with living(home, network) as (_, model):
        await network.write("let me in", sender="666", sender_name="Ada")
        await until(lambda: network.sent)
        assert network.sent[0].chat == "666"
        assert "aye" not in network.sent[0].text  # but a pairing code
        assert model.requests == []


async def test_after_a_restart_the_answer_comes_once(home: Home, network: Fake) -> None:
    async with living(home, network):
        await network.write("hello there")
        await until(lambda: network.sent)
    await network.repeat()
    async with living(home, network) as (_, model):
        await network.write("and now?")
        await until(lambda: len(network.sent) == 2)
        assert "and now?" in json.dumps(model.requests[-1])
        assert len(model.requests) == 1
