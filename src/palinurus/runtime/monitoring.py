"""Monitoring of a gateway: metrics, the watchdog of the event loop, and traces for a collector."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from palinurus.config.load import LoadedConfig
from palinurus.dispatch.runs import Run
from palinurus.domain.events import Lifecycle, RunEvent
from palinurus.gateway.metrics.meter import Meter
from palinurus.gateway.metrics.routes import Gauges, RequestLog, metrics_routes
from palinurus.gateway.websocket.methods import GatewayContext
from palinurus.operations.services import Services
from palinurus.runtime.telemetry import open_telemetry
from palinurus.runtime.watchdog import Watchdog


class GatewayMonitoring:
    """Made on the event loop that it watches."""

    def __init__(self, services: Services, loaded: LoadedConfig, env: Mapping[str, str]) -> None:
        self._clock = services.clock
        self.meter = Meter(services.clock)
        self.watchdog = Watchdog(asyncio.get_running_loop())
        self._telemetry = open_telemetry(loaded, env)
        if self._telemetry is not None:
            services.traces.listeners.append(self._telemetry)
        services.dispatcher.runs.listen(self._hear)

    def routes(self, context: GatewayContext, clients: Callable[[], int]) -> list[BaseRoute]:
        return metrics_routes(context, self.meter, Gauges(clients, context.services.deliveries.counts, self.watchdog))

    def around(self, app: ASGIApp) -> ASGIApp:
        return RequestLog(app, self.meter, self._clock, self.watchdog.stir)

    def start(self) -> None:
        self.watchdog.start()

    async def close(self) -> None:
        self.watchdog.stop()
        if self._telemetry is not None:
            await self._telemetry.close()

    def _hear(self, run: Run, event: RunEvent) -> None:
        if isinstance(event, Lifecycle):
            self.watchdog.stir()
        self.meter(run, event)
