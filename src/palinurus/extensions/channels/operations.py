"""Channels as people ask for them: which accounts there are and how they stand; set one up, try it, remove it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from palinurus.config.load import Config, load_config
from palinurus.config.section import dig, nested
from palinurus.dispatch.channels import ChannelCheck
from palinurus.dispatch.settings import DEFAULT_ACCOUNT, DEFAULTS, account_settings
from palinurus.domain.errors import BadRequest, ConfigError, NotFound, NotOffered, PalinurusError
from palinurus.extensions.channels.account import AccountStatus
from palinurus.extensions.channels.host import ChannelHost, configured_accounts, make_channel, slash_commands
from palinurus.extensions.channels.networks import Network, SetupField, networks
from palinurus.operations.config import ConfigEdit, set_option, unset_option
from palinurus.operations.logs import LogFilter, LogLine, read_logs
from palinurus.operations.operation import Completion, Positional, operation
from palinurus.operations.services import Services
from palinurus.parts import resolve
from palinurus.text.words import nearest

NOT_RUNNING = "no gateway runs: `pal gateway run` connects it"
ChannelName = Annotated[str, "telegram, discord, slack, whatsapp, email or custom."]
ConfiguredName = Annotated[ChannelName, Completion("channels")]
AccountName = Annotated[str, "An account of the channel. Default: its default account."]


class ChannelAccount(Struct, frozen=True, rename="camel"):
    """One configured account of a channel."""

    channel: str
    account: str
    title: str
    enabled: bool
    state: str  # starting | connected | disconnected | failed | off | not running
    dm_policy: str
    identity: str = ""
    since: int = 0
    trouble: str = ""
    hint: str = ""
    received: int = 0
    sent: int = 0
    last_received_at: int = 0
    last_sent_at: int = 0
    waiting_pairings: int = 0


class ChannelList(Struct, frozen=True, rename="camel"):
    channels: tuple[ChannelAccount, ...]
    available: tuple[str, ...]  # networks that there are adapters for


class NetworkSetup(Struct, frozen=True, rename="camel"):
    """How an account of a network is set up: what to do there, and what to enter here."""

    channel: str
    title: str
    steps: tuple[str, ...]
    fields: tuple[SetupField, ...]
    has_manifest: bool = False


class NetworkList(Struct, frozen=True):
    networks: tuple[NetworkSetup, ...]


class ChannelTest(Struct, frozen=True, rename="camel"):
    channel: str
    account: str
    ok: bool
    checks: tuple[ChannelCheck, ...]


class AddedChannel(Struct, frozen=True, rename="camel"):
    """`saved` is false when a check failed; then nothing has changed."""

    channel: str
    account: str
    saved: bool
    checks: tuple[ChannelCheck, ...]
    afterwards: str = ""


@operation("channels.list", scope="read")
async def list_channels(services: Services) -> ChannelList:
    """List the accounts of channels and whether each is connected.

    Examples:
      pal channels list
      pal channels list --json
    """
    config = services.config
    live = {(each.channel, each.account): each for each in account_statuses(services)}
    waiting = [(each.channel, each.account) for each in await services.pairings.entries() if each.status == "pending"]
    serves = services.holder.gateway is not None
    rows = [_row(config, *name, live.get(name), waiting.count(name), serves=serves) for name in _all_accounts(config)]
    return ChannelList(tuple(rows), tuple(networks()))


class ChannelAccountStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One account as OpenClaw's clients read it."""

    account_id: str
    name: str
    enabled: bool
    configured: bool
    running: bool
    connected: bool
    dm_policy: str
    last_error: str = ""
    last_inbound_at: int = 0
    last_outbound_at: int = 0
    last_connected_at: int = 0


class ChannelSummary(Struct, frozen=True):
    configured: bool
    running: bool


class ChannelStatus(Struct, frozen=True, rename="camel"):
    ts: int
    channel_order: tuple[str, ...]
    channel_labels: dict[str, str]
    channels: dict[str, ChannelSummary]
    channel_accounts: dict[str, list[ChannelAccountStatus]]
    channel_default_account_id: dict[str, str]


@operation("channels.status", scope="read", strict=False)
async def show_channel_status(services: Services) -> ChannelStatus:
    """The accounts of channels in OpenClaw's shape. Networks are not asked: what is shown is what is known."""
    accounts: dict[str, list[ChannelAccountStatus]] = {}
    known = networks()
    for each in (await list_channels(services)).channels:
        on = each.state in ("starting", "connected", "disconnected")
        told = (each.enabled, True, on, each.state == "connected", each.dm_policy, each.trouble)
        times = (each.last_received_at, each.last_sent_at, each.since if each.state == "connected" else 0)
        row = ChannelAccountStatus(each.account, each.identity or each.title, *told, *times)
        accounts.setdefault(each.channel, []).append(row)
    return ChannelStatus(
        services.clock.now_ms(),
        tuple(accounts),
        {name: known[name].title if name in known else name for name in accounts},
        {name: ChannelSummary(True, any(each.running for each in found)) for name, found in accounts.items()},
        accounts,
        {name: found[0].account_id for name, found in accounts.items()},
    )


