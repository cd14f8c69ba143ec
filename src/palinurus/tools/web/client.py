"""One GET at a time through the guard: no cookies, no credentials, no proxy, no redirect followed on its own."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from palinurus.domain.errors import WebError
from palinurus.tools.web.connection import Connector, GuardedBackend, Meter, as_backend, connect
from palinurus.tools.web.guard import Guard
from palinurus.tools.web.inflate import ACCEPTED, Inflater
from palinurus.tools.web.target import Target

if TYPE_CHECKING:
    import httpcore2

AGENT = "Palinurus (personal agent)"
SMALL = 512  # bytes of a chunk
HEADER_BYTES = 32 * 1024  # what may come before the body: headers are parsed in one go, 5 ms for a thousand of them


class Reply:
    """An answer whose headers have come; the body is read when it is asked for."""

    def __init__(self, target: Target, response: httpcore2.Response) -> None:
        self._target = target
        self._response = response
        self.status = response.status
        self._headers: dict[str, str] = {}
        for name, value in response.headers:
            self._headers.setdefault(name.decode("latin-1").lower(), _text(value))

    def header(self, name: str) -> str:
        return self._headers.get(name, "")

    @property
    def length(self) -> int | None:
        """What the server says about the size, as it is sent."""
        said = self.header("content-length")
        return int(said) if said.isdecimal() and len(said) < 20 else None

    async def body(self, most: int) -> bytes:
        """All of it. Raises WebError when it is longer than `most` bytes, uncompressed."""
        if (self.length or 0) > most:
            raise _too_large(most, self.length)
        data = await self._read(most + 1)
        if len(data) > most:
            raise _too_large(most)
        return data

    async def beginning(self, most: int) -> bytes:
        return (await self._read(most))[:most]

    async def _read(self, most: int) -> bytes:
        inflater = Inflater(self.header("content-encoding"))
        data = bytearray()
        with _mapped(self._target):
            async for chunk in self._response.aiter_stream():
                if len(chunk) < SMALL:  # a server may send a thousand of them where one would do
                    await asyncio.sleep(0)
                data += inflater.feed(chunk, most - len(data))
                if len(data) >= most:
                    return bytes(data)
        inflater.end()
        return bytes(data)


class Client:
    """Sends requests where the guard lets it. `tls` says whose certificates count; the machine's, if unset."""

    def __init__(self, guard: Guard, *, connector: Connector = connect, tls: ssl.SSLContext | None = None) -> None:
        self._guard = guard
        self._connector = connector
        self._tls = tls

    @asynccontextmanager
    async def get(self, target: Target, headers: Mapping[str, str], *, most: int) -> AsyncGenerator[Reply]:
        """The answer to one GET; `most` bytes of body are expected. Raises WebError; a time limit is the caller's.

        Each request has a connection of its own: what a server does to one is not felt by the next.
        """
        import httpcore2

        meter = Meter(HEADER_BYTES)
        backend = as_backend(GuardedBackend(self._guard, self._connector, meter))
        tls = await self._tls_context() if target.scheme == "https" else None
        url = httpcore2.URL(
            scheme=target.scheme.encode(), host=target.host.encode(), port=target.port, target=target.path.encode()
        )
        sent: dict[bytes | str, bytes | str] = {"Host": target.authority, "User-Agent": AGENT, "Connection": "close"}
        sent["Accept-Encoding"] = ACCEPTED
        sent.update(headers.items())
        with _mapped(target):
            async with (
                httpcore2.AsyncConnectionPool(ssl_context=tls, network_backend=backend, http2=False) as pool,
                pool.stream("GET", url, headers=sent) as response,
            ):
                meter.left += 2 * most  # twice, because chunks have frames
                yield Reply(target, response)

    async def _tls_context(self) -> ssl.SSLContext:
        import httpcore2

        if self._tls is None:
            self._tls = await asyncio.to_thread(httpcore2.default_ssl_context)  # loading the certificates takes 0.2 s
        return self._tls


@contextmanager
def _mapped(target: Target) -> Generator[None]:
    """Failures of the library, as ours."""
    import httpcore2

    try:
        yield
    except httpcore2.RemoteProtocolError as error:
        what = str(error).partition(":")[0][:80]  # behind the colon the server's own words are quoted
        raise WebError(f"{target.host} does not speak proper HTTP: {what}") from None
    except httpcore2.TimeoutException as error:
        raise WebError(f"{target.host} is too slow: {_short(error)}", hint="try later, or another source") from None
    except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as error:
        raise WebError(f"the connection to {target.host} failed: {_short(error)}") from None


def _short(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _too_large(most: int, said: int | None = None) -> WebError:
    size = f"{said:,} bytes; " if said else ""
    return WebError(
        f"the answer is too large: {size}{most:,} bytes are read at most",
        hint="ask for a smaller page; the owner can raise tools.web.fetch.maxResponseBytes",
    )
