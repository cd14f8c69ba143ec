"""uvicorn's connections, with limits on what an unknown client can make them hold or do.

Connections are closed that are too slow (headers, a body that nobody reads, blank lines, answers that are not read) and
those with endless headers, too many requests ahead of their answers, floods of pings, a large first frame, or bytes
that break a parser. The number of waiting connections is bounded; the oldest is closed first.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from asyncio.transports import BaseTransport
from collections import OrderedDict
from typing import Any

import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

from palinurus.gateway.protocol import MAX_FIRST_FRAME, Refused, problem

log = logging.getLogger(__name__)

HEADER_SECONDS = 15.0  # until the headers of a request are complete
READ_SECONDS = 30.0  # that a client may take to read its answer
CLOSE_SECONDS = 5.0  # that the end of a connection may take
MAX_HEAD = 64 * 1024  # of a request's line and headers
MAX_REQUEST = 64 * 1024 * 1024  # bytes on the wire: chunks, their extensions and trailers are more than the body
AHEAD = 16  # requests that wait behind one that is being answered
MOST_WAITING = 2_048  # connections without a request, or a third of the files that we may have open
FRAGMENTS = 4_096  # of one message
SLICE = 8_192  # bytes of frames that are parsed in one go
PINGS = 100  # within a second
LOG_SECONDS = 60.0
CYCLES = ("_read_ready_cb", "_write_ready")  # reference cycles of a transport; the second since Python 3.12


class WaitingConnections:
    """Connections without a request, or that do not read their answers. Beyond a number the oldest is dropped."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[HttpConnection, None] = OrderedDict()
        self._most = _most_waiting()
        self._logged: dict[str, float] = {}  # reason -> when

    def add(self, each: HttpConnection) -> None:
        self._waiting[each] = None
        self._waiting.move_to_end(each)
        while len(self._waiting) > self._most:
            oldest, _ = self._waiting.popitem(last=False)
            oldest.drop("too many connections without a request")

    def discard(self, each: HttpConnection) -> None:
        self._waiting.pop(each, None)

    def log_drop(self, why: str, now: float) -> None:
        """One line a minute for each reason, because clients decide how often it happens."""
        if now - self._logged.get(why, -LOG_SECONDS) >= LOG_SECONDS:
            self._logged[why] = now
            log.info("a connection was dropped: %s", why)


