"""A model server behind a base URL: one request, one streamed reply, typed failures.

The client stays open, so that the second call needs no handshake. Nothing is retried here: failover decides. httpx2 is
imported with the first call, because most commands make none. The parser of server-sent events takes bytes in any
chunks: line ends may be LF, CRLF or CR, comments and fields other than `data` are skipped, several `data` lines make
one payload, and nothing grows beyond `MAX_EVENT_BYTES`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct, structs

from palinurus.domain.clock import Clock
from palinurus.domain.errors import ConfigError, Failure, ProviderError
from palinurus.providers.provider import LOOPBACK_HOSTS, ModelRequest, ReplyDone, ReplyEvent, ReplyFailed, ReplyNotice
from palinurus.providers.wires.failures import Call, failure, failure_of, failure_of_exception
from palinurus.providers.wires.reply import MAX_CALLS, MAX_HELD, Gatherer, bounded

if TYPE_CHECKING:
    import httpx2

MAX_EVENT_BYTES = 8 * 1024 * 1024


class EventTooLong(ValueError):
    """One event exceeds the limit."""


class SseParser:
    """Payloads of the `data` fields. Raises EventTooLong and nothing else."""

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []  # of an unfinished line; joined once, so long lines cost linear time
        self._size = 0  # of the unfinished line and event together
        self._data: list[bytes] = []  # the data lines of an unfinished event
        self._data_size = 0
        self._held_cr = False  # a CR at the very end may be half of a CRLF
        self._at_start = True

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads that these bytes complete, in order; often none."""
        data = self._with_one_line_end(data)
        if b"\n" not in data:
            if data:
                self._pieces.append(data)
                self._grow(len(data))
            return []
        head, *rest = data.split(b"\n")
        lines = [b"".join([*self._pieces, head]), *rest]
        unfinished = lines.pop()
        self._pieces = [unfinished] if unfinished else []
        payloads = self._read(lines)
        self._size = len(unfinished) + self._data_size
        self._grow(0)
        return payloads

    def close(self) -> list[bytes]:
        """The rest. A last event without its blank line still counts: many servers end like that after `[DONE]`."""
        self._held_cr = False
        line = b"".join(self._pieces)
        self._pieces = []
        return self._read([line, b""])

    def _with_one_line_end(self, data: bytes) -> bytes:
        if self._held_cr:
            data, self._held_cr = b"\r" + data, False
        if b"\r" not in data:
            return data
        if data.endswith(b"\r"):
            data, self._held_cr = data[:-1], True
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _read(self, lines: list[bytes]) -> list[bytes]:
        payloads: list[bytes] = []
        if self._at_start and lines:
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
            self._at_start = False
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
                self._data_size += len(self._data[-1])
            elif not line and self._data:
                payloads.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data, self._data_size = [], 0
        return payloads

    def _grow(self, by: int) -> None:
        self._size += by
        if self._size > self._limit:
            raise EventTooLong(f"an event is longer than {self._limit:,} bytes")


class WholeBody:
    """Like SseParser, with one payload: the body itself. For servers that answer with plain JSON."""

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._body = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        self._body += data
        if len(self._body) > self._limit:
            raise EventTooLong(f"the answer is longer than {self._limit:,} bytes")
        return []

    def close(self) -> list[bytes]:
        return [bytes(self._body)]


def parser_for(first_bytes: bytes) -> SseParser | WholeBody:
    """Chooses by the first bytes, because Content-Type is often wrong. No event stream starts with a bracket."""
    return WholeBody() if first_bytes.lstrip().startswith((b"{", b"[")) else SseParser()


UNKNOWN_WINDOW = 32_000
CONNECT_SECONDS = 10.0
IDLE_SECONDS = 120.0
TRAILER_SECONDS = 0.25  # after the last event: time to read the end of the body, so that the connection can be reused
MAX_REPLY_BYTES = 64 * 1024 * 1024  # a long reply in small pieces is mostly overhead
MAX_EMPTY_BYTES = 4 * 1024 * 1024  # without content
MAX_ERROR_BYTES = 64 * 1024


class Post(Struct, frozen=True):
    """One request: the body, the path below the base URL, and the parser of the answer."""

    path: str
    body: bytes
    gatherer: Callable[[Call], Gatherer]


