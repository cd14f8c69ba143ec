"""The accounts of all channels of a home: started as the config says, and the way to and from each.

`ChannelHost` lives as long as the process. The service `run_channels` is called anew after each change of the config:
accounts whose settings are the same stay connected.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

from palinurus.config.load import Config
from palinurus.config.section import dig
from palinurus.dispatch.channels import (
    Channel,
    ChannelCommand,
    ChannelContext,
    ChannelFactory,
    ChannelRequest,
    ChannelResponse,
)
from palinurus.dispatch.settings import DEFAULT_ACCOUNT, DEFAULTS, account_layers, account_settings
from palinurus.domain.errors import ConfigError, NotFound, PalinurusError
from palinurus.extensions.channels.account import AccountStatus, RunningAccount
from palinurus.extensions.channels.inbox import AccountInbox
from palinurus.extensions.channels.networks import networks
from palinurus.extensions.channels.sender import NetworkSender
from palinurus.extensions.channels.store import ChannelStore
from palinurus.extensions.channels.stream import ReplyStreams
from palinurus.operations.services import Services
from palinurus.parts import resolve
from palinurus.runtime.extensions import LOADED

log = logging.getLogger(__name__)


def configured_accounts(config: Config) -> Iterator[tuple[str, str]]:
    """Channel and account of everything that is switched on and has an adapter."""
    known = networks()
    for channel, said in (dig(config.data, ("channels",)) or {}).items():
        if channel == DEFAULTS or channel not in known or not isinstance(said, dict):
            continue
        own = said.get("accounts") or {}
        names = [each.strip().lower() for each in own] or [said.get("defaultAccount") or DEFAULT_ACCOUNT]
        yield from ((channel, name) for name in names if account_settings(config, channel, name).enabled)


def make_channel(services: Services, config: Config, channel: str, account: str) -> Channel:
    """Raises ConfigError when a setting is missing, or the network's library."""
    context = ChannelContext(
        channel, account, config, services.secret, services.env, services.clock, services.sleep, random.random
    )
    return open_channel(context)


def open_channel(context: ChannelContext) -> Channel:
    """As make_channel; where there are no services."""
    network = networks()[context.channel]
    try:
        make: ChannelFactory | None = (
            resolve(network.adapter) if network.adapter else LOADED.find_adapter(context.channel)
        )
    except ImportError as error:
        raise ConfigError(
            f"{network.title} needs a library that is not installed: {error.name}",
            hint=f"pip install 'palinurus[{network.extra or 'channels'}]'",
        ) from None
    if make is None:
        raise ConfigError(f"the plugin of the channel {context.channel} could not be loaded", hint="pal plugins list")
    return make(context)


class ChannelHost:
    """`services.keep(ChannelHost)`."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.store = ChannelStore(services.database)
        self.accounts: dict[tuple[str, str], RunningAccount] = {}
        self.failures: dict[tuple[str, str], AccountStatus] = {}  # accounts that could not be made
        self.streams = ReplyStreams(services, self.store, self.find)
        self._sending: set[str] = set()
        self._changing = asyncio.Lock()

    def find(self, channel: str, account: str) -> RunningAccount | None:
        """The running account; an empty name means the channel's default one, or its only one."""
        name = account or self._default_account(channel)
        found = self.accounts.get((channel, name))
        if found is None and not account:
            own = [each for (owner, _), each in self.accounts.items() if owner == channel]
            found = own[0] if len(own) == 1 else None
        return found

    def statuses(self) -> tuple[AccountStatus, ...]:
        known = {name: each.status for name, each in self.accounts.items()} | self.failures
        return tuple(known[name] for name in sorted(known))

    async def apply(self, config: Config) -> None:
        """Starts, restarts and stops accounts so that they are as the config says."""
        async with self._changing:
            wanted = {name: account_layers(config, *name) for name in configured_accounts(config)}
            gone = [name for name, each in self.accounts.items() if each.settings != wanted.get(name)]
            await asyncio.gather(*(self._stop(name) for name in gone))
            self.failures = {name: status for name, status in self.failures.items() if name in wanted}
            for (channel, account), settings in wanted.items():
                if (channel, account) not in self.accounts:
                    await self._start(config, channel, account, settings)
            for channel in self._sending - {name for name, _ in wanted}:
                self.services.deliveries.unregister(channel)
            self._sending &= {name for name, _ in wanted}

    async def close(self) -> None:
        async with self._changing:
            await asyncio.gather(*(self._stop(name) for name in tuple(self.accounts)))
            await self.streams.close()

    async def handle(self, request: ChannelRequest) -> ChannelResponse:
        """A request of a network to one of our webhooks. Raises NotFound.

        Several accounts may share a path: each knows by the signature, or by the request, whether it is meant.
        """
        answers = [
            await account.channel.handle(request)
            for account in tuple(self.accounts.values())
            if request.path in account.channel.webhook_paths
        ]
        if not answers:
            raise NotFound(f"no channel that runs has the webhook {request.path}", hint="`pal channels list` shows why")
        believed = [each for each in answers if each.status not in (401, 403)]
        return max(believed or answers, key=lambda each: each.status)  # whatever was not taken comes again

    async def _start(self, config: Config, channel: str, account: str, settings: Any) -> None:
        try:
            made = await asyncio.to_thread(make_channel, self.services, config, channel, account)
        except PalinurusError as error:
            now = self.services.clock.now_ms()
            self.failures[channel, account] = AccountStatus(
                channel, account, "failed", since=now, trouble=error.message, hint=error.hint
            )
            self._publish(channel, account, "failed")
            log.error("%s:%s: %s", channel, account, error)  # noqa: TRY400  a sentence for a person
            return
        self.failures.pop((channel, account), None)
        running = self.accounts[channel, account] = RunningAccount(self.services, made, settings)
        sender = NetworkSender(self.services, self.find, self.streams, self.store, channel, made.capabilities)
        self.services.deliveries.register(sender)
        self._sending.add(channel)
        inbox = AccountInbox(self.services, self.store, running, slash_commands())
        inbox.when_connected = partial(self.services.deliveries.hurry, channel)
        running.start(inbox)

    async def _stop(self, name: tuple[str, str]) -> None:
        await self.accounts.pop(name).stop()
        self._publish(*name, "off")

    def _publish(self, channel: str, account: str, state: str) -> None:
        told = {"channel": channel, "account": account, "state": state}
        self.services.holder.publish("channels.changed", "", lambda: told)

    def _default_account(self, channel: str) -> str:
        config = self.services.config
        said = dig(config.data, ("channels", channel)) or {}
        return str(said.get("defaultAccount") or DEFAULT_ACCOUNT).strip().lower()


async def run_channels(services: Services) -> None:
    """The service. When it is cancelled because the config has changed, the next call finds everything running."""
    host = services.keep(ChannelHost)
    await host.store.forget_previews(services.clock.now_ms())
    stop = services.dispatcher.runs.listen(host.streams.hear)
    try:
        await host.apply(services.config)
        await asyncio.Event().wait()
    finally:
        stop()


def slash_commands() -> tuple[ChannelCommand, ...]:
    """Those that are registered with networks."""
    from palinurus.dispatch.commands import COMMANDS, DIRECTIVES

    known = {**COMMANDS, **DIRECTIVES}
    return tuple(ChannelCommand(name, each.meaning) for name, each in known.items())
