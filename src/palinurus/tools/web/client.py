"""Sends single requests through the guard: no cookies, no credentials, no proxy, no automatic redirects.

The HTTP library asks its network backend for a connection to a name. Our backend lets the guard resolve the name and
connects to the addresses that the guard returns, counting incoming bytes; there is no other way out. TLS still verifies
the name, and the Host header contains it. Compression is undone in bounded pieces: a few kilobytes can expand to
gigabytes.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from palinurus.domain.errors import WebError
from palinurus.tools.web.guard import AddressGuard, WebAddress

if TYPE_CHECKING:
    import httpcore2

ACCEPTED = "gzip, deflate"
_GZIP, _ZLIB, _RAW = 31, 15, -15
CONNECT_SECONDS = 10.0
MAX_TRIED = 4  # addresses of one host
READ_BYTES = 4096  # at a time: small enough that parsing never blocks the event loop for long
Connector = Callable[[str, int, float], Awaitable["httpcore2.AsyncNetworkStream"]]
"""Connects to an address (never a name) and a port, within seconds. Raises OSError or the library's ConnectError."""

AGENT = "Palinurus (personal agent)"
SMALL = 512  # bytes of a chunk
HEADER_BYTES = 32 * 1024  # what may precede the body: headers are parsed at once, 5 ms for a thousand of them


class Inflater:
    """Decompresses the bytes of one response in order. Raises WebError for an encoding that was not requested."""

    def __init__(self, encoding: str) -> None:
        self._named = encoding.strip().lower()
        if self._named not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise WebError(f"the server sends its answer as {self._named[:40]!r}, which was not requested")
        self._stream: zlib._Decompress | None = None

    def feed(self, data: bytes, most: int) -> bytes:
        """Returns what the data contains, at most `most` bytes. Raises WebError for broken data."""
        if self._named in ("", "identity"):
            return data[:most]
        try:
            if self._stream is None:
                self._stream = zlib.decompressobj(self._format(data))
            found = self._stream.decompress(data, most)
            # a gzip body may consist of several members, each with this mark
            while self._stream.eof and len(found) < most and (rest := self._stream.unused_data)[:2] == b"\x1f\x8b":
                self._stream = zlib.decompressobj(_GZIP)
                found += self._stream.decompress(rest, most - len(found))
        except zlib.error as error:
            raise WebError(f"the server's compressed answer is broken: {error}") from None
        return found

    def end(self) -> None:
        """Raises WebError if the data is incomplete."""
        if self._stream is not None and not self._stream.eof:
            raise WebError("the server's compressed answer is incomplete")

    def _format(self, data: bytes) -> int:
        """Servers use the name deflate for two formats; the first bytes show which."""
        if self._named != "deflate":
            return _GZIP
        try:
            zlib.decompressobj(_ZLIB).decompress(data[:64], 1)
        except zlib.error:
            return _RAW
        return _ZLIB


async def connect(address: str, port: int, seconds: float) -> httpcore2.AsyncNetworkStream:
    import httpcore2

    return await httpcore2.AnyIOBackend().connect_tcp(address, port, timeout=seconds)