class WireProvider:
    """Implements Provider for one base URL. Each wire defines the request and the parser of the answer.

    `windows` maps models to context windows; `*` stands for all others. Raises ConfigError for an invalid base URL.
    """

    wire: str  # of each class
    family: tuple[str, ...] = ()  # how the names of models begin that have `family_window`
    family_window = UNKNOWN_WINDOW
    key_header, key_prefix = "Authorization", "Bearer "

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str | None,
        *,
        windows: Mapping[str, int],
        clock: Clock,
        headers: Mapping[str, str] | None = None,
        idle_timeout: float = IDLE_SECONDS,
    ) -> None:
        self.name = name
        self._windows = windows
        self._base_url = base_url.rstrip("/")
        self.address = checked_address(name, self._base_url)
        self._key = (api_key or "").strip()  # never shown; sent in the header that the wire uses
        self._headers = self.headers(self._key) | dict(headers or {})
        self._clock = clock
        self._idle_timeout = idle_timeout
        self._client: httpx2.AsyncClient | None = None

    def headers(self, key: str) -> dict[str, str]:
        return {self.key_header: self.key_prefix + key} if key else {}

    def post(self, request: ModelRequest) -> Post:
        raise NotImplementedError

    def context_window(self, model: str) -> int:
        usual = self.family_window if model.startswith(self.family) else UNKNOWN_WINDOW
        return self._windows.get(model) or self._windows.get("*") or usual

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ReplyEvent]:
        """The events of one reply. Raises nothing but cancellation, as Provider requires."""
        post = self.post(request)
        where = f"{self.address.scheme}://{self.address.netloc.rpartition('@')[2]}"
        call = Call(f"{self.name}/{request.model}", where, self._key, self._clock.now_ms())
        reply = post.gatherer(call)
        last: ReplyEvent
        try:
            async with aclosing(self._deltas(post, reply, call)) as deltas:
                async for delta in deltas:
                    yield delta
            whole, left_out = bounded(reply.finish(now_ms=self._clock.now_ms()))
            if left_out:
                yield ReplyNotice(left_out)
            last = ReplyDone(structs.replace(whole, provider=self.name, model=request.model, api=self.wire))
        except ProviderError as error:
            last = ReplyFailed(error, reply.text)
        yield last

    async def _deltas(self, post: Post, reply: Gatherer, call: Call) -> AsyncGenerator[ReplyEvent]:
        """Yields events as they arrive; raises ProviderError on failure."""
        import httpx2

        # Other characters would break the header, and the library's error message quotes the header.
        if not (self._key.isascii() and (self._key.isprintable() or not self._key)):
            raise failure(call, Failure.AUTH, "the key contains characters that no key has", hint="paste the key again")
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
                            reply.cut()  # closing the connection too: the server would continue forever
                            return
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise failure_of_exception(error, call, began=began) from None

    def _open(self) -> httpx2.AsyncClient:
        import httpx2

        if self._client is None:
            self._client = httpx2.AsyncClient(
                headers={
                    "Content-Type": "application/json",
                    "Accept": "text/event-stream",
                    "Accept-Encoding": "identity",  # a compressed stream arrives in large pieces
                    **self._headers,
                },
                timeout=httpx2.Timeout(self._idle_timeout, connect=CONNECT_SECONDS),
                trust_env=self.address.hostname not in LOOPBACK_HOSTS,  # a proxy cannot reach our loopback
                verify=self.address.scheme != "http",  # loading the certificates costs 0.2 s
            )
        return self._client


def checked_address(name: str, base_url: str) -> SplitResult:
    try:
        address = urlsplit(base_url)
        whole = address.scheme in ("http", "https") and address.hostname and address.port != 0
    except ValueError:  # a port beyond 65535, half an IPv6 address
        whole = False
    if not whole or " " in base_url:
        shown = base_url.rpartition("@")[2]  # the part before it may be a password
        said = f"the base URL of the provider {name} is not an address: {shown!r}"
        raise ConfigError(said, hint="for example http://127.0.0.1:11434/v1")
    return address


async def _payloads(response: httpx2.Response, reply: Gatherer, call: Call) -> AsyncGenerator[bytes]:
    """Complete payloads of the body, to its clean end."""
    parser: SseParser | WholeBody | None = None
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

    # The server has sent the final event: a later failure costs the connection, not the reply.
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
