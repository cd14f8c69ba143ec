"""`pal devices`: which devices may speak to the gateway."""

from __future__ import annotations

import click

from palinurus.cli.gateway_tokens import ask, day, parse_scopes
from palinurus.cli.shell import Shell, with_json
from palinurus.operations.access import PairedDevice
from palinurus.operations.gateway import (
    APPROVE_DEVICE,
    DEVICES,
    REVOKE_DEVICE,
    ApproveDevice,
    AskGateway,
    DeviceList,
    NameDevice,
)


@click.group()
def devices() -> None:
    """Approve and revoke devices that speak to the gateway.

    A device proves by a key of its own who it is. One on this machine that has a valid token is paired at once; others
    wait here until you approve them.
    """


@devices.command("list")
@with_json
@click.pass_obj
def list_(shell: Shell) -> None:
    """List the devices, those that wait first.

    \b
    Example:
      pal devices list
    """
    listed = ask(shell, DEVICES, AskGateway())
    shell.show(listed, lambda: _list_text(listed))


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
    paired = ask(shell, APPROVE_DEVICE, ApproveDevice(device, parse_scopes(scopes)))
    shell.show(paired, lambda: f"{_name(paired)} is paired ({', '.join(paired.scopes)}).")


@devices.command()
@click.argument("device", metavar="ID")
@with_json
@click.pass_obj
def revoke(shell: Shell, device: str) -> None:
    """Take a device and its token away. Both are dead at once.

    \b
    Example:
      pal devices revoke 3f9c21aa
    """
    gone = ask(shell, REVOKE_DEVICE, NameDevice(device))
    shell.show(gone, lambda: f"{_name(gone)} is revoked.")


def _list_text(listed: DeviceList) -> str:
    if not listed.devices:
        return "There are no devices."
    return "\n".join(f"{each.code or each.id[:8]}  {each.status:<7}  {_line(each)}" for each in listed.devices)


def _line(device: PairedDevice) -> str:
    since = device.paired_at if device.status == "paired" else device.asked_at
    return f"{_name(device)} · {', '.join(device.scopes)} · {day(since)}"


def _name(device: PairedDevice) -> str:
    name = device.name or device.id[:16]
    return f"{name} ({device.platform})" if device.platform else name