class GuardedBackend(Struct, eq=False):
    """The network as one request sees it."""

    guard: AddressGuard
    connect: Connector
    left: int = HEADER_BYTES  # how many bytes the request may still receive, including headers and framing

    async def connect_tcp(self, host: str, port: int, **_: Any) -> httpcore2.AsyncNetworkStream:
        import httpcore2

        failure: Exception | None = None
        for address in (await self.guard.addresses(host, port))[:MAX_TRIED]:
            try:
                return metered(await self.connect(address, port, CONNECT_SECONDS), self)
            except (OSError, httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        reason = str(failure) or type(failure).__name__
        raise WebError(f"{host} cannot be reached on port {port}: {reason}", hint="try later, or another source")

    async def connect_unix_socket(self, path: str, **_: Any) -> httpcore2.AsyncNetworkStream:
        raise WebError("web addresses cannot name unix sockets")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def metered(stream: httpcore2.AsyncNetworkStream, backend: GuardedBackend) -> httpcore2.AsyncNetworkStream:
    # The library's base classes are imported only when needed; it calls methods and does not check the class.
    return cast("httpcore2.AsyncNetworkStream", _MeteredStream(stream, backend))


class _MeteredStream(Struct, eq=False):
    stream: httpcore2.AsyncNetworkStream
    backend: GuardedBackend

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self.stream.read(min(max_bytes, READ_BYTES), timeout)
        self.backend.left -= len(data)
        if self.backend.left < 0:
            raise WebError("the server sends more bytes than allowed, including headers and framing")
        await asyncio.sleep(0)  # TLS returns buffered data without waiting
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self.stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self.stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        return metered(await self.stream.start_tls(ssl_context, server_hostname, timeout), self.backend)

    def get_extra_info(self, info: str) -> Any:
        return self.stream.get_extra_info(info)


class HttpReply:
    """A response whose headers have arrived; the body is read on request."""

    def __init__(self, target: WebAddress, response: httpcore2.Response) -> None:
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
        """Returns the size that the server declares, before decompression."""
        said = self.header("content-length")
        return int(said) if said.isdecimal() and len(said) < 20 else None

    async def body(self, most: int) -> bytes:
        """Returns the whole body. Raises WebError if it is longer than `most` bytes, uncompressed."""
        if (self.length or 0) > most:
            raise _too_large(most, self.length)
        data = await self.beginning(most + 1)
        if len(data) > most:
            raise _too_large(most)
        return data

    async def beginning(self, most: int) -> bytes:
        """Returns at most this many bytes of the body, uncompressed."""
        inflater = Inflater(self.header("content-encoding"))
        data = bytearray()
        with _mapped(self._target):
            async for chunk in self._response.aiter_stream():
                if len(chunk) < SMALL:  # a server may send a thousand tiny chunks instead of one
                    await asyncio.sleep(0)
                data += inflater.feed(chunk, most - len(data))
                if len(data) >= most:
                    return bytes(data)
        inflater.end()
        return bytes(data)


class Client(Struct, eq=False):
    """Sends requests where the guard permits. `tls` says which certificates are trusted; the machine's, if unset."""

    guard: AddressGuard
    connector: Connector = connect
    tls: ssl.SSLContext | None = None

    def get(
        self, target: WebAddress, headers: Mapping[str, str], *, most: int
    ) -> AbstractAsyncContextManager[HttpReply]:
        """Sends one GET: see `request`."""
        return self.request("GET", target, headers, most=most)

    @asynccontextmanager
    async def request(
        self,
        method: str,
        target: WebAddress,
        headers: Mapping[str, str],
        *,
        most: int,
        content: AsyncIterator[bytes] | None = None,
    ) -> AsyncGenerator[HttpReply]:
        """Sends one request; `most` bytes of body are expected. Raises WebError; the caller sets a time limit.

        Each request has its own connection, so that a server cannot affect the next request.
        """
        import httpcore2

        guarded = GuardedBackend(self.guard, self.connector)
        backend = cast("httpcore2.AsyncNetworkBackend", guarded)
        if target.scheme == "https" and self.tls is None:
            self.tls = await asyncio.to_thread(httpcore2.default_ssl_context)  # loading the certificates takes 0.2 s
        scheme, host, path = target.scheme.encode(), target.host.encode(), target.path.encode()
        url = httpcore2.URL(scheme=scheme, host=host, port=target.port, target=path)
        sent: dict[bytes | str, bytes | str] = {"Host": target.authority, "User-Agent": AGENT, "Connection": "close"}
        sent.update({"Accept-Encoding": ACCEPTED, **headers}.items())
        with _mapped(target):
            async with (
                httpcore2.AsyncConnectionPool(ssl_context=self.tls, network_backend=backend, http2=False) as pool,
                pool.stream(method, url, headers=sent, content=content) as response,
            ):
                guarded.left += 2 * most  # twice, because chunks have frames
                yield HttpReply(target, response)


@contextmanager
def _mapped(target: WebAddress) -> Generator[None]:
    """Maps errors of the library to ours."""
    import httpcore2

    try:
        yield
    except httpcore2.RemoteProtocolError as error:
        what = str(error).partition(":")[0][:80]  # after the colon the library quotes the server
        raise WebError(f"{target.host} sends invalid HTTP: {what}") from None
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
    hint = "ask for a smaller page; the owner can raise tools.web.fetch.maxResponseBytes"
    return WebError(f"the answer is too large: {size}{most:,} bytes are read at most", hint=hint)
