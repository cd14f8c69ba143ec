"""What watches a gateway, joined: figures, the watchdog over the event loop, and traces for a collector."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from palinurus.config.load import Loaded
from palinurus.dispatch.runs import Run
from palinurus.domain.events import Lifecycle, RunEvent
from palinurus.gateway.talk.desk import Desk
from palinurus.gateway.watch.metering import Meter
from palinurus.gateway.watch.metrics import Gauges, metrics_routes
from palinurus.gateway.watch.watched import Watched
from palinurus.operations.house import House
from palinurus.wiring.telemetry import open_telemetry
from palinurus.wiring.watchdog import Watchdog


class Watching:
    """Made on the event loop that it watches."""

    def __init__(self, house: House, loaded: Loaded, env: Mapping[str, str]) -> None:
        self._clock = house.clock
        self.meter = Meter(house.clock)
        self.watchdog = Watchdog(asyncio.get_running_loop())
        self._telemetry = open_telemetry(loaded, env)
        if self._telemetry is not None:
            house.traces.told.append(self._telemetry)
        house.dispatcher.runs.listen(self._hear)

    def routes(self, desk: Desk, clients: Callable[[], int]) -> list[BaseRoute]:
        return metrics_routes(desk, self.meter, Gauges(clients, desk.house.deliveries.standing, self.watchdog))

    def around(self, app: ASGIApp) -> ASGIApp:
        return Watched(app, self.meter, self._clock, self.watchdog.stir)

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
