"""Connections of the gateway: uvicorn's, with limits on what a stranger can make them hold or do.

Closed here are connections that drip (headers, a body that nobody reads, blank lines, answers that are not fetched),
heads without end, many requests ahead of their answers, floods of pings, a first frame as large as any later one, and
bytes that break a parser. Of connections that wait only so many are kept, the oldest going first.
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

from palinurus.gateway.door.guard import Refused
from palinurus.gateway.door.refusals import problem
from palinurus.gateway.frames.protocol import MAX_FIRST_FRAME

log = logging.getLogger(__name__)

HEADER_SECONDS = 15.0  # that a connection may go on without a request whose headers are complete
READ_SECONDS = 30.0  # that a client may take to fetch what waits for it
CLOSE_SECONDS = 5.0  # that the end of a connection may take
MAX_HEAD = 64 * 1024  # of a request's line and headers
MAX_REQUEST = 64 * 1024 * 1024  # bytes on the wire: chunks, their extensions and trailers are more than the body
AHEAD = 16  # requests that wait behind one that is being answered
MOST_WAITING = 2_048  # connections without a request, or a third of the files that we may have open
FRAGMENTS = 4_096  # of one message
SLICE = 8_192  # bytes of frames that are parsed in one go
PINGS = 100  # within a second
TELL_SECONDS = 60.0
CIRCLES = ("_read_ready_cb", "_write_ready")  # of a transport: the second one since Python 3.12


class Crowd:
    """Connections that ask for nothing or do not fetch their answers. Beyond a number the oldest is dropped."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Http, None] = OrderedDict()
        self._most = _most_waiting()
        self._told: dict[str, float] = {}

    def add(self, each: Http) -> None:
        self._waiting[each] = None
        self._waiting.move_to_end(each)
        while len(self._waiting) > self._most:
            oldest, _ = self._waiting.popitem(last=False)
            oldest.drop("too many connections wait for nothing")

    def discard(self, each: Http) -> None:
        self._waiting.pop(each, None)

    def tell(self, why: str, now: float) -> None:
        """One line a minute for each reason: strangers decide how often there is one."""
        if now - self._told.get(why, -TELL_SECONDS) >= TELL_SECONDS:
            self._told[why] = now
            log.info("a connection was dropped: %s", why)


