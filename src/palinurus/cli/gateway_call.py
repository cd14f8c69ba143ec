"""`pal gateway call`: one method of the gateway, over its WebSocket, as any client would call it."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from palinurus.cli.command import open_home
from palinurus.cli.gateway import standing_of
from palinurus.cli.shell import Shell, echo, run_async, with_json
from palinurus.config.home import env_value
from palinurus.config.load import load_config
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.gateway.auth.devices import is_near
from palinurus.gateway.settings import gateway_settings
from palinurus.gateway.websocket.call import call_gateway
from palinurus.runtime.secret import VARIABLES, OwnerSecret


@click.command()
@click.argument("method")
@click.option("--params", default="{}", help="The parameters, as a JSON object.")
@click.option("--url", default="", help="Another gateway, such as ws://127.0.0.1:18790. Needs a token of its own.")
@click.option("--token", default="", help="The token for --url; PALINURUS_GATEWAY_TOKEN is better, ps shows this one.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=60.0, show_default=True, help="Seconds to wait.")
@with_json
@click.pass_obj
def call(shell: Shell, method: str, params: str, url: str, token: str, timeout: float) -> None:
    """Call one method of the gateway and print its result as JSON.

    \b
    Examples:
      pal gateway call health
      pal gateway call chat.history --params '{"sessionKey": "agent:main:main", "limit": 5}'
      pal gateway call status --url ws://192.168.1.5:18790
    """
    try:
        asked = msgspec.json.decode(params, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise BadRequest(f"--params is not a JSON object: {error}", hint="""such as '{"limit": 5}'""") from None
    if url:
        where, secret = url, token or env_value(os.environ, VARIABLES["token"])
        _check_address(shell, where, secret)
    else:
        where, secret = run_async(_here(shell))
    found = run_async(call_gateway(where, secret, method, asked, timeout=timeout))
    echo(msgspec.json.format(msgspec.json.encode(found)).decode())


def _check_address(shell: Shell, url: str, secret: str) -> None:
    """The secret of this home is for this home: it is never sent to an address that was named."""
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "wss"):
        raise BadRequest(f"{url!r} is not the address of a gateway", hint="such as ws://127.0.0.1:18790")
    if not secret:
        raise BadRequest("--url needs --token", hint=f"or set {VARIABLES['token']}")
    if parts.scheme == "ws" and not is_near((parts.hostname or "").replace("localhost", "127.0.0.1")):
        shell.warn("without TLS: others on the network can read the token")


async def _here(shell: Shell) -> tuple[str, str]:
    """Where the gateway of this home is, as its own process says, and the owner's secret."""
    async with open_home(shell) as home:
        found = await standing_of(home)
    if not found.running:
        raise NotFound("no gateway is running", hint="`pal gateway run` starts one")
    loaded = load_config(shell.home, os.environ)
    mode = gateway_settings(loaded.config).mode
    secret = OwnerSecret(lambda: loaded, os.environ, shell.home.root, mode)
    return found.url.replace("http://", "ws://").replace("//0.0.0.0:", "//127.0.0.1:"), secret()
