"""`pal gateway run`: the process that holds the home and serves everybody."""

from __future__ import annotations

import asyncio
import os
import resource
import signal

import click

from palinurus.cli.entrance import ground_of, make_on_first_run, open_door
from palinurus.cli.shell import Shell, run_async, with_json
from palinurus.config.listening import GatewaySettings, gateway_settings
from palinurus.config.load import load_config
from palinurus.wiring.gateway import Gateway
from palinurus.wiring.sweeping import sweeping

FILES = 65_536


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="The port. Default: gateway.port, else 18790; 0 takes any.")
@click.option("--bind", type=click.Choice(["loopback", "lan"]), help="This machine only, or the network too.")
@click.option("--verbose", is_flag=True, help="Show everything that is logged.")
@with_json
@click.pass_obj
def run(shell: Shell, port: int | None, bind: str | None, verbose: bool) -> None:
    """Serve the home until it is ended.

    A `pal chat` that holds the home hands it over and goes on as a client. Ctrl-C or SIGTERM ends the gateway once it
    has finished what runs; a second one stops what runs.

    \b
    Examples:
      pal gateway run
      pal gateway run --port 0 --verbose
      pal gateway run --bind lan
    """
    make_on_first_run(shell)
    settings = gateway_settings(load_config(shell.home, os.environ).config.gateway, port=port, bind=bind)
    if not settings.is_near:
        shell.warn("listening on the network without TLS: whoever listens there can read tokens and talk")
    _allow_files()
    run_async(_serve(shell, settings, verbose=verbose))


def _allow_files() -> None:
    """Every client is an open file, and the usual limit of 1,024 is there for programs that use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _load() -> None:
    """What the first turn needs, loaded beside the loop and not in it: that takes a tenth of a second."""
    import anyio  # the next two bring it; the larger part of it is loaded when it first runs
    import httpcore2  # noqa: F401  # httpx2 loads it with its first client
    import httpx2  # noqa: F401

    anyio.run(anyio.sleep, 0)


async def _serve(shell: Shell, settings: GatewaySettings, *, verbose: bool) -> None:
    async with open_door(shell, verbose=verbose) as door:
        runtime = await door.hold()
        gateway = Gateway(runtime, ground_of(shell), settings)
        try:
            await gateway.start()
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, gateway.leave)
            shell.show(gateway.standing(), lambda: f"pal gateway at {gateway.url} · token: {gateway.token_from}")
            await asyncio.to_thread(_load)
            runtime.keep_up()
            async with sweeping(lambda: door.busy == 0):
                await gateway.left()
            if door.busy:
                shell.warn(f"finishing {door.busy} run(s); once more stops them")
        finally:
            await gateway.close()