def _most_waiting() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_WAITING if files == resource.RLIM_INFINITY else max(1, min(MOST_WAITING, files // 3))


class Config(uvicorn.Config):
    """What all connections share."""

    def __init__(self, app: ASGIApp, **options: Any) -> None:
        super().__init__(app, **options)
        self.crowd = Crowd()


class Http(HttpToolsProtocol):
    """HTTP with limits on time and size."""

    config: Config
    _deadline: asyncio.TimerHandle | None = None
    _in_head = False
    _size = 0  # of this request so far, about
    _refusal: Refused | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the class above
        super().connection_made(transport)
        self._wait(HEADER_SECONDS, "its headers did not come in time")

    def connection_lost(self, exc: Exception | None) -> None:
        self._go_on()
        super().connection_lost(exc)
        _let_go(self.transport)

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
        if self._in_head:  # what comes behind the body would join the headers that were checked
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._check()
        if not self.flow.write_paused:  # another question is no sign that the answers are fetched
            self._go_on()
        super().on_headers_complete()

    def _check(self) -> None:
        """Raises what the parser makes a refusal of."""
        busy = self.cycle is not None and not self.cycle.response_complete
        if not self.url.startswith(b"/"):  # http://elsewhere/ would name a host beside the one that we check
            self._refusal = Refused(400, "WRONG_TARGET", "the target of a request is a path")
        elif len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD:
            self._refusal = _long_head()
        elif busy and (len(self.pipeline) >= AHEAD or self.parser.should_upgrade()):
            self._refusal = Refused(429, "BUSY", "too many requests ahead of their answers")
        if self._refusal is not None:
            raise self._refusal

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._wait(CLOSE_SECONDS, "it did not fetch its answer")
        elif self.cycle.response_complete:  # else the next one is being answered
            self._wait(HEADER_SECONDS, "its headers did not come in time")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait(READ_SECONDS, "it did not fetch its answer")

    def resume_writing(self) -> None:
        super().resume_writing()
        self._go_on()
        if self.cycle is None or self.cycle.response_complete:
            self._wait(HEADER_SECONDS, "its headers did not come in time")

    def handle_websocket_upgrade(self) -> None:
        super().handle_websocket_upgrade()
        del self.parser  # it knows our methods and we know it: without this circle both go at once

    def send_400_response(self, msg: str) -> None:
        """The answer to what is no request. uvicorn calls it for whatever stops the parser."""
        refused = self._refusal or Refused(400, "INVALID_REQUEST", "this is no HTTP request")
        self.config.crowd.tell(refused.message, self.loop.time())
        if not self.transport.is_closing():
            self.transport.write(_answer(refused))
            self.transport.close()
        self._wait(CLOSE_SECONDS, "it did not fetch its answer")

    def drop(self, why: str) -> None:
        self._go_on()
        self.config.crowd.tell(why, self.loop.time())
        self.transport.abort()

    def _wait(self, seconds: float, why: str) -> None:
        """From now on only so long; what trickles in changes nothing about that."""
        self._go_on()
        self._deadline = self.loop.call_later(seconds, self.drop, why)
        self.config.crowd.add(self)

    def _go_on(self) -> None:
        self.config.crowd.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _let_go(transport: BaseTransport) -> None:
    """asyncio's transport keeps methods of its own, and is a circle by that: cleared when nothing calls them any more.

    Clients come and go by the thousand, and most have lived long enough to be put aside (wiring/sweeping.py).
    """
    for kept in CIRCLES:
        vars(transport).pop(kept, None)


def _long_head() -> Refused:
    return Refused(431, "TOO_LARGE", f"the headers are larger than {MAX_HEAD // 1024} KiB")


def _answer(refused: Refused) -> bytes:
    status, told = problem(refused)
    body = msgspec.json.encode(told)
    head = f"HTTP/1.1 {status} Refused\r\ncontent-type: application/problem+json\r\nx-content-type-options: nosniff\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body


class Connection(WebSocketsSansIOProtocol):
    """A WebSocket whose first message is small, and that can be dropped. The app finds it in the scope's state."""

    config: Config
    _admitted = False
    _second = 0.0
    _pings = 0

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self.conn.max_message_size = MAX_FIRST_FRAME

    def connection_lost(self, exc: Exception | None) -> None:
        """The circles in which it stands are opened, so that it goes now and does not wait for the collector."""
        super().connection_lost(exc)
        self.conn.parser.close()
        _let_go(self.transport)
        if scope := vars(self).get("scope"):  # one that was refused has none
            scope["state"].pop("connection", None)

    def admit(self, size: int) -> None:
        self.conn.max_message_size = size
        self._admitted = True

    def abort(self) -> None:
        if not self.disconnected:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            for start in range(0, len(data), SLICE):
                if self.transport.is_closing():
                    return
                super().data_received(data[start : start + SLICE])
        except (ValueError, AssertionError):  # headers or frames that break the parser: nobody to answer
            self._drop("its frames make no sense")
        if not self.handshake_initiated:  # the whole request was there, and the parser wants nothing more of it
            self._drop("its handshake makes no sense")

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
                self.conn.data_to_send()  # who does not read gets no answers to pings

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
        self.config.crowd.tell(why, self.loop.time())
        self.abort()

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.close" and not self.disconnected:
            # uvicorn would wait for ever until what was written is read.
            self.loop.call_later(CLOSE_SECONDS, self.abort)
            if not self._admitted:  # a stranger is not waited for at all: many of them would keep all others out
                self.transport.close()
