"""How networks with webhooks post: in order, each post again until it is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from urllib.parse import parse_qsl, urlsplit

import aiohttp

from palinurus.dispatch.channels import ChannelRequest, ChannelResponse

Deliver = Callable[[ChannelRequest], Awaitable[ChannelResponse]]
Sign = Callable[[bytes], Mapping[str, str]]


class WebhookPoster:
    """Posts to `deliver`, in this process; while that is None, by HTTP to the gateway at `gateway_url`."""

    def __init__(self, path: str, sign: Sign) -> None:
        self.path = path
        self.sign = sign  # asked for each attempt: a signature may cover the time
        self.deliver: Deliver | None = None
        self.gateway_url = ""
        self.posted: list[bytes] = []  # what was taken
        self._waiting: list[bytes] = []
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="posts of channels/networks")

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def add(self, body: bytes) -> None:
        self._waiting.append(body)
        self._more.set()

    async def _run(self) -> None:
        while True:
            await self._more.wait()
            pause = 0.005
            while not 200 <= (await self.post(self._waiting[0])).status < 300:
                await asyncio.sleep(pause)
                pause = min(2 * pause, 0.2)
            self.posted.append(self._waiting.pop(0))
            if not self._waiting:
                self._more.clear()

    async def post(self, body: bytes, headers: Mapping[str, str] | None = None) -> ChannelResponse:
        """Once. Without `headers` it is signed."""
        signed = {"content-type": "application/json", **(self.sign(body) if headers is None else headers)}
        return await self.request("POST", self.path, signed, body)

    async def request(self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> ChannelResponse:
        """503 stands for everything that keeps a request from being answered."""
        url = urlsplit(target)
        if self.deliver is not None:
            return await self.deliver(ChannelRequest(method, url.path, headers, dict(parse_qsl(url.query)), body))
        if self.gateway_url:
            with suppress(aiohttp.ClientError, TimeoutError):
                timeout = aiohttp.ClientTimeout(60)
                async with (
                    aiohttp.ClientSession(timeout=timeout) as session,
                    session.request(method, self.gateway_url + target, headers=headers, data=body) as response,
                ):
                    return ChannelResponse(response.status, await response.read())
        return ChannelResponse(503)
