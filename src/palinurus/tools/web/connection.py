"""How connections are made: to addresses that the guard has judged, and with a meter on what comes in.

The HTTP library asks its network backend for a connection to a name. Ours has the guard look the name up and connects
to what the guard hands back; there is no other way out. The name is still what TLS verifies and what Host says.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from palinurus.domain.errors import WebError
from palinurus.tools.web.guard import Guard

if TYPE_CHECKING:
    import httpcore2

CONNECT_SECONDS = 10.0
MAX_TRIED = 4  # addresses of one host
READ_BYTES = 4096  # at a time: small enough that parsing what came never holds the event loop for long

Connector = Callable[[str, int, float], Awaitable["httpcore2.AsyncNetworkStream"]]
"""Connects to an address (never a name), a port, within seconds. Raises OSError or the library's ConnectError."""


async def connect(address: str, port: int, seconds: float) -> httpcore2.AsyncNetworkStream:
    import httpcore2

    return await httpcore2.AnyIOBackend().connect_tcp(address, port, timeout=seconds)


class Meter:
    """How many bytes one request may still bring in, headers and framing and all."""

    def __init__(self, left: int) -> None:
        self.left = left

    def count(self, data: bytes) -> None:
        self.left -= len(data)
        if self.left < 0:
            raise WebError("the server sends more than it may, counting headers and framing")


class GuardedBackend:
    """The network as one request sees it."""

    def __init__(self, guard: Guard, connector: Connector, meter: Meter) -> None:
        self._guard = guard
        self._connect = connector
        self._meter = meter

    async def connect_tcp(self, host: str, port: int, **_: Any) -> httpcore2.AsyncNetworkStream:
        import httpcore2

        failure: Exception | None = None
        for address in (await self._guard.addresses(host, port))[:MAX_TRIED]:
            try:
                return metered(await self._connect(address, port, CONNECT_SECONDS), self._meter)
            except (OSError, httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        reason = str(failure) or type(failure).__name__
        raise WebError(f"{host} cannot be reached on port {port}: {reason}", hint="try later, or another source")

    async def connect_unix_socket(self, path: str, **_: Any) -> httpcore2.AsyncNetworkStream:
        raise WebError("web addresses lead to no sockets of this machine")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def metered(stream: httpcore2.AsyncNetworkStream, meter: Meter) -> httpcore2.AsyncNetworkStream:
    # The library's base classes are not imported before they are needed; it asks for methods, not for ancestors.
    return cast("httpcore2.AsyncNetworkStream", _Metered(stream, meter))


class _Metered:
    def __init__(self, stream: httpcore2.AsyncNetworkStream, meter: Meter) -> None:
        self._stream = stream
        self._meter = meter

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._stream.read(min(max_bytes, READ_BYTES), timeout)
        self._meter.count(data)
        await asyncio.sleep(0)  # TLS hands out what it has buffered without ever waiting
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        return metered(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._meter)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def as_backend(backend: GuardedBackend) -> httpcore2.AsyncNetworkBackend:
    return cast("httpcore2.AsyncNetworkBackend", backend)
