"""The gateway, joined: a runtime that holds the home, the guard, the methods and routes, and a port to listen on.

Extensions bring further routes; methods are in gateway/openclaw.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec
from msgspec import Struct
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from palinurus import __version__
from palinurus.config.atomic import write_atomic
from palinurus.config.load import LoadedConfig
from palinurus.dispatch.runs import Run
from palinurus.domain.clock import random_id
from palinurus.domain.errors import BadRequest, ConfigError, StorageError
from palinurus.domain.events import Lifecycle, RunEvent
from palinurus.gateway.auth.devices import ConnectAuthenticator
from palinurus.gateway.auth.guard import Guard, server_address
from palinurus.gateway.http import invoke, metrics
from palinurus.gateway.http.app import RouteProvider, Stage, health_routes, make_app, reading_routes
from palinurus.gateway.http.server import EVERYWHERE, HttpServer, LanCertificate, TlsListener, machine_names
from palinurus.gateway.hub import Hub, Publisher
from palinurus.gateway.meter import Meter
from palinurus.gateway.openclaw import METHODS
from palinurus.gateway.settings import GatewaySettings
from palinurus.gateway.websocket.methods import Endpoints, GatewayContext, Methods
from palinurus.gateway.websocket.socket import EVENTS, Sockets
from palinurus.operations.scopes import SCOPES, Scope
from palinurus.operations.services import DashboardLink, GatewayState, Services
from palinurus.runtime.extensions import LOADED
from palinurus.runtime.runtime import Runtime
from palinurus.runtime.secret import SHORT, OwnerSecret
from palinurus.runtime.table import TABLE
from palinurus.runtime.telemetry import open_telemetry
from palinurus.runtime.watchdog import Watchdog

log = logging.getLogger(__name__)

STATE_FILE = "gateway.json"
LOOK_SECONDS = 1.0  # how soon a secret that was changed on the disk closes those who only listen
FLUSH_LOOKS = 60
RENEW_LOOKS = 3600
STOP_SECONDS = 10.0  # that runs may take to stop when they are told to


class RunningGateway(Struct, frozen=True, rename="camel"):
    """What `gateway.json` in the home says, for people and scripts. The unix socket knows better who is alive."""

    pid: int
    url: str
    started_at: int
    version: str = __version__


class GatewayMonitoring:
    """Metrics, the watchdog of the event loop, and traces for a collector. Made on the loop that it watches."""

    def __init__(self, services: Services, loaded: LoadedConfig, env: Mapping[str, str]) -> None:
        self._clock = services.clock
        self.meter = Meter(services.clock)
        self.watchdog = Watchdog(asyncio.get_running_loop())
        self._telemetry = open_telemetry(loaded, env)
        if self._telemetry is not None:
            services.traces.listeners.append(self._telemetry)
        services.dispatcher.runs.listen(self._hear)

    def routes(self, context: GatewayContext, clients: Callable[[], int]) -> list[BaseRoute]:
        counts = context.services.deliveries.counts
        gauges = metrics.Gauges(clients, counts, self.watchdog, LOADED.find_gauges)
        return metrics.metrics_routes(context, self.meter, gauges)

    def around(self, app: ASGIApp) -> ASGIApp:
        return metrics.RequestLog(app, self.meter, self._clock, self.watchdog.stir)

    async def close(self) -> None:
        self.watchdog.stop()
        if self._telemetry is not None:
            await self._telemetry.close()

    def _hear(self, run: Run, event: RunEvent) -> None:
        if isinstance(event, Lifecycle):
            self.watchdog.stir()
        self.meter(run, event)


class Gateway:
    def __init__(self, runtime: Runtime, settings: GatewaySettings) -> None:
        """Raises ConfigError for what must not be started: no secret, one that can be guessed, a port that is taken."""
        self.settings = settings
        self._runtime = runtime
        self._services = services = runtime.services
        self._state_file = services.home.root / STATE_FILE
        self._stage: Stage = "starting"
        self._leave = asyncio.Event()
        self._hurry = asyncio.Event()
        secret = OwnerSecret(self._config, services.env, services.home.root, settings.mode)
        self.token_from = "nowhere: no credential is needed" if settings.mode == "none" else secret.prepare()
        _check_length(secret, settings)
        self._register, clock = services.access, services.clock
        self._guard = Guard(self._register, server_address(0), secret, clock, no_auth=settings.mode == "none")
        hub = Hub()
        self._context = GatewayContext(
            services=self._services,
            guard=self._guard,
            hub=hub,
            new_id=random_id,
            endpoints=Endpoints(
                settings.chat_completions,
                settings.responses,
                settings.messages,
                settings.invoke_allow,
                settings.invoke_deny,
            ),
            started_at=clock.now_ms(),
        )
        methods = Methods(METHODS, TABLE)
        self._sockets = Sockets(self._context, methods, ConnectAuthenticator(self._guard, hub, clock, random_id))
        self._watching = GatewayMonitoring(self._services, runtime.agents.loaded, services.env)
        services.database.on_commit = self._watching.meter.committed
        app = self._watching.around(make_app(self._context, self._sockets, self._routes(methods)))
        self._lan = LanCertificate(services.home.root, clock) if settings.lan else None
        secure = None
        if self._lan is not None:
            self._lan.renew()
            secure = TlsListener(EVERYWHERE, settings.secure_port, self._lan.context)
        self._listening = HttpServer(app, settings.hosts, settings.port, secure)
        self._guard.address = server_address(
            self._listening.port,
            settings.names,
            settings.origins,
            any_address=not settings.plain_is_near,
            secure_port=self._listening.secure_port,
            secure_hosts=(*settings.names, *machine_names()),
        )
        self._services.dispatcher.runs.listen(Publisher(hub, clock))
        self._watch: asyncio.Task[None] | None = None

    def _routes(self, methods: Methods) -> list[BaseRoute]:
        extensions: list[RouteProvider] = LOADED.find_routes(self._services.config)
        routes = [
            *health_routes(lambda: self._stage, self._runtime.services.reserve.trouble),
            *self._watching.routes(self._context, lambda: self._sockets.count),
            *invoke.routes(self._context),
            *(route for each in extensions for route in each.make(self._context)),
        ]
        paths = {route.path for route in routes if isinstance(route, Route)}
        theirs = (row for each in extensions for row in each.docs if row.path in paths)
        docs = [*metrics.ROUTE_DOCS, *invoke.ROUTE_DOCS, *theirs]
        return [*routes, *reading_routes(methods, routes, docs, EVENTS)]

    @property
    def url(self) -> str:
        host = self._listening.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self._listening.port}"

    @property
    def port(self) -> int:
        return self._listening.port

    async def start(self) -> None:
        await self._register.load()
        self._guard.secret_digest()
        await self._listening.start()
        self._watching.watchdog.start()
        self._watch = asyncio.create_task(self._look())
        self._services.holder.gateway = self.standing
        self._services.holder.end = self.leave
        self._services.holder.link = self.link
        self._services.holder.publish = self._context.hub.publish
        running = RunningGateway(os.getpid(), self.url, self._context.started_at)
        write_atomic(self._state_file, msgspec.json.format(msgspec.json.encode(running)) + b"\n")
        self._stage = "ready"
        started = {"startedAt": self._context.started_at, "url": self.url, "version": __version__}
        self._services.hooks.observe("gateway:startup", None, lambda: started)
        log.info("the gateway listens at %s", self.url)

    def standing(self) -> GatewayState:
        return GatewayState(
            running=True,
            pid=os.getpid(),
            url=self.url,
            bind=self.settings.bind,
            auth=self.settings.mode,
            token_from=self.token_from,
            version=__version__,
            started_at=self._context.started_at,
            uptime_ms=self._services.clock.now_ms() - self._context.started_at,
            clients=self._sockets.count,
            busy=self._services.dispatcher.busy,
            ready=self._stage == "ready",
            secure_url=self._lan.url(self._listening.secure_port) if self._lan is not None else "",
            fingerprint=self._lan.fingerprint if self._lan is not None else "",
        )

    def link(self, lan: bool = False, scopes: tuple[Scope, ...] = SCOPES) -> DashboardLink:
        """Implements operations.Holder.link."""
        if lan:
            return self._lan_link(scopes)
        if self._guard.no_auth:
            return DashboardLink(f"{self.url}/")
        code, until = self._guard.codes.make(scopes)
        return DashboardLink(f"{self.url}/login#code={code}", until)

    def _lan_link(self, scopes: tuple[Scope, ...]) -> DashboardLink:
        if self._lan is None:
            raise BadRequest("the network does not reach this gateway", hint="`pal gateway run --lan` opens it by TLS")
        self._lan.renew()  # this machine may have another address by now
        if not (url := self._lan.url(self._listening.secure_port)):
            raise BadRequest("this machine is in no network", hint="connect it, then ask again")
        code, until = self._guard.codes.make(scopes)
        return DashboardLink(f"{url}/login#code={code}", until, self._lan.fingerprint)

    def leave(self) -> None:
        """Ask it to leave: `left` returns. Asked again, it hurries: what runs is stopped."""
        if self._leave.is_set():
            self._hurry.set()
        self._leave.set()

    async def left(self) -> None:
        await self._leave.wait()

    async def close(self, reason: str = "the gateway is shutting down") -> None:
        """Take nothing new, finish what runs while clients still hear of it, then say good-bye."""
        self._stage = "leaving"
        self._services.hooks.observe("gateway:shutdown", None, lambda: {"reason": reason})
        self._services.dispatcher.shut()  # at once: whoever sees that it leaves is not answered any more
        draining = asyncio.create_task(self._runtime.drain())
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait([draining, hurry], return_when=asyncio.FIRST_COMPLETED)
        if not draining.done():
            for run in self._services.dispatcher.runs.active():
                run.stop.request("the gateway is shutting down")
            await asyncio.wait([draining], timeout=STOP_SECONDS)
        if not draining.done():
            log.warning("%d run(s) did not stop and are left to the next start", self._services.dispatcher.busy)
            await self._services.dispatcher.abandon()
        for task in (draining, hurry, self._watch):
            if task is not None:
                task.cancel()
        await asyncio.gather(draining, hurry, *((self._watch,) if self._watch else ()), return_exceptions=True)
        await self._sockets.close(reason)
        await asyncio.gather(*(end() for end in self._context.on_close))
        await self._listening.close()
        await self._watching.close()
        self._services.holder.gateway = self._services.holder.end = self._services.holder.link = None
        with suppress(StorageError):  # when a token was last used is not worth a failure at the end
            await self._register.flush()
        with suppress(OSError):
            self._state_file.unlink()

    async def _look(self) -> None:
        """The configured secret is asked for with every request; those who only listen are looked after here."""
        looks = 0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            looks += 1
            self._guard.secret_digest()
            if self._lan is not None and looks % RENEW_LOOKS == 0:
                with suppress(StorageError):  # tried again soon enough
                    self._lan.renew()
            if looks % FLUSH_LOOKS == 0:
                with suppress(StorageError):
                    await self._register.flush()

    def _config(self) -> LoadedConfig:
        self._runtime.agents.refresh()
        return self._runtime.agents.loaded


def _check_length(secret: OwnerSecret, settings: GatewaySettings) -> None:
    if settings.mode == "none" or not secret.is_short():
        return
    if not settings.is_near:
        raise ConfigError(
            f"the gateway's {settings.mode} has less than {SHORT} characters and could be guessed from outside",
            hint="choose a longer one, or bind to loopback",
        )
    log.warning("the gateway's %s has less than %d characters and could be guessed", settings.mode, SHORT)
