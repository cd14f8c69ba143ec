"""GET /metrics for Prometheus, with the scope read, and the log of requests.

Most figures are counted as things happen (gateway/meter.py); the others are looked up on each request.

RequestLog counts and logs every request with its method, route, status, time and principal. Success is logged at level
debug. Refusals and failures are logged once a minute for each kind, with their number, so that nobody can flood the
log. URLs, headers and bodies are not logged, because they may hold secrets.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palinurus import __version__
from palinurus.dispatch.delivery import DeliveryCounts
from palinurus.domain.clock import Clock
from palinurus.gateway.http.app import RouteDoc, authenticate
from palinurus.gateway.meter import CONTENT_TYPE, Gauge, Meter, render_metrics
from palinurus.gateway.websocket.methods import GatewayContext
from palinurus.operations.services import Services

log = logging.getLogger(__name__)

PAGE = os.sysconf("SC_PAGE_SIZE")
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
CLOSED = {1008: "policy", 1013: "busy"}  # WebSocket codes of a refusal
GONE = 499  # the client disconnected before the answer


class Pulse(Protocol):
    """The state of the event loop, as the watchdog knows it."""

    @property
    def lag_seconds(self) -> float:
        """How long the loop took to answer the last time."""

    @property
    def slow(self) -> int:
        """Callbacks that blocked the loop for too long."""

    @property
    def late(self) -> int:
        """Rounds of the loop that took too long, because of one callback or many."""


class Gauges(Struct, frozen=True):
    """Sources of the figures that are looked up."""

    clients: Callable[[], int]  # connected by WebSocket
    standing: Callable[[], Awaitable[DeliveryCounts]]  # of the outbox
    pulse: Pulse
    extensions: Callable[[Services], Iterable[Gauge]] = lambda _: ()


def metrics_routes(gateway: GatewayContext, meter: Meter, gauges: Gauges) -> list[BaseRoute]:
    async def metrics(request: Request) -> Response:
        """The figures of this gateway in the text format of Prometheus."""
        authenticate(gateway, request, "read")
        await asyncio.to_thread(import_module, "prometheus_client")  # the first time it takes 0.1 s
        found = [*meter.metrics(), *_services(gateway, meter, gauges), *_process(), *await _outbox(gauges)]
        found += gauges.extensions(gateway.services)
        return Response(render_metrics(found), headers={"content-type": CONTENT_TYPE})

    return [Route("/metrics", metrics)]


ROUTE_DOCS = (RouteDoc("GET", "/metrics", "Figures in the text format of Prometheus.", "read", gives=("text/plain",)),)


def _services(gateway: GatewayContext, meter: Meter, gauges: Gauges) -> list[Gauge]:
    active = gateway.services.dispatcher.runs.active()
    queued = sum(run.waits for run in active)
    up = (gateway.services.clock.now_ms() - gateway.started_at) / 1000
    pulse = gauges.pulse
    return [
        Gauge("pal_info", "Which release this is.", {__version__: 1}, "version"),
        Gauge("pal_uptime_seconds", "Since the gateway started.", max(0.0, up)),
        Gauge("pal_runs_running", "Runs that are running.", len(active) - queued),
        Gauge("pal_runs_queued", "Runs that wait for their turn.", queued),
        Gauge("pal_approvals_pending", "Approvals that wait for a person.", meter.pending_approvals),
        Gauge("pal_websocket_clients", "Clients that are connected.", gauges.clients()),
        Gauge("pal_loop_lag_seconds", "How long the event loop took to answer lately.", pulse.lag_seconds),
        Gauge("pal_loop_slow_callbacks_total", "Callbacks that held the loop.", pulse.slow, counter=True),
        Gauge("pal_loop_late_total", "Rounds of the loop that took too long.", pulse.late, counter=True),
    ]


async def _outbox(gauges: Gauges) -> list[Gauge]:
    counts = await gauges.standing()
    states = {name: getattr(counts, name) for name in ("waiting", "sending", "ambiguous", "failed")}
    lost = sum(counts.uncarried.values())
    return [
        Gauge("pal_deliveries", "Deliveries that are not sent yet, or need a person.", states, "state"),
        Gauge("pal_deliveries_without_channel", "Deliveries whose channel has no sender now.", lost),
    ]


def _process() -> list[Gauge]:
    found = [Gauge("process_cpu_seconds_total", "Processor time used.", time.process_time(), counter=True)]
    with suppress(OSError):  # where the system has no /proc
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        found.append(Gauge("process_resident_memory_bytes", "Memory in use.", pages * PAGE))
    return found


class RequestLog:
    """Wraps the whole application. `stir` is called for each request: the watchdog then measures more often."""

    def __init__(self, app: ASGIApp, meter: Meter, clock: Clock, stir: Callable[[], None] = lambda: None) -> None:
        self._app = app
        self._meter = meter
        self._clock = clock
        self._stir = stir
        self._refusals = RefusalCounts(clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") not in ("GET", "HEAD"):  # health checks each second do not count
            self._stir()
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await self._app(scope, receive, lambda message: self._socket(message, send))

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
            self._log(scope, status, self._clock.now_ms() - began)

    def _log(self, scope: Scope, status: int, ms: int) -> None:
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
            log.info("%s %s: %d in %d ms by %s%s", method, route, status, ms, by, and_more(more))

    async def _socket(self, message: Message, send: Send) -> None:
        reason = ""
        if message["type"] == "websocket.http.response.start":  # refused before it was a WebSocket
            reason = REFUSED.get(message["status"], "other")
        elif message["type"] == "websocket.close":
            reason = CLOSED.get(message.get("code", 1000), "")
        if reason:
            self._meter.refusals.add("websocket", reason)
            if (more := self._refusals.count(f"websocket {reason}")) is not None:
                log.info("a WebSocket client was refused: %s%s", reason, and_more(more))
        await send(message)


class RefusalCounts:
    """Limits log lines to one a minute for each kind of refusal. There are few kinds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged: dict[str, tuple[int, int]] = {}  # kind -> when, and how many since then

    def count(self, kind: str) -> int | None:
        """How many of the kind were not logged before this one; None when this one need not be logged either."""
        now = self._clock.now_ms()
        logged, since = self._logged.get(kind, (-WINDOW_MS, 0))
        if 0 <= now - logged < WINDOW_MS:
            self._logged[kind] = logged, since + 1
            return None
        self._logged[kind] = now, 0
        return since


def and_more(count: int) -> str:
    return f", and {count:,} like it before" if count else ""
