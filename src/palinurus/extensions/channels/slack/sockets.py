"""Socket Mode: WebSockets that we open, over which Slack passes events, each of which it wants acknowledged.

The library's own client is not used. It handles what arrives at the same time and in any order, without a bound; it
gives up the old socket before there is a new one, with what is on its way; and it tries a wrong token for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import aiohttp
import msgspec
from msgspec import Raw, Struct

from palinurus.dispatch.channels import ChannelContext, ChannelInbox
from palinurus.extensions.channels.slack.api import SlackApi

log = logging.getLogger(__name__)

MOST_IN_FLIGHT = 64  # envelopes; then no more are read
HELLO_SECONDS = 30.0
LAST_SECONDS = 10.0  # of a socket that Slack has announced to close: what it still brings is taken
HEARTBEAT_SECONDS = 20.0
CLOSING = aiohttp.ClientWSTimeout(ws_close=1.0)  # Slack leaves the connection open after both have said goodbye


class SlackEnvelope(Struct, frozen=True):
    type: str
    envelope_id: str = ""
    payload: Raw = Raw(b"")


EnvelopeHandler = Callable[[str, bytes], Awaitable[bool]]
"""Is given an envelope's type and payload. False: it must be delivered again."""


class SocketMode:
    """One account's sockets: mostly one, two while Slack replaces it."""

    def __init__(self, context: ChannelContext, api: SlackApi, app_token: str, handle: EnvelopeHandler) -> None:
        self._context = context
        self._api = api
        self._app_token = app_token
        self._handle = handle
        self._room = asyncio.Semaphore(MOST_IN_FLIGHT)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, inbox: ChannelInbox, identity: str) -> None:
        """Until it is cancelled, or no new socket can be opened."""
        try:
            await self._renew(inbox, identity)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _renew(self, inbox: ChannelInbox, identity: str) -> None:
        idle = 0  # sockets in a row that brought nothing
        while True:
            reader = _SlackSocketReader(await self._open(), self._accept, lambda: inbox.connected(identity))
            self._start(reader.run())
            await reader.finished.wait()
            if not reader.announced:
                inbox.disconnected("Slack closed the connection")
            idle = 0 if reader.brought else idle + 1
            if idle > 1:
                await self._context.sleep(min(2.0 ** (idle - 2), 30.0))

    async def _open(self) -> aiohttp.ClientWebSocketResponse:
        answer = await self._api.call("apps.connections.open", token=self._app_token)
        url = str(answer.get("url") or "")
        try:
            return await self._api.session.ws_connect(url, heartbeat=HEARTBEAT_SECONDS, timeout=CLOSING)
        except (aiohttp.ClientError, OSError, ValueError) as error:  # their texts show the address, a secret
            raise ConnectionError(f"no WebSocket to Slack: {type(error).__name__}") from None

    async def _accept(self, socket: aiohttp.ClientWebSocketResponse, envelope: SlackEnvelope) -> None:
        await self._room.acquire()
        self._start(self._answer(socket, envelope))

    async def _answer(self, socket: aiohttp.ClientWebSocketResponse, envelope: SlackEnvelope) -> None:
        try:
            if await self._handle(envelope.type, bytes(envelope.payload)):
                # On a closed socket it is delivered again over the next, and known by its update.
                with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                    await socket.send_json({"envelope_id": envelope.envelope_id})
        finally:
            self._room.release()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _SlackSocketReader:
    """Reads one socket to its end. `finished` is set as soon as another one is needed."""

    def __init__(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        accept: Callable[[aiohttp.ClientWebSocketResponse, SlackEnvelope], Awaitable[None]],
        greeted: Callable[[], None],
    ) -> None:
        self._socket = socket
        self._accept = accept
        self._greeted = greeted
        self.finished = asyncio.Event()
        self.announced = False  # whether Slack has said that it will close
        self.brought = False  # whether anything came

    async def run(self) -> None:
        try:
            async with asyncio.timeout(HELLO_SECONDS) as limit:
                async for frame in self._socket:
                    if frame.type == aiohttp.WSMsgType.TEXT:
                        await self._read(frame.data, limit)
        except TimeoutError:
            pass  # no hello, or the last seconds are over
        finally:
            self.finished.set()
            await self._socket.close()

    async def _read(self, text: str, limit: asyncio.Timeout) -> None:
        try:
            envelope = msgspec.json.decode(text, type=SlackEnvelope)
        except msgspec.DecodeError as error:
            log.warning("Slack sent something that is no envelope: %s", error)
            return
        if envelope.type == "hello":
            limit.reschedule(None)
            self._greeted()
        elif envelope.type == "disconnect":
            limit.reschedule(asyncio.get_running_loop().time() + LAST_SECONDS)
            self.announced = True
            self.finished.set()
        elif envelope.envelope_id:
            self.brought = True
            await self._accept(self._socket, envelope)
