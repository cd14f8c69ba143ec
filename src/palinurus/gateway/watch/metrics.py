"""GET /metrics: how the gateway fares, for Prometheus. Needs a credential with the scope read.

Most figures are counted as things happen (metering.py); the rest is looked up when somebody asks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from palinurus import __version__
from palinurus.dispatch.delivery import Standing
from palinurus.gateway.http.app import who
from palinurus.gateway.http.documented import Documented
from palinurus.gateway.talk.desk import Desk
from palinurus.gateway.watch.exposition import CONTENT_TYPE, Family, Reading, rendered
from palinurus.gateway.watch.metering import Meter

PAGE = os.sysconf("SC_PAGE_SIZE")


class Pulse(Protocol):
    """How the event loop fares: what the watchdog knows."""

    @property
    def lag_seconds(self) -> float:
        """How long it took the loop to answer when it was last asked."""

    @property
    def slow(self) -> int:
        """Callbacks that held the loop for too long."""

    @property
    def late(self) -> int:
        """Rounds of the loop that took too long, whether one callback was to blame or many."""


class Gauges(Struct, frozen=True):
    """What is looked up when somebody asks."""

    clients: Callable[[], int]  # connected by WebSocket
    standing: Callable[[], Awaitable[Standing]] | None = None  # of the outbox
    pulse: Pulse | None = None


def metrics_routes(desk: Desk, meter: Meter, gauges: Gauges) -> list[BaseRoute]:
    async def metrics(request: Request) -> Response:
        """The figures of this gateway in the text format of Prometheus."""
        who(desk, request, "read")
        families = [*meter.families(), *_house(desk, meter, gauges), *_process(), *await _outbox(gauges)]
        return Response(rendered(families), headers={"content-type": CONTENT_TYPE})

    return [Route("/metrics", metrics, methods=["GET"])]


DOCUMENTED = (
    Documented("GET", "/metrics", "Figures in the text format of Prometheus.", "read", gives=("text/plain",)),
)


def _house(desk: Desk, meter: Meter, gauges: Gauges) -> list[Family]:
    active = desk.house.dispatcher.runs.active()
    queued = sum(run.waits for run in active)
    up = (desk.house.clock.now_ms() - desk.started_at) / 1000
    found: list[Family] = [
        Reading("pal_info", "Which release this is.", {__version__: 1}, "version"),
        Reading("pal_uptime_seconds", "Since the gateway started.", max(0.0, up)),
        Reading("pal_runs_running", "Runs whose turn goes on.", len(active) - queued),
        Reading("pal_runs_queued", "Runs that wait for their turn.", queued),
        Reading("pal_approvals_pending", "Questions that wait for a person.", meter.pending_approvals),
        Reading("pal_websocket_clients", "Clients that are connected.", gauges.clients()),
    ]
    if gauges.pulse is not None:
        pulse = gauges.pulse
        found += [
            Reading("pal_loop_lag_seconds", "How long the event loop took to answer lately.", pulse.lag_seconds),
            Reading("pal_loop_slow_callbacks_total", "Callbacks that held the loop.", pulse.slow, kind="counter"),
            Reading("pal_loop_late_total", "Rounds of the loop that took too long.", pulse.late, kind="counter"),
        ]
    return found


async def _outbox(gauges: Gauges) -> list[Family]:
    if gauges.standing is None:
        return []
    told = await gauges.standing()
    states = {name: getattr(told, name) for name in ("waiting", "sending", "ambiguous", "failed")}
    lost = sum(told.uncarried.values())
    return [
        Reading("pal_outbox_parcels", "Parcels that are not sent yet, or need a person.", states, "state"),
        Reading("pal_outbox_uncarried", "Parcels whose channel nobody carries now.", lost),
    ]


def _process() -> list[Family]:
    found: list[Family] = [
        Reading("process_cpu_seconds_total", "Processor time used.", time.process_time(), kind="counter")
    ]
    if (memory := _resident()) is not None:
        found.append(Reading("process_resident_memory_bytes", "Memory in use.", memory))
    return found


def _resident() -> int | None:
    """None where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE
    except OSError:
        return None
