"""The adapters of all networks, each beside the fake server of its network."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

from channels.network import FakeNetwork
from palinurus.config.load import Config
from palinurus.dispatch.channels import ButtonPress, Channel, ChannelCommand, ChannelContext, ChannelMessage
from palinurus.domain.clock import SystemClock
from palinurus.extensions.channels.networks import NETWORKS
from palinurus.parts import resolve

FAKES = {
    "telegram": "channels.networks.telegram:FakeTelegram",
    "discord": "channels.networks.discord:FakeDiscord",
    "slack": "channels.networks.slack:FakeSlack",
    "whatsapp": "channels.networks.whatsapp:FakeWhatsApp",
    "email": "channels.networks.email:FakeMail",
    "custom": "channels.networks.webhook:FakeProgram",
}


class RecordingInbox:
    """Implements ChannelInbox: keeps what arrives."""

    commands = (ChannelCommand("status", "show the state"), ChannelCommand("new", "start a new session"))

    def __init__(self) -> None:
        self.messages: list[ChannelMessage] = []
        self.presses: list[ButtonPress] = []
        self.failures: list[tuple[str, str, str]] = []
        self.identity = ""
        self.troubles: list[str] = []
        self.cursor = ""
        self.refusals: list[Exception] = []  # raised by the next `receive`, one each
        self.ready = asyncio.Event()

    def connected(self, identity: str) -> None:
        self.identity = identity
        self.ready.set()

    def disconnected(self, why: str) -> None:
        self.troubles.append(why)

    async def receive(self, message: ChannelMessage) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.messages.append(message)

    async def press(self, press: ButtonPress) -> str:
        self.presses.append(press)
        return "noted"

    async def report_failure(self, to: str, message_id: str, why: str) -> None:
        self.failures.append((to, message_id, why))

    async def load_cursor(self) -> str:
        return self.cursor

    async def save_cursor(self, cursor: str) -> None:
        self.cursor = cursor


class Account:
    """One account of a fake network with its adapter and what the adapter has received."""

    def __init__(self, network: FakeNetwork) -> None:
        self.network = network
        self.inbox = RecordingInbox()
        self.config: dict[str, Any] = network.config()
        self.channel = self.make()

    def make(self, **changed: Any) -> Channel:
        name = self.network.channel
        config = Config({"channels": {name: {**self.config, **changed}}})
        dice = random.Random(7)
        context = ChannelContext(
            name,
            "default",
            config,
            lambda value: value if isinstance(value, str) else None,
            {},
            SystemClock(),
            dice=dice.random,
        )
        channel: Channel = resolve(NETWORKS[name].adapter)(context)
        return channel

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Account]:
        if hasattr(self.network, "poster"):  # a network that posts to a webhook
            self.network.poster.deliver = self.channel.handle
        task = asyncio.create_task(self._run())
        try:
            ready = asyncio.create_task(self.inbox.ready.wait())
            await asyncio.wait((task, ready), timeout=60, return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
            if task.done():
                task.result()
            assert self.inbox.identity, f"{self.network.channel} did not connect"
            yield self
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        """As the host does: again after everything but a wrong config."""
        from palinurus.domain.errors import ConfigError

        for _ in range(20):
            try:
                await self.channel.run(self.inbox)
            except ConfigError:
                raise
            except Exception as error:  # noqa: BLE001  the edge of an adapter
                self.inbox.disconnected(repr(error))
                await asyncio.sleep(0.01)


async def until(holds: Callable[[], Any]) -> None:
    """Waits for something, at most a minute."""
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)


def _is_there(name: str) -> bool:
    adapter = NETWORKS[name].adapter.partition(":")[0]
    return find_spec(adapter) is not None and find_spec(FAKES[name].partition(":")[0]) is not None


@pytest.fixture(params=[name for name in FAKES if _is_there(name)])
async def network(request: pytest.FixtureRequest) -> AsyncIterator[FakeNetwork]:
    module, _, name = FAKES[request.param].partition(":")
    fake: FakeNetwork = getattr(import_module(module), name)()
    await fake.start()
    try:
        yield fake
    finally:
        await fake.stop()


@pytest.fixture
def offline(network: FakeNetwork) -> Account:
    """An account whose adapter does not run yet."""
    return Account(network)


@pytest.fixture
async def account(offline: Account) -> AsyncIterator[Account]:
    """An account that is connected."""
    async with offline.running():
        yield offline
