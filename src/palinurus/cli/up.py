"""`pal up`: everything at once, which is what `make run` does: the gateway with its page, and a chat in this terminal.

The gateway runs in this process and ends with the chat. When one is running already it is used, and stays.
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

from palinurus.cli.chat import Tell, talk_here
from palinurus.cli.dashboard import open_link
from palinurus.cli.entrance import ground_of, make_on_first_run
from palinurus.cli.gateway import standing_of
from palinurus.cli.gateway_run import allow_files, load
from palinurus.cli.shell import Shell, run_async
from palinurus.config.listening import DEFAULT_PORT, GatewaySettings, gateway_settings
from palinurus.config.load import load_config
from palinurus.domain.envelope import Inbound
from palinurus.gateway.http.serving import can_listen
from palinurus.operations.gateway import make_page_link
from palinurus.operations.holder import PageLink
from palinurus.wiring.door import Door
from palinurus.wiring.gateway import Gateway


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), help="The port. Default: gateway.port, else 18790 or a free one."
)
@click.option("--no-open", is_flag=True, help="Do not open the page in a browser.")
@click.pass_obj
def up(shell: Shell, port: int | None, no_open: bool) -> int:
    """Start the gateway, open its page, and talk in this terminal.

    The gateway ends when you leave the chat, unless it was running before. When standard input is no terminal, each
    line is answered in turn and the program ends with the input.

    \b
    Examples:
      pal up
      pal up --no-open
      printf 'what did we decide?\\n' | pal up
    """
    first = make_on_first_run(shell)
    opens = sys.stdin.isatty() and not no_open

    @asynccontextmanager
    async def entrance(door: Door, tell: Tell) -> AsyncIterator[None]:
        async with _served(shell, door, tell, port) as link:
            _show(shell, link, tell, opens=opens)
            yield

    return run_async(_until_stopped(talk_here(shell, Inbound("", ""), first=first, entrance=entrance)))


async def _until_stopped(talking: Coroutine[Any, Any, int]) -> int:
    try:
        return await talking
    except asyncio.CancelledError:  # by SIGTERM or `pal gateway stop`; what ran was finished
        return 0


@asynccontextmanager
async def _served(shell: Shell, door: Door, tell: Tell, port: int | None) -> AsyncIterator[PageLink]:
    """A gateway for as long as this lasts, ours or one that was there."""
    if (await standing_of(door)).running:
        await door.enter()
        yield await door.call(make_page_link, make_page_link.params())
        return
    settings = _settings(shell, tell, port)
    allow_files()
    runtime = await door.hold()
    gateway = Gateway(runtime, ground_of(shell), settings)
    beside: list[asyncio.Task[None]] = []
    try:
        await gateway.start()
        beside.append(asyncio.create_task(_end_with(gateway, asyncio.current_task())))
        if sys.stdin.isatty():  # who only pipes a line in would wait for it
            beside.append(asyncio.create_task(asyncio.to_thread(load)))
            runtime.keep_up()
        yield gateway.link()
    finally:
        for task in beside[:1]:
            task.cancel()
        await gateway.close()
        await asyncio.gather(*beside, return_exceptions=True)


async def _end_with(gateway: Gateway, talking: asyncio.Task[Any] | None) -> None:
    """When somebody stops the gateway the chat ends too: both are this process."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, gateway.leave)
    await gateway.left()
    if talking is not None:
        talking.cancel()


def _settings(shell: Shell, tell: Tell, port: int | None) -> GatewaySettings:
    """As configured. A port that nobody asked for need not be that one: another home may have its gateway there."""
    options = load_config(shell.home, os.environ).config.gateway
    settings = gateway_settings(options, port=port)
    if port is None and options.port is None and not can_listen(settings.hosts[0], settings.port):
        tell(f"port {DEFAULT_PORT} is taken; the gateway uses another one")
        return msgspec.structs.replace(settings, port=0)
    return settings


def _show(shell: Shell, link: PageLink, tell: Tell, *, opens: bool) -> None:
    tell(f"the page: {link.url}")
    if opens and open_link(shell, link):
        return
    if link.expires_at:
        tell("the link is good once, for five minutes; `pal dashboard` gives another")
