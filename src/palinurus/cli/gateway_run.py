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
from palinurus.domain.errors import BadRequest, HomeTaken
from palinurus.wiring.gateway import Gateway
from palinurus.wiring.sweeping import sweeping

FILES = 65_536


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="The port. Default: gateway.port, else 18790; 0 takes any.")
@click.option("--bind", type=click.Choice(["loopback", "lan"]), help="This machine only, or the network too.")
@click.option("--lan", is_flag=True, help="The network too, by TLS at a port of its own; the plain port stays here.")
@click.option("--lan-port", type=click.IntRange(0, 65535), help="The port for TLS. Default: the one after --port.")
@click.option("--verbose", is_flag=True, help="Show everything that is logged.")
@with_json
@click.pass_obj
def run(shell: Shell, port: int | None, bind: str | None, lan: bool, lan_port: int | None, verbose: bool) -> None:
    """Serve the home until it is ended.

    A `pal chat` that holds the home hands it over and goes on as a client. Ctrl-C or SIGTERM ends the gateway once it
    has finished what runs; a second one stops what runs.

    With --lan a phone can come in: the gateway makes a certificate of its own, shows its fingerprint, and
    `pal dashboard --qr` shows a QR code that lets one phone in.

    \b
    Examples:
      pal gateway run
      pal gateway run --port 0 --verbose
      pal gateway run --lan
    """
    make_on_first_run(shell)
    if lan and bind == "lan":
        raise BadRequest("--lan speaks TLS and --bind lan does not", hint="leave --bind out")
    options = load_config(shell.home, os.environ).config.gateway
    settings = gateway_settings(options, port=port, bind=bind, lan=lan, secure_port=lan_port)
    if not settings.plain_is_near:
        shell.warn("listening on the network without TLS: whoever listens there can read tokens and talk")
    allow_files()
    run_async(_serve(shell, settings, verbose=verbose))


def allow_files() -> None:
    """Every client is an open file, and the usual limit of 1,024 is there for programs that use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def load() -> None:
    """What the first turn needs, loaded beside the loop and not in it: that takes a tenth of a second."""
    import anyio  # the next two bring it; the larger part of it is loaded when it first runs
    import httpcore2  # noqa: F401  # httpx2 loads it with its first client
    import httpx2  # noqa: F401

    anyio.run(anyio.sleep, 0)


def _started(gateway: Gateway) -> str:
    lines = [f"pal gateway at {gateway.url} · token: {gateway.token_from}"]
    now = gateway.standing()
    if now.fingerprint:
        lines.append(f"in the network at {now.secure_url or 'no address yet'} · certificate SHA-256 {now.fingerprint}")
        lines.append("`pal dashboard --qr` lets a phone in")
    return "\n".join(lines)


async def _serve(shell: Shell, settings: GatewaySettings, *, verbose: bool) -> None:
    async with open_door(shell, verbose=verbose) as door:
        runtime = await door.hold()
        gateway = Gateway(runtime, ground_of(shell), settings)
        try:
            await gateway.start()
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, gateway.leave)
            shell.show(gateway.standing(), lambda: _started(gateway))
            await asyncio.to_thread(load)
            runtime.keep_up()
            async with sweeping(lambda: door.busy == 0):
                await gateway.left()
            if door.busy:
                shell.warn(f"finishing {door.busy} run(s); once more stops them")
        finally:
            await gateway.close()
        if door.taken:
            raise HomeTaken(
                f"another process holds {shell.home.root} now, because its file `lock` was removed",
                hint="leave that file alone; `pal gateway status` asks the other one",
            )
