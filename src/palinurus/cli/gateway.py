"""`pal gateway`: run it, look at it, stop it, and say who may come in."""

from __future__ import annotations

import asyncio
import importlib
import time

import click

from palinurus.cli.entrance import open_door
from palinurus.cli.gateway_tokens import token
from palinurus.cli.gateway_unit import install, uninstall
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.domain.errors import HolderLost, UnknownOperation, WaitTimeout
from palinurus.operations.gateway import show_gateway, stop_gateway
from palinurus.operations.holder import GatewayStanding
from palinurus.wiring.door import Door

# Imported when they are called: they need a web server, or a client of one.
LAZY = {"run": "palinurus.cli.gateway_run:run", "call": "palinurus.cli.gateway_call:call"}
ABOUT = {"run": "Serve the home until it is ended.", "call": "Call one method and print what it gives."}


class GatewayGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["run", "status", "stop", "call", "token", "install", "uninstall"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in LAZY:
            return super().get_command(ctx, cmd_name)
        module, _, name = LAZY[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        known = {name: command.get_short_help_str(80) for name, command in self.commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl([(name, (ABOUT | known)[name]) for name in self.list_commands(ctx)])


@click.group(cls=GatewayGroup)
def gateway() -> None:
    """Serve the home by HTTP and WebSocket, and look after who may come in.

    It listens on this machine only, unless the config or --bind say otherwise. Who has the token in
    `<home>/gateway.token` may do everything; `pal gateway token create` makes tokens that may do less.
    """


gateway.add_command(token)
gateway.add_command(install)
gateway.add_command(uninstall)


async def standing_of(door: Door) -> GatewayStanding:
    """How the gateway of this home stands, whoever holds it. Never comes in itself."""
    while (holder := await door.reach()) is not None:
        try:
            return await holder.call(show_gateway, show_gateway.params())
        except UnknownOperation:
            return GatewayStanding(running=False, pid=holder.holder.pid)
        except HolderLost:
            pass  # it went away while we asked; perhaps there is another one
        finally:
            await holder.close()
    return GatewayStanding(running=False)


@gateway.command()
@with_json
@click.pass_obj
def status(shell: Shell) -> int:
    """Show whether a gateway runs, where, and how busy it is. Exit code 1 when none does.

    \b
    Examples:
      pal gateway status
      pal gateway status --json
    """

    async def ask() -> GatewayStanding:
        async with open_door(shell) as door:
            return await standing_of(door)

    found = run_async(ask())
    shell.show(found, lambda: _status_text(found))
    return 0 if found.running else 1


def _status_text(found: GatewayStanding) -> str:
    if not found.running:
        return "No gateway is running. `pal gateway run` starts one."
    rows = [
        ("address", f"{found.url} ({found.bind}, {'open to all here' if found.auth == 'none' else found.auth})"),
        *([("network", f"{found.secure_url} (TLS, SHA-256 {found.fingerprint})")] if found.fingerprint else []),
        ("token", found.token_from),
        ("process", f"{found.pid}, {'ready' if found.ready else 'leaving'}, up {_time(found.uptime_ms)}"),
        ("clients", str(found.clients)),
        ("running", str(found.busy)),
        ("version", found.version),
    ]
    return "\n".join(f"{name:<8} {value}" for name, value in rows)


def _time(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    named = [f"{number} {unit}" for number, unit in ((days, "d"), (hours, "h"), (minutes, "min")) if number]
    return " ".join(named[:2]) or f"{seconds} s"


@gateway.command()
@click.option(
    "--timeout", type=click.FloatRange(min=0), default=60.0, show_default=True, help="Seconds to wait until it is gone."
)
@with_json
@click.pass_obj
def stop(shell: Shell, timeout: float) -> None:
    """Let the gateway finish what runs, and end it.

    \b
    Examples:
      pal gateway stop
      pal gateway stop --timeout 300
    """

    async def ask() -> GatewayStanding:
        async with open_door(shell) as door:
            return await _stop(shell, door, timeout)

    was = run_async(ask())
    told = "The gateway has ended." if was.running else "No gateway is running."
    shell.show({"stopped": was.running, "pid": was.pid}, lambda: told)


async def _stop(shell: Shell, door: Door, timeout: float) -> GatewayStanding:
    was = await standing_of(door)
    holder = await door.reach() if was.running else None
    if holder is None:
        return was
    try:
        ending = await holder.call(stop_gateway, stop_gateway.params())
    except HolderLost:
        return was  # it was leaving already
    finally:
        await holder.close()
    if ending.busy and not shell.as_json:
        shell.warn(f"it finishes {ending.busy} run(s) first")
    until = time.monotonic() + timeout
    while (now := await standing_of(door)).running:
        if time.monotonic() > until:
            raise WaitTimeout(
                f"the gateway still runs after {timeout:g} s ({now.busy} run(s))", hint="it ends when they are done"
            )
        await asyncio.sleep(0.05)
    return was
