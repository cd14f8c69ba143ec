"""`pal channels`: connect chat networks."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
import msgspec

from palinurus.cli.command import add_operation, call_operation, make_on_first_run
from palinurus.cli.shell import CommandGroup, Shell, take_plugins, with_shell
from palinurus.dispatch.channels import ChannelCheck
from palinurus.dispatch.settings import DEFAULT_ACCOUNT
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.domain.events import visible
from palinurus.extensions.channels.networks import Network, SetupField
from palinurus.extensions.channels.operations import (
    AddedChannel,
    ChannelList,
    ChannelTest,
    add_channel,
    find_network,
    list_channels,
    make_manifest,
    remove_channel,
    show_channel_logs,
    try_channel,
)
from palinurus.operations.logs import LogLine

NONE = "No channel is set up. Add one: pal channels add telegram"


@click.group(cls=CommandGroup)
def channels() -> None:
    """Connect chat networks: add, list, test and remove accounts."""


@channels.command("add")
@click.argument("channel")
@click.option("--account", default=DEFAULT_ACCOUNT, help="A name for the account, if you have several.")
@click.option("--set", "values", multiple=True, metavar="KEY=VALUE", help="A setting, such as botToken=…")
@click.option("--stdin", is_flag=True, help="Read KEY=VALUE lines from standard input, so that no secret is in argv.")
@click.option("--force", is_flag=True, help="Save it although a check fails.")
@with_shell
def add(shell: Shell, channel: str, account: str, values: tuple[str, ...], stdin: bool, force: bool) -> int:
    """Set up an account: says what to click where, asks for what is needed, and tries it before it is saved.

    \b
    Examples:
      pal channels add telegram
      echo botToken=123:abc | pal channels add telegram --stdin
      pal channels add slack --account work
    """
    make_on_first_run(shell)
    take_plugins(click.get_current_context())
    network = find_network(channel)
    given = dict(_pair(each) for each in (*values, *(sys.stdin.read().splitlines() if stdin else ())) if each.strip())
    if not stdin and sys.stdin.isatty():
        given = _asked(shell, network, given)
    done = call_operation(shell, add_channel, channel=channel, account=account, values=given, force=force)
    shell.show(done, lambda: _added_text(shell, network, done))
    return 0 if done.saved else 1


@channels.command("login")
@click.argument("channel")
@click.option("--account", default=DEFAULT_ACCOUNT, help="The account, if you have several.")
@click.option("--stdin", is_flag=True, help="Read KEY=VALUE lines from standard input.")
@click.option("--force", is_flag=True, help="Save it although a check fails.")
@with_shell
def login(shell: Shell, channel: str, account: str, stdin: bool, force: bool) -> int:
    """Enter the secrets of an account anew, such as a renewed token: they are tried before they are saved.

    \b
    Examples:
      pal channels login telegram
      pal channels login slack --account work
    """
    take_plugins(click.get_current_context())
    network = find_network(channel)
    found = call_operation(shell, list_channels)
    if (channel, account) not in {(each.channel, each.account) for each in found.channels}:
        raise NotFound(f"{channel} has no account {account!r}", hint=f"pal channels add {channel}")
    given = dict(_pair(each) for each in (sys.stdin.read().splitlines() if stdin else ()) if each.strip())
    if not stdin and sys.stdin.isatty():
        given = _asked(shell, network, given, [field for field in network.fields if field.secret])
    if not given:
        raise BadRequest(
            "nothing was entered", hint=f"in a terminal it asks; else: … | pal channels login {channel} --stdin"
        )
    done = call_operation(shell, add_channel, channel=channel, account=account, values=given, force=force)
    shell.show(done, lambda: _added_text(shell, network, done))
    return 0 if done.saved else 1


def _asked(
    shell: Shell, network: Network, given: dict[str, str], fields: Sequence[SetupField] | None = None
) -> dict[str, str]:
    fields = network.fields if fields is None else fields
    if all(field.key in given for field in fields):
        return given
    for number, step in enumerate(network.steps, start=1):
        click.echo(f"{number}. {step}")
    for field in fields:
        if field.key not in given:
            hidden = " (not shown)" if field.secret else ""
            given[field.key] = click.prompt(f"{field.prompt}{hidden}", hide_input=field.secret, default=None, type=str)
    click.echo(shell.dim(f"asking {network.title} …"))
    return given


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise BadRequest(f"not KEY=VALUE: {text[:20]!r}", hint="for example botToken=123:abc")
    return key.strip(), value.strip()


def _added_text(shell: Shell, network: Network, done: AddedChannel) -> str:
    rows = [_check_line(each) for each in done.checks]
    if done.saved:
        name = f" ({done.account})" if done.account != DEFAULT_ACCOUNT else ""
        rows += [f"{network.title}{name} is set up. {done.afterwards}"]
        rows += ["A running gateway connects it at once; otherwise: pal gateway run"]
        rows += ["Then let yourself in: pal pairing approve CODE"]
    else:
        rows += ["Nothing was saved. --force saves it all the same."]
    return "\n".join(rows)


def _check_line(check: ChannelCheck) -> str:
    mark = "ok" if check.ok else "failed"
    line = f"{mark:<8} {check.name}: {visible(check.about)}" if check.about else f"{mark:<8} {check.name}"
    return f"{line}\n         {check.hint}" if check.hint and not check.ok else line


def _list_text(shell: Shell, found: ChannelList) -> str:
    if not found.channels:
        return NONE
    lines = []
    for each in found.channels:
        name = each.channel if each.account == DEFAULT_ACCOUNT else f"{each.channel}:{each.account}"
        counts = f"{each.received} in, {each.sent} out" if each.received or each.sent else ""
        pairing = f"{each.waiting_pairings} wait for pairing" if each.waiting_pairings else ""
        about = ", ".join(filter(None, (each.identity, counts, pairing, each.trouble)))
        lines.append(f"{name:<20} {each.state:<13} {visible(about)}")
        if each.hint:
            lines.append(shell.dim(f"{'':<34} {each.hint}"))
    return "\n".join(lines)


def _test_text(_: Shell, found: ChannelTest) -> str:
    return "\n".join(_check_line(each) for each in found.checks) or "There is nothing to check."


def _log_text(_: Shell, lines: tuple[LogLine, ...]) -> str:
    return "\n".join(f"{each.at}  {each.level:<8} {visible(each.text)}" for each in lines) or "Nothing was logged."


add_operation(channels, list_channels, _list_text)
add_operation(channels, make_manifest, lambda _, made: msgspec.json.format(msgspec.json.encode(made)).decode())
add_operation(channels, try_channel, _test_text)
add_operation(channels, remove_channel, lambda _, done: f"Removed {done.path}.")
add_operation(channels, show_channel_logs, _log_text)
