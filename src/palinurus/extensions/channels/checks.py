"""What `pal doctor` says about channels, without asking the networks: `pal channels test` does that."""

from __future__ import annotations

from collections.abc import Iterator

from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig
from palinurus.dispatch.settings import account_settings
from palinurus.domain.errors import PalinurusError
from palinurus.extensions.channels.host import configured_accounts
from palinurus.extensions.channels.networks import NETWORKS
from palinurus.parts import resolve
from palinurus.runtime.checks.check import Check, bad, ok


def check_channels(_: Home, loaded: LoadedConfig | None) -> Iterator[Check]:
    if loaded is None:
        return
    for channel, account in configured_accounts(loaded.config):
        network = NETWORKS[channel]
        name = f"channel {channel}:{account}"
        try:
            resolve(network.adapter)
        except ImportError as error:
            hint = f"pip install 'palinurus[{network.extra or 'channels'}]'"
            yield bad(name, f"the library {error.name} is not installed", hint)
            continue
        except PalinurusError as error:
            yield bad(name, error.message, error.hint)
            continue
        policy = account_settings(loaded.config, channel, account).dm_policy
        yield ok(name, f"configured, direct chats: {policy}; `pal channels test {channel}` tries it")
