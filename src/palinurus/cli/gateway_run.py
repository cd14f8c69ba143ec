"""`pal gateway run`: the process that holds the home and serves everybody."""

from __future__ import annotations

import asyncio
import os
import resource
import signal

import click

from palinurus.cli.command import make_on_first_run, open_home
from palinurus.cli.shell import Shell, run_async, with_shell
from palinurus.config.load import load_config
from palinurus.domain.errors import BadRequest, HomeTaken
from palinurus.gateway.settings import GatewaySettings, gateway_settings
from palinurus.runtime.garbage import collecting_garbage
from palinurus.runtime.gateway import Gateway

FILES = 65_536


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="The port. Default: gateway.port, else 18790; 0 takes any.")
@click.option("--bind", type=click.Choice(["loopback", "lan"]), help="This machine only, or the network too.")
@click.option("--lan", is_flag=True, help="Also listen on the network, with TLS on a port of its own.")
@click.option("--lan-port", type=click.IntRange(0, 65535), help="The port for TLS. Default: the one after --port.")
@click.option("--verbose", is_flag=True, help="Show everything that is logged.")
@with_shell
def run(shell: Shell, port: int | None, bind: str | None, lan: bool, lan_port: int | None, verbose: bool) -> None:
    """Run the gateway in the foreground.

    A `pal chat` that holds the home hands it over and continues as a client. Ctrl-C or SIGTERM stops the gateway when
    its runs have finished; a second one stops the runs too.

    With --lan a phone can connect: the gateway makes its own certificate and shows its fingerprint, and `pal
    dashboard --qr` shows a QR code that logs in one phone.

    \b
    Examples:
      pal gateway run
      pal gateway run --port 0 --verbose
      pal gateway run --lan
    """
    make_on_first_run(shell)
    if lan and bind == "lan":
        raise BadRequest("--lan uses TLS and --bind lan does not", hint="leave --bind out")
    config = load_config(shell.home, os.environ).config
    settings = gateway_settings(config, port=port, bind=bind, lan=lan, secure_port=lan_port)
    if not settings.plain_is_near:
        shell.warn("listening on the network without TLS: others on the network can read tokens and messages")
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
        lines.append("`pal dashboard --qr` logs in a phone")
    return "\n".join(lines)


async def _serve(shell: Shell, settings: GatewaySettings, *, verbose: bool) -> None:
    async with open_home(shell, verbose=verbose) as home:
        runtime = await home.hold()
        gateway = Gateway(runtime, settings)
        try:
            await gateway.start()
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, gateway.leave)
            shell.show(gateway.standing(), lambda: _started(gateway))
            await asyncio.to_thread(load)
            runtime.keep_up()
            async with collecting_garbage(lambda: home.busy == 0):
                await gateway.left()
            if home.busy:
                shell.warn(f"finishing {home.busy} run(s); Ctrl-C again stops them")
        finally:
            await gateway.close()
        if home.taken:
            hint = "leave that file alone; `pal gateway status` shows the other process"
            why = "because its file `lock` was removed"
            raise HomeTaken(f"another process holds {shell.home.root} now, {why}", hint=hint)