@operation("channels.networks", scope="read")
def list_networks(services: Services) -> NetworkList:
    """List the networks that can be set up: what to do there first, and what is asked for."""
    rows = (
        NetworkSetup(name, each.title, each.steps, each.fields, bool(each.manifest))
        for name, each in networks().items()
    )
    return NetworkList(tuple(rows))


@operation("channels.manifest", scope="read", needs_home=False)
def make_manifest(
    services: Services,
    channel: Annotated[str, "The network: slack."],
    url: Annotated[str, "For mode http: the public address of the webhook. Default: Socket Mode."] = "",
) -> dict[str, Any]:
    """Print what describes the app to the network: scopes, events, slash commands. Paste it where the app is made.

    Examples:
      pal channels manifest slack
      pal channels manifest slack --url https://pal.example.org/slack/events
    """
    network = find_network(channel)
    if not network.manifest:
        known = ", ".join(name for name, each in networks().items() if each.manifest)
        raise NotOffered(f"{network.title} takes no manifest", hint=f"there is one for {known}")
    made: dict[str, Any] = resolve(network.manifest)(slash_commands(), url=url)
    return made


@operation("channels.test", scope="admin")
async def try_channel(
    services: Services, channel: ConfiguredName, account: AccountName = DEFAULT_ACCOUNT
) -> ChannelTest:
    """Try token, permissions and settings of an account on the network. No message is sent.

    Examples:
      pal channels test telegram
      pal channels test slack --account work --json
    """
    find_network(channel)
    if dig(services.config.data, ("channels", channel)) is None:
        raise NotFound(f"{channel} is not set up", hint=f"pal channels add {channel}")
    return await _check(services, services.config, channel, account)


@operation("channels.add", scope="admin")
async def add_channel(
    services: Services,
    channel: ChannelName,
    account: AccountName = DEFAULT_ACCOUNT,
    values: Annotated[dict[str, str], "Keys of the account and their values, such as botToken."] = {},  # noqa: B006
    force: Annotated[bool, "Save it although a check fails."] = False,
) -> AddedChannel:
    """Check an account on its network and write it into the config. A running gateway connects it at once.

    Of an account that is there already, what is not given stays.
    """
    network = find_network(channel)
    account = account.strip().lower()
    known = {field.key for field in network.fields}
    if unknown := [key for key in values if key not in known]:
        raise BadRequest(f"{network.title} has no {unknown[0]!r} here", hint=f"known: {', '.join(sorted(known))}")
    own = dig(services.config.data, ("channels", channel, "accounts")) or {}
    is_alone = account == DEFAULT_ACCOUNT and not own
    place = ("channels", channel) if is_alone else ("channels", channel, "accounts", account)
    if missing := [each.key for each in network.fields if each.required and not _said(services, place, each, values)]:
        hint = f"in a terminal `pal channels add {channel}` asks; else: echo {missing[0]}=… | … --stdin"
        raise BadRequest(f"{network.title} needs {', '.join(missing)}", hint=hint)
    wanted = {key: value.strip() for key, value in values.items() if value.strip()}
    trial = Config(_merged(services.config.data, nested(place, _deep(wanted))))
    tested = await _check(services, trial, channel, account)
    if not tested.ok and not force:
        return AddedChannel(channel, account, False, tested.checks)
    if not is_alone and not own and await asyncio.to_thread(_is_account_itself, services, channel):
        set_option(services, f"channels.{channel}.accounts.{DEFAULT_ACCOUNT}.enabled", True)  # else it is one no more
    for key, value in {"enabled": True, **wanted}.items():
        set_option(services, ".".join((*place, key)), value)
    await _apply(services)
    return AddedChannel(channel, account, True, tested.checks, network.afterwards)


@operation("channels.remove", scope="admin")
async def remove_channel(
    services: Services, channel: ConfiguredName, account: Annotated[str, "Only this account."] = ""
) -> ConfigEdit:
    """Remove a channel, or one of its accounts, from the config. Sessions and pairings stay.

    Examples:
      pal channels remove telegram
      pal channels remove telegram --account work
    """
    path = await asyncio.to_thread(_place, services, channel, account.strip().lower())
    unset_option(services, path)
    await _apply(services)
    return ConfigEdit(path)