def _most_waiting() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_WAITING if files == resource.RLIM_INFINITY else max(1, min(MOST_WAITING, files // 3))


class ServerConfig(uvicorn.Config):
    """What all connections share."""

    def __init__(self, app: ASGIApp, **options: Any) -> None:
        super().__init__(app, **options)
        self.waiting = WaitingConnections()


class HttpConnection(HttpToolsProtocol):
    """HTTP with limits on time and size."""

    config: ServerConfig
    _deadline: asyncio.TimerHandle | None = None
    _in_head = False
    _size = 0  # of this request so far, about
    _refusal: Refused | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the class above
        super().connection_made(transport)
        self._start_timer(HEADER_SECONDS, "its headers did not arrive in time")

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)
        _break_cycles(self.transport)

    def data_received(self, data: bytes) -> None:
        self._size += len(data)
        if self._in_head and self._size > MAX_HEAD + len(data):
            self._refusal = _long_head()
            self.send_400_response("")
        elif self._size > MAX_REQUEST:
            self.drop("its request is too large")
        else:
            super().data_received(data)

    def on_message_begin(self) -> None:
        self._in_head, self._size = True, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers would join the headers that were checked
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._check()
        if not self.flow.write_paused:  # another request does not show that the answers are read
            self._stop_timer()
        super().on_headers_complete()

    def _check(self) -> None:
        """Raises Refused, upon which the parser stops."""
        busy = self.cycle is not None and not self.cycle.response_complete
        if not self.url.startswith(b"/"):  # http://other/ would name a host that is not checked
            self._refusal = Refused(400, "WRONG_TARGET", "the target of a request must be a path")
        elif len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD:
            self._refusal = _long_head()
        elif busy and (len(self.pipeline) >= AHEAD or self.parser.should_upgrade()):
            self._refusal = Refused(429, "BUSY", "too many requests ahead of their answers")
        if self._refusal is not None:
            raise self._refusal

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._start_timer(CLOSE_SECONDS, "it did not read its answer")
        elif self.cycle.response_complete:  # else the next one is being answered
            self._start_timer(HEADER_SECONDS, "its headers did not arrive in time")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_timer(READ_SECONDS, "it did not read its answer")

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_timer()
        if self.cycle is None or self.cycle.response_complete:
            self._start_timer(HEADER_SECONDS, "its headers did not arrive in time")

    def handle_websocket_upgrade(self) -> None:
        super().handle_websocket_upgrade()
        del self.parser  # a reference cycle with our methods

    def send_400_response(self, msg: str) -> None:
        """Answer what is not a valid request. uvicorn calls it whenever the parser stops."""
        refused = self._refusal or Refused(400, "INVALID_REQUEST", "this is not an HTTP request")
        self.config.waiting.log_drop(refused.message, self.loop.time())
        if not self.transport.is_closing():
            self.transport.write(_answer(refused))
            self.transport.close()
        self._start_timer(CLOSE_SECONDS, "it did not read its answer")

    def drop(self, why: str) -> None:
        self._stop_timer()
        self.config.waiting.log_drop(why, self.loop.time())
        self.transport.abort()

    def _start_timer(self, seconds: float, why: str) -> None:
        """Drop the connection after so long, whatever trickles in until then."""
        self._stop_timer()
        self._deadline = self.loop.call_later(seconds, self.drop, why)
        self.config.waiting.add(self)

    def _stop_timer(self) -> None:
        self.config.waiting.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _break_cycles(transport: BaseTransport) -> None:
    """Break the reference cycles of asyncio's transport when nothing calls them any more.

    There may be thousands of connections, and most are too old for the quick garbage collection (runtime/sweeping.py).
    """
    for name in CYCLES:
        vars(transport).pop(name, None)


def _long_head() -> Refused:
    return Refused(431, "TOO_LARGE", f"the headers are larger than {MAX_HEAD // 1024} KiB")


def _answer(refused: Refused) -> bytes:
    body = msgspec.json.encode(problem(refused))
    head = f"HTTP/1.1 {refused.status} Refused\r\ncontent-type: application/problem+json\r\ncontent-length: {len(body)}"
    return f"{head}\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\r\n".encode() + body


class SocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket whose first message must be small, and that can be dropped. It is in the state of the scope."""

    config: ServerConfig
    _known = False
    _second = 0.0
    _pings = 0

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self.conn.max_message_size = MAX_FIRST_FRAME

    def connection_lost(self, exc: Exception | None) -> None:
        """Breaks its reference cycles, so that it is freed now and not by the garbage collector."""
        super().connection_lost(exc)
        self.conn.parser.close()
        _break_cycles(self.transport)
        if scope := vars(self).get("scope"):  # a refused one has none
            scope["state"].pop("connection", None)

    def allow_frames(self, size: int) -> None:
        self.conn.max_message_size = size
        self._known = True

    def abort(self) -> None:
        if not self.disconnected:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            for start in range(0, len(data), SLICE):
                if self.transport.is_closing():
                    return
                super().data_received(data[start : start + SLICE])
        except (ValueError, AssertionError):  # headers or frames that break the parser
            self._drop("its frames are malformed")
        if not self.handshake_initiated:  # the request was complete, and the parser did not accept it
            self._drop("its handshake is malformed")

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["state"]["connection"] = self

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= FRAGMENTS:
            self._drop("its message has too many pieces")
            return
        super().handle_cont(event)

    def handle_ping(self) -> None:
        if self._may_ping():
            if self.writable.is_set():
                super().handle_ping()
            else:
                self.conn.data_to_send()  # a client that does not read gets no pongs

    def handle_pong(self, event: Frame) -> None:
        if self._may_ping():
            super().handle_pong(event)

    def _may_ping(self) -> bool:
        now = self.loop.time()
        if now - self._second >= 1.0:
            self._second, self._pings = now, 0
        self._pings += 1
        if self._pings > PINGS:
            self._drop("it sends too many pings")
        return self._pings <= PINGS

    def _drop(self, why: str) -> None:
        self.config.waiting.log_drop(why, self.loop.time())
        self.abort()

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.close" and not self.disconnected:
            # uvicorn would wait for ever until what was written is read.
            self.loop.call_later(CLOSE_SECONDS, self.abort)
            if not self._known:  # not waited for: many unknown clients would keep the others out
                self.transport.close()
