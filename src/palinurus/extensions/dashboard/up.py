"""`pal up`, also `make run`: the gateway with its dashboard, and a chat in this terminal.

The gateway runs in this process and ends with the chat. If one is running already it is used, and keeps running.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import click
import msgspec

from palinurus.cli.chat import ShowLine, talk_here
from palinurus.cli.command import make_on_first_run
from palinurus.cli.gateway import standing_of
from palinurus.cli.gateway_run import allow_files, load
from palinurus.cli.shell import Shell, run_async
from palinurus.config.load import load_config
from palinurus.domain.envelope import Inbound
from palinurus.extensions.dashboard.commands import open_link
from palinurus.gateway.http.server import can_listen
from palinurus.gateway.settings import DEFAULT_PORT, GatewaySettings, gateway_settings
from palinurus.operations.gateway import make_page_link
from palinurus.operations.services import DashboardLink
from palinurus.runtime.gateway import Gateway
from palinurus.runtime.home_access import HomeAccess


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), help="The port. Default: gateway.port, else 18790 or a free one."
)
@click.option("--no-open", is_flag=True, help="Do not open the dashboard in a browser.")
@click.pass_obj
def up(shell: Shell, port: int | None, no_open: bool) -> int:
    """Start the gateway, open the dashboard, and chat in this terminal.

    The gateway stops when you leave the chat, unless it was running before. When standard input is not a terminal,
    each line is answered in turn and the program ends with the input.

    \b
    Examples:
      pal up
      pal up --no-open
      printf 'what did we decide?\\n' | pal up
    """
    first = make_on_first_run(shell)
    opens = sys.stdin.isatty() and not no_open

    @asynccontextmanager
    async def enter_home(home: HomeAccess, tell: ShowLine) -> AsyncIterator[None]:
        async with _served(shell, home, tell, port) as link:
            tell(f"dashboard: {link.url}")
            if not (opens and open_link(shell, link)) and link.expires_at:
                tell("the link works once, within five minutes; `pal dashboard` makes another")
            yield

    return run_async(_until_stopped(talk_here(shell, Inbound("", ""), first=first, enter_home=enter_home)))


async def _until_stopped(talking: Coroutine[Any, Any, int]) -> int:
    try:
        return await talking
    except asyncio.CancelledError:  # ended by SIGTERM or `pal gateway stop`; running work was finished
        return 0


@asynccontextmanager
async def _served(shell: Shell, home: HomeAccess, tell: ShowLine, port: int | None) -> AsyncIterator[DashboardLink]:
    """Provides a gateway while the block runs: ours, or one that was running."""
    if (await standing_of(home)).running:
        await home.enter()
        yield await home.call(make_page_link, make_page_link.params())
        return
    settings = _settings(shell, tell, port)
    allow_files()
    runtime = await home.hold()
    gateway = Gateway(runtime, settings)
    beside: list[asyncio.Task[None]] = []
    try:
        await gateway.start()
        beside.append(asyncio.create_task(_end_with(gateway, asyncio.current_task())))
        if sys.stdin.isatty():  # a user who only pipes a line in would wait for it
            beside.append(asyncio.create_task(asyncio.to_thread(load)))
            runtime.keep_up()
        yield gateway.link()
    finally:
        for task in beside[:1]:
            task.cancel()
        await gateway.close()
        await asyncio.gather(*beside, return_exceptions=True)


async def _end_with(gateway: Gateway, talking: asyncio.Task[Any] | None) -> None:
    """Ends the chat when the gateway is stopped: both are this process."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, gateway.leave)
    await gateway.left()
    if talking is not None:
        talking.cancel()


def _settings(shell: Shell, tell: ShowLine, port: int | None) -> GatewaySettings:
    """Returns the configured settings. A default port may be replaced: another home may have its gateway there."""
    config = load_config(shell.home, os.environ).config
    settings = gateway_settings(config, port=port)
    chosen = port or config.data.get("gateway", {}).get("port")
    if chosen is None and not can_listen(settings.hosts[0], settings.port):
        tell(f"port {DEFAULT_PORT} is taken; the gateway uses another one")
        return msgspec.structs.replace(settings, port=0)
    return settings