@operation("channels.logs", scope="read")
def show_channel_logs(
    services: Services,
    channel: Annotated[str, Positional, Completion("channels"), "Of this channel only."] = "",
    limit: Annotated[int, Meta(ge=1, le=1000), "How many lines."] = 50,
) -> tuple[LogLine, ...]:
    """Show what the log says about channels.

    Examples:
      pal channels logs
      pal channels logs telegram --limit 200
    """
    own = "extensions.channels"
    source = f"{own}.account.{channel}" if channel else own
    adapter = f"{own}.{channel}"
    found = read_logs(services.home.root, LogFilter("debug"), 20 * limit)
    kept = [line for line in found if line.source.startswith((source, adapter) if channel else source)]
    return tuple(kept[-limit:])


def _said(services: Services, place: tuple[str, ...], field: SetupField, values: dict[str, str]) -> bool:
    """Whether it is given, or known already of the account."""
    known = dig(services.config.data, (*place, *field.key.split(".")))
    return bool(values.get(field.key, "").strip() or known)


def _place(services: Services, channel: str, account: str) -> str:
    """What has to be removed for an account, or for all if there is no name. Raises NotFound."""
    config = load_config(services.home, services.env).config
    said = dig(config.data, ("channels", channel))
    if said is None or (account and (channel, account) not in _all_accounts(config)):
        name = f"account {account!r} of {channel}" if account else f"channel {channel!r}"
        raise NotFound(f"there is no {name} in the config", hint="`pal channels list` shows what there is")
    keys = {key.strip().lower(): key for key in said.get("accounts") or {}}
    is_last = keys.keys() == {account} and not _is_account_itself(services, channel)
    if is_last or not account or not keys:
        return f"channels.{channel}"
    return f"channels.{channel}.accounts.{keys[account]}"


def _is_account_itself(services: Services, channel: str) -> bool:
    """Whether what stands at the channel is an account, and not only what its accounts share."""
    try:
        make_channel(services, services.config, channel, DEFAULT_ACCOUNT)
    except ConfigError:
        return False
    return True


async def _apply(services: Services) -> None:
    """A gateway need not wait until it looks at its config again."""
    if services.holder.gateway is not None:
        await services.keep(ChannelHost).apply(services.config)


def account_statuses(services: Services) -> tuple[AccountStatus, ...]:
    """Of this process; nothing where no channel has been started."""
    host = vars(services).get("kept", {}).get(ChannelHost)
    return host.statuses() if host is not None else ()


def _all_accounts(config: Config) -> list[tuple[str, str]]:
    """Those that are switched off, too."""
    found, known = dict.fromkeys(configured_accounts(config)), networks()
    for channel, said in (dig(config.data, ("channels",)) or {}).items():
        if channel in known and channel != DEFAULTS and isinstance(said, dict):
            own = said.get("accounts") or {}
            names = [each.strip().lower() for each in own] or [said.get("defaultAccount") or DEFAULT_ACCOUNT]
            found |= dict.fromkeys((channel, name) for name in names)
    return sorted(found)


def _row(
    config: Config, channel: str, account: str, live: AccountStatus | None, waiting: int, *, serves: bool
) -> ChannelAccount:
    """`serves`: this process is a gateway, which will start the account."""
    settings = account_settings(config, channel, account)
    state = "off" if not settings.enabled else "starting" if serves else "not running"
    row = ChannelAccount(
        channel,
        account,
        networks()[channel].title,
        settings.enabled,
        state,
        settings.dm_policy,
        trouble=NOT_RUNNING if state == "not running" else "",
        waiting_pairings=waiting,
    )
    if live is None:
        return row
    same = {name: getattr(live, name) for name in AccountStatus.__struct_fields__}
    return msgspec.structs.replace(row, **same)


async def _check(services: Services, config: Config, channel: str, account: str) -> ChannelTest:
    try:
        made = await asyncio.to_thread(make_channel, services, config, channel, account)
    except ConfigError as error:
        return ChannelTest(channel, account, False, (ChannelCheck("settings", False, error.message, error.hint),))
    try:
        checks = await made.check()
    except PalinurusError as error:
        checks = (ChannelCheck("connection", False, services.jobs.redact(error.message), error.hint),)
    return ChannelTest(channel, account, all(each.ok for each in checks), checks)


def find_network(channel: str) -> Network:
    known = networks()
    network = known.get(channel)
    if network is None:
        near = nearest(channel, known)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
        raise NotFound(f"there is no channel {channel!r}", hint=hint)
    return network


def _deep(values: dict[str, str]) -> dict[str, Any]:
    """`{"imap.host": x}` as `{"imap": {"host": x}}`."""
    made: dict[str, Any] = {}
    for key, value in values.items():
        made = _merged(made, nested(key.split("."), value))
    return made


def _merged(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return {**one, **{key: _merged(one.get(key), value) for key, value in other.items()}}
    return other
