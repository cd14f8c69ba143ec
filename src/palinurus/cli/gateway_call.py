"""`pal gateway call`: one method of the gateway, over its WebSocket, as any client would call it.

The credential is sent to the given address only: redirects are not followed.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from palinurus import __version__
from palinurus.cli.command import with_home
from palinurus.cli.gateway import standing_of
from palinurus.cli.shell import Shell, echo, run_async, with_shell
from palinurus.config.home import env_value
from palinurus.config.load import load_config
from palinurus.domain.errors import BadRequest, NotFound, PalinurusError
from palinurus.gateway.auth.devices import is_near
from palinurus.gateway.protocol import MAX_FRAME, PROTOCOL, Client, ClientAuth, Connect, RequestFrame
from palinurus.gateway.settings import gateway_settings
from palinurus.runtime.secret import VARIABLES, OwnerSecret


@click.command()
@click.argument("method")
@click.option("--params", default="{}", help="The parameters, as a JSON object.")
@click.option("--url", default="", help="Another gateway, such as ws://127.0.0.1:18790. Needs a token of its own.")
@click.option("--token", default="", help="The token for --url; PALINURUS_GATEWAY_TOKEN is better, ps shows this one.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=60.0, show_default=True, help="Seconds to wait.")
@with_shell
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
        where, secret = _here(shell)
    found = run_async(_call_gateway(where, secret, method, asked, timeout=timeout))
    echo(msgspec.json.format(msgspec.json.encode(found)).decode())


def _check_address(shell: Shell, url: str, secret: str) -> None:
    """The secret of this home is for this home: it is never sent to an address that was named."""
    scheme = urlsplit(url).scheme
    if scheme not in ("ws", "wss"):
        raise BadRequest(f"{url!r} is not the address of a gateway", hint="such as ws://127.0.0.1:18790")
    if not secret:
        raise BadRequest("--url needs --token", hint=f"or set {VARIABLES['token']}")
    if scheme == "ws" and not _is_local(url):
        shell.warn("without TLS: others on the network can read the token")


def _is_local(url: str) -> bool:
    return is_near((urlsplit(url).hostname or "").replace("localhost", "127.0.0.1"))


def _here(shell: Shell) -> tuple[str, str]:
    """Where the gateway of this home is, as its own process says, and the owner's secret."""
    found = with_home(shell, standing_of)
    if not found.running:
        raise NotFound("no gateway is running", hint="`pal gateway run` starts one")
    loaded = load_config(shell.home, os.environ)
    mode = gateway_settings(loaded.config).mode
    secret = OwnerSecret(lambda: loaded, os.environ, shell.home.root, mode)
    return found.url.replace("http://", "ws://").replace("//0.0.0.0:", "//127.0.0.1:"), secret()


CLIENT = Client(id="cli", version=__version__, platform="linux", mode="cli", display_name="pal gateway call")


async def _call_gateway(url: str, secret: str, method: str, params: Any, *, timeout: float) -> Any:
    """The payload of the answer; of a feed, its items. Raises PalinurusError with the gateway's message."""
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

    class Direct(connect):
        def process_redirect(self, exc: Exception) -> Exception:
            return exc

    try:
        async with (
            asyncio.timeout(timeout),
            Direct(url, max_size=MAX_FRAME, proxy=None if _is_local(url) else True) as socket,
        ):
            while (await _frame(socket)).get("event") != "connect.challenge":
                pass
            await _ask(socket, "connect", Connect(PROTOCOL, PROTOCOL, CLIENT, auth=ClientAuth(token=secret)))
            return await _ask(socket, method, params)
    except TimeoutError:
        raise PalinurusError(f"{url} did not answer within {timeout:g} s", hint="--timeout waits longer") from None
    except InvalidURI:
        raise BadRequest(f"{url!r} is not the address of a gateway", hint="such as ws://127.0.0.1:18790") from None
    except (OSError, InvalidHandshake, EOFError) as error:
        raise PalinurusError(f"{url} cannot be reached: {error}", hint="is a gateway running there?") from None
    except ConnectionClosed as error:
        reason = error.rcvd.reason if error.rcvd is not None else ""
        raise PalinurusError(f"the gateway closed the connection: {reason or error}") from None


async def _ask(socket: Any, method: str, params: Any) -> Any:
    """One request at a time: its method is its id."""
    items = []
    request = RequestFrame(method, method, msgspec.Raw(msgspec.json.encode(params)))
    await socket.send(msgspec.json.encode(request).decode())
    while True:
        frame = await _frame(socket)
        if frame.get("event") == "feed" and frame["payload"]["id"] == method:
            items.append(frame["payload"]["item"])
        if frame.get("type") == "res" and frame.get("id") == method:
            return items or _payload(frame)


async def _frame(socket: Any) -> dict[str, Any]:
    try:
        return msgspec.json.decode(await socket.recv(), type=dict[str, Any])
    except msgspec.DecodeError:
        raise PalinurusError("this is not a gateway: its frames are not JSON") from None


def _payload(frame: dict[str, Any]) -> Any:
    if frame.get("ok"):
        return frame.get("payload")
    error = frame.get("error") or {}
    details = error.get("details") or {}
    hint = details.get("hint") or details.get("code") or ""
    raise PalinurusError(f"{error.get('code', 'FAILED')}: {error.get('message', 'no message')}", hint=hint)
