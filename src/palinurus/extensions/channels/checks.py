"""What `pal doctor` says about channels, without asking the networks: `pal channels test` does that."""

from __future__ import annotations

import asyncio

from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig, resolve_secret, secret_providers
from palinurus.dispatch.channels import ChannelContext
from palinurus.dispatch.settings import account_settings
from palinurus.domain.clock import SystemClock
from palinurus.domain.errors import ConfigError, PalinurusError
from palinurus.extensions.channels.host import configured_accounts, open_channel
from palinurus.extensions.channels.operations import ChannelAccount, list_channels
from palinurus.runtime.checks.check import Check, bad, ok
from palinurus.runtime.home_access import HomeAccess

REACH_SECONDS = 2.0


async def check_channels(home: Home, loaded: LoadedConfig | None) -> list[Check]:
    if loaded is None or not (names := list(configured_accounts(loaded.config))):
        return []
    running = await _running(home, loaded)
    return [await asyncio.to_thread(_check, loaded, *name, running.get(name)) for name in names]


def _check(loaded: LoadedConfig, channel: str, account: str, running: ChannelAccount | None) -> Check:
    name = f"channel {channel}:{account}"
    providers = secret_providers(loaded)
    context = ChannelContext(
        channel,
        account,
        loaded.config,
        lambda value: resolve_secret(value, loaded.env, providers),
        loaded.env,
        SystemClock(),
    )
    try:
        open_channel(context)
    except ConfigError as error:
        return bad(name, error.message, todo=error.hint)
    if running is not None and running.trouble and running.state in ("failed", "disconnected"):
        todo = running.hint or f"pal channels test {channel}"
        return bad(name, f"{running.state} in the running gateway: {running.trouble}", todo=todo)
    policy = account_settings(loaded.config, channel, account).dm_policy
    state = running.state if running is not None else "no gateway runs"
    return ok(name, f"{state}, direct chats: {policy}; `pal channels test {channel}` tries it")


async def _running(home: Home, loaded: LoadedConfig) -> dict[tuple[str, str], ChannelAccount]:
    """What the gateway says of its accounts; nothing when none runs, or it cannot be asked: another check says so."""
    access = HomeAccess(home, loaded.env, "pal doctor", warn=lambda _: None, reach_seconds=REACH_SECONDS)
    try:
        holder = await access.reach()
        if holder is None:
            return {}
        try:
            listed = await holder.call(list_channels, list_channels.params())
        finally:
            await holder.close()
    except PalinurusError:
        return {}
    return {(each.channel, each.account): each for each in listed.channels if each.state != "not running"}
