"""A client of the gateway's WebSocket for one request: `pal gateway call`.

The credential is sent to the given address only: redirects are not followed.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import msgspec

from palinurus import __version__
from palinurus.domain.errors import BadRequest, PalinurusError
from palinurus.gateway.auth.devices import is_near
from palinurus.gateway.protocol import MAX_FRAME, PROTOCOL, Client, ClientAuth, Connect, RequestFrame

CLIENT = Client(id="cli", version=__version__, platform="linux", mode="cli", display_name="pal gateway call")


async def call_gateway(url: str, secret: str, method: str, params: Any, *, timeout: float) -> Any:
    """The payload of the answer; of a feed, its items. Raises PalinurusError with the gateway's message."""
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

    class Direct(connect):
        def process_redirect(self, exc: Exception) -> Exception:
            return exc

    near = is_near((urlsplit(url).hostname or "").replace("localhost", "127.0.0.1"))
    try:
        async with (
            asyncio.timeout(timeout),
            Direct(url, max_size=MAX_FRAME, proxy=None if near else True) as socket,
        ):
            exchange = _Exchange(socket)
            await exchange.challenge()
            auth = ClientAuth(token=secret)
            await exchange.ask("connect", msgspec.to_builtins(Connect(PROTOCOL, PROTOCOL, CLIENT, auth=auth)))
            return await exchange.ask(method, params)
    except TimeoutError:
        raise PalinurusError(f"{url} did not answer within {timeout:g} s", hint="--timeout waits longer") from None
    except InvalidURI:
        raise BadRequest(f"{url!r} is not the address of a gateway", hint="such as ws://127.0.0.1:18790") from None
    except (OSError, InvalidHandshake, EOFError) as error:
        raise PalinurusError(f"{url} cannot be reached: {error}", hint="is a gateway running there?") from None
    except ConnectionClosed as error:
        reason = error.rcvd.reason if error.rcvd is not None else ""
        raise PalinurusError(f"the gateway closed the connection: {reason or error}") from None


class _Exchange:
    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._count = 0

    async def challenge(self) -> None:
        while (await self._frame()).get("event") != "connect.challenge":
            pass

    async def ask(self, method: str, params: Any) -> Any:
        self._count += 1
        number, items = str(self._count), []
        request = RequestFrame(number, method, msgspec.Raw(msgspec.json.encode(params)))
        await self._socket.send(msgspec.json.encode(request).decode())
        while True:
            frame = await self._frame()
            if frame.get("event") == "feed" and frame["payload"]["id"] == number:
                items.append(frame["payload"]["item"])
            if frame.get("type") == "res" and frame.get("id") == number:
                return items or _payload(frame)

    async def _frame(self) -> dict[str, Any]:
        try:
            return msgspec.json.decode(await self._socket.recv(), type=dict[str, Any])
        except msgspec.DecodeError:
            raise PalinurusError("this is not a gateway: its frames are not JSON") from None


def _payload(frame: dict[str, Any]) -> Any:
    if frame.get("ok"):
        return frame.get("payload")
    error = frame.get("error") or {}
    details = error.get("details") or {}
    hint = details.get("hint") or details.get("code") or ""
    raise PalinurusError(f"{error.get('code', 'FAILED')}: {error.get('message', 'no message')}", hint=hint)
