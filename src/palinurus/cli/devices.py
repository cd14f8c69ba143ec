"""`pal devices`: which devices may speak to the gateway."""

from __future__ import annotations

import click

from palinurus.cli.derived import ask, command_of
from palinurus.cli.gateway_tokens import day, parse_scopes
from palinurus.cli.shell import Shell, with_json
from palinurus.operations.access import PairedDevice
from palinurus.operations.gateway import DeviceList, approve_device, list_devices, revoke_device


@click.group()
def devices() -> None:
    """Approve and revoke devices that speak to the gateway.

    A device proves by a key of its own who it is. One on this machine that has a valid token is paired at once; others
    wait here until you approve them.
    """


@devices.command()
@click.argument("device", metavar="ID")
@click.option("--scope", "scopes", default="", help="What it may do, by commas. Default: what it asked for.")
@with_json
@click.pass_obj
def approve(shell: Shell, device: str, scopes: str) -> None:
    """Let a device in from now on. ID is its code, or the beginning of its id.

    \b
    Examples:
      pal devices approve 3f9c21aa
      pal devices approve 3f9c21aa --scope read
    """
    paired = ask(shell, approve_device, approve_device.params(device, parse_scopes(scopes)))
    shell.show(paired, lambda: f"{_name(paired)} is paired ({', '.join(paired.scopes)}).")


def _list_text(_: Shell, listed: DeviceList) -> str:
    if not listed.devices:
        return "There are no devices."
    return "\n".join(f"{each.code or each.id[:8]}  {each.status:<7}  {_line(each)}" for each in listed.devices)


def _line(device: PairedDevice) -> str:
    since = device.paired_at if device.status == "paired" else device.asked_at
    return f"{_name(device)} · {', '.join(device.scopes)} · {day(since)}"


def _name(device: PairedDevice) -> str:
    name = device.name or device.id[:16]
    return f"{name} ({device.platform})" if device.platform else name


devices.add_command(command_of(list_devices, _list_text))
devices.add_command(command_of(revoke_device, lambda _, gone: f"{_name(gone)} is revoked."))
