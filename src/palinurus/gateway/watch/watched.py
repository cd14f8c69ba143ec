"""Every request as it ends: counted, and written to the log with its method, status, time and whose it was.

What went well is told at level debug. What was refused or failed is told once a minute for each kind, with how many
there were: whoever knocks ten thousand times gets a line, not a log. Of a request nothing but its route is written
down: addresses, headers and bodies may hold secrets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palinurus.domain.clock import Clock
from palinurus.gateway.watch.metering import Meter

log = logging.getLogger(__name__)

WINDOW_MS = 60_000
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
REFUSED = {
    400: "bad-request",
    401: "unauthorized",
    403: "forbidden",
    408: "timeout",
    413: "too-large",
    415: "wrong-type",
    421: "wrong-host",
    429: "rate-limited",
}
CLOSED = {1008: "policy", 1013: "busy"}  # WebSocket codes by which a client is turned away
GONE = 499  # it left before it was answered


class Watched:
    """Around the whole application. `stir` is told that there is something to do: the watchdog looks closer then."""

    def __init__(self, app: ASGIApp, meter: Meter, clock: Clock, stir: Callable[[], None] = lambda: None) -> None:
        self._app = app
        self._meter = meter
        self._clock = clock
        self._stir = stir
        self._refusals = Refusals(clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") not in ("GET", "HEAD"):  # whoever asks for our health each second does not wake us
            self._stir()
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._app(scope, receive, lambda message: self._socket(message, send))
        else:
            await self._app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = self._clock.now_ms(), GONE

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, answer)
        except Exception:
            status = 500 if status == GONE else status
            raise
        finally:
            self._tell(scope, status, self._clock.now_ms() - began)

    def _tell(self, scope: Scope, status: int, ms: int) -> None:
        method = scope["method"] if scope["method"] in METHODS else "other"
        route = getattr(scope.get("route"), "path", "none")
        by = scope.get("principal", "nobody")
        self._meter.requests.add(method, route, str(status))
        self._meter.request_seconds.observe(max(0, ms) / 1000, route)
        if status in REFUSED:
            self._meter.refusals.add("http", REFUSED[status])
        if status < 400 or status == GONE:
            log.debug("%s %s: %d in %d ms by %s", method, route, status, ms, by)
        elif (more := self._refusals.count(str(status))) is not None:
            log.info("%s %s: %d in %d ms by %s%s", method, route, status, ms, by, _and_more(more))

    async def _socket(self, message: Message, send: Send) -> None:
        reason = ""
        if message["type"] == "websocket.http.response.start":  # refused before it was a WebSocket
            reason = REFUSED.get(message["status"], "other")
        elif message["type"] == "websocket.close":
            reason = CLOSED.get(message.get("code", 1000), "")
        if reason:
            self._meter.refusals.add("websocket", reason)
            if (more := self._refusals.count(f"websocket {reason}")) is not None:
                log.info("a WebSocket client was turned away: %s%s", reason, _and_more(more))
        await send(message)


class Refusals:
    """Which kinds of refusal were told of late. Kinds are few."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: dict[str, int] = {}  # kind -> when
        self._since: dict[str, int] = {}  # kind -> how many since then

    def count(self, kind: str) -> int | None:
        """How many of the kind were not told before this one; None when this one need not be told either."""
        now = self._clock.now_ms()
        told = self._told.get(kind)
        if told is not None and 0 <= now - told < WINDOW_MS:
            self._since[kind] = self._since.get(kind, 0) + 1
            return None
        self._told[kind] = now
        return self._since.pop(kind, 0)


def _and_more(count: int) -> str:
    return f", and {count:,} like it before" if count else ""
