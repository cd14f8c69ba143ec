"""A model server behind a base URL: one request out, one streamed reply back, typed failures.

One client is kept open, so that the second call needs no handshake. Nothing is retried here: a failure is told at once
and by its type, and failover decides. The import of httpx2 waits for the first call, because most commands make none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from palinurus.domain.clock import Clock
from palinurus.domain.errors import ConfigError, Failure, ProviderError
from palinurus.providers.provider import ModelRef, Notice, ReplyDone, ReplyEvent, ReplyFailed
from palinurus.providers.wires.failures import Call, failure, failure_of, failure_of_exception
from palinurus.providers.wires.reply import MAX_CALLS, MAX_HELD, Gatherer, as_message, bounded
from palinurus.providers.wires.sse import BodyParser, EventTooLong, parser_for

if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 120.0
TRAILER_SECONDS = 0.25  # after the last event: time for the end of the body, without which no connection is reused
MAX_REPLY_BYTES = 64 * 1024 * 1024  # a long reply in small pieces is mostly wrapping
MAX_EMPTY_BYTES = 4 * 1024 * 1024  # in which nothing is said
MAX_ERROR_BYTES = 64 * 1024
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")


class Post(Struct, frozen=True):
    """One request: what to send where below the base URL, and who reads the answer."""

    model: str
    path: str
    body: bytes
    gatherer: Callable[[Call], Gatherer]


class ModelServer:
    """Streams replies from one base URL. `key` is never shown; `headers` carry it where the wire wants it.

    Raises ConfigError for a base URL that is none.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        key: str,
        headers: Mapping[str, str],
        clock: Clock,
        idle_timeout: float = IDLE_SECONDS,
    ) -> None:
        self._name = name
        self._base_url = base_url.rstrip("/")
        self.address = _checked(name, self._base_url)
        self._key = key
        self._headers = headers
        self._clock = clock
        self._idle_timeout = idle_timeout
        self._client: httpx2.AsyncClient | None = None

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def stream(self, post: Post, *, wire: str) -> AsyncGenerator[ReplyEvent]:
        """The events of one reply. Raises nothing but cancellation, as Provider promises."""
        call = Call(
            who=str(ModelRef(self._name, post.model)),
            where=f"{self.address.scheme}://{self.address.netloc.rpartition('@')[2]}",
            secret=self._key,
            now_ms=self._clock.now_ms(),
        )
        reply = post.gatherer(call)
        last: ReplyEvent
        try:
            async with aclosing(self._deltas(post, reply, call)) as deltas:
                async for delta in deltas:
                    yield delta
            now_ms = self._clock.now_ms()
            whole, left_out = bounded(reply.finish(now_ms=now_ms))
            if left_out:
                yield Notice(left_out)
            last = ReplyDone(as_message(whole, provider=self._name, model=post.model, wire=wire, now_ms=now_ms))
        except ProviderError as error:
            last = ReplyFailed(error, reply.text)
        yield last

    async def _deltas(self, post: Post, reply: Gatherer, call: Call) -> AsyncGenerator[ReplyEvent]:
        """What arrives, as it arrives; raises ProviderError for what goes wrong on the way."""
        import httpx2

        self._check_key(call)
        began = False
        try:
            async with self._open().stream("POST", f"{self._base_url}{post.path}", content=post.body) as response:
                if response.status_code != 200:
                    raise failure_of(response.status_code, await _error_text(response), response.headers, call)
                async with aclosing(_payloads(response, reply, call)) as payloads:
                    async for payload in payloads:
                        began = True
                        for event in reply.add(payload):
                            yield event
                        if reply.held > MAX_HELD or reply.calls > MAX_CALLS:
                            reply.cut()  # the connection goes with it: it would go on for ever
                            return
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise failure_of_exception(error, call, began=began) from None

    def _check_key(self, call: Call) -> None:
        # Anything else would break the header, and the library's own message about that quotes the header.
        if not (self._key.isascii() and (self._key.isprintable() or not self._key)):
            raise failure(call, Failure.AUTH, "the key holds characters that no key has", hint="paste the key again")

    def _open(self) -> httpx2.AsyncClient:
        import httpx2

        if self._client is None:
            loopback = self.address.hostname in LOOPBACK_HOSTS
            self._client = httpx2.AsyncClient(
                headers={
                    "Content-Type": "application/json",
                    "Accept": "text/event-stream",
                    "Accept-Encoding": "identity",  # a compressed stream arrives in lumps
                    **self._headers,
                },
                timeout=httpx2.Timeout(self._idle_timeout, connect=CONNECT_SECONDS),
                trust_env=not loopback,  # a proxy cannot reach our loopback
                verify=self.address.scheme != "http",  # loading the certificates costs 0.2 s
            )
        return self._client


def _checked(name: str, base_url: str) -> SplitResult:
    try:
        address = urlsplit(base_url)
        whole = address.scheme in ("http", "https") and address.hostname and address.port != 0
    except ValueError:  # a port beyond 65535, half an IPv6 address
        whole = False
    if not whole or " " in base_url:
        shown = base_url.rpartition("@")[2]  # what stands before it may be a password
        raise ConfigError(
            f"the base URL of the provider {name} is no address: {shown!r}",
            hint="for example http://127.0.0.1:11434/v1",
        )
    return address


async def _payloads(response: httpx2.Response, reply: Gatherer, call: Call) -> AsyncGenerator[bytes]:
    """Whole payloads of the body, to its clean end."""
    parser: BodyParser | None = None
    start = b""
    size = said_at = held = 0
    body = response.aiter_bytes()
    try:
        async for data in body:
            size += len(data)
            if reply.held > held:
                said_at, held = size, reply.held
            if size > MAX_REPLY_BYTES or size - said_at > MAX_EMPTY_BYTES:
                raise failure(call, Failure.MALFORMED, f"the answer is longer than {size:,} bytes and does not end")
            if parser is None:
                start += data
                if not start.strip():
                    continue
                parser, data = parser_for(start), start  # noqa: PLW2901  what was held back goes first
            for payload in parser.feed(data):
                yield payload
            if reply.done:
                await _read_trailer(body)
                return
        for payload in parser.close() if parser else []:
            yield payload
    except EventTooLong as error:
        raise failure(call, Failure.MALFORMED, str(error)) from None


async def _read_trailer(body: AsyncIterator[bytes]) -> None:
    import httpx2

    # The server has said that this was all: whatever happens now costs the connection, not the reply.
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(TRAILER_SECONDS):
            async for _ in body:
                pass


async def _error_text(response: httpx2.Response) -> str:
    body = b""
    async for data in response.aiter_bytes():
        body += data
        if len(body) > MAX_ERROR_BYTES:
            break
    return body[:MAX_ERROR_BYTES].decode("utf-8", "replace")
