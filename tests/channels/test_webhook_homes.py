"""Whole homes on the networks that post to us: from a person's message by HTTP to the agent's answer on the network."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from channels.conftest import until
from channels.network import SentFile
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
async def living(home: Home, network: Fake) -> AsyncIterator[tuple[Running, WireServer]]:
    """A gateway with one account on the network, on which 42 is the owner."""
    async with WireServer(otherwise=Says("aye")) as model:
        provider = {"baseUrl": model.base_url, "models": [{"id": "test", "contextWindow": 32000}]}
        known = json.loads(home.config_path.read_text())["agents"]["defaults"]
        configure(
            home,
            agents={"defaults": known | {"model": "mine/test"}},
            models={"providers": {"mine": provider}},
            channels={network.channel: {**network.config(), "allowFrom": ["42"]}},
            commands={"ownerAllowFrom": [f"{network.channel}:42"]},
        )
        async with running(home) as served:
            served.runtime.keep_up()
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
