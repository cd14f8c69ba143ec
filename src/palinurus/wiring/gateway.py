"""The gateway, joined: a runtime that holds the home, the guard, the methods and routes, and a port to listen on.

A new family of methods is one line in METHODS; a new module of routes is one line in ROUTES.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from starlette.routing import BaseRoute

from palinurus import __version__
from palinurus.config.atomic import write_atomic
from palinurus.config.listening import GatewaySettings
from palinurus.config.load import Loaded
from palinurus.domain.clock import random_id
from palinurus.domain.errors import BadRequest, ConfigError, StorageError
from palinurus.gateway.door.access import CONFIGURED
from palinurus.gateway.door.doorkeeper import DeviceDoorkeeper
from palinurus.gateway.door.guard import Guard, place_of
from palinurus.gateway.families import FAMILIES
from palinurus.gateway.frames.hub import Hub
from palinurus.gateway.frames.publishing import Publisher
from palinurus.gateway.http.app import make_app
from palinurus.gateway.http.documented import Documented
from palinurus.gateway.http.health import Stage, health_routes, reading_routes
from palinurus.gateway.http.lan import EVERYWHERE, Lan, machine_names
from palinurus.gateway.http.serving import Listening, Secure
from palinurus.gateway.invoke import routes as invoke
from palinurus.gateway.openai import routes as openai
from palinurus.gateway.page import routes as page
from palinurus.gateway.page.codes import Codes
from palinurus.gateway.page.files import Files
from palinurus.gateway.talk import conversing
from palinurus.gateway.talk.desk import Desk, Endpoints
from palinurus.gateway.talk.methods import Method, Methods
from palinurus.gateway.talk.socket import EVENTS, Sockets
from palinurus.gateway.watch import metrics
from palinurus.operations.config import Ground
from palinurus.operations.holder import GatewayStanding, PageLink
from palinurus.operations.register import Register
from palinurus.operations.scopes import SCOPES, Scope
from palinurus.wiring.runtime import TABLE, Runtime
from palinurus.wiring.secret import SHORT, OwnerSecret
from palinurus.wiring.watching import Watching

log = logging.getLogger(__name__)

METHODS: tuple[Method, ...] = (*conversing.METHODS, *FAMILIES)
ROUTES: tuple[tuple[Callable[[Desk], Sequence[BaseRoute]], Sequence[Documented]], ...] = (
    (openai.routes, openai.DOCUMENTED),
    (invoke.routes, invoke.DOCUMENTED),
)

STATE_FILE = "gateway.json"
LOOK_SECONDS = 1.0  # how soon a secret that was changed on the disk closes those who only listen
FLUSH_LOOKS = 60
RENEW_LOOKS = 3600
STOP_SECONDS = 10.0  # that runs may take to stop when they are told to


class Running(Struct, frozen=True, rename="camel"):
    """What `gateway.json` in the home says, for people and scripts. The unix socket knows better who is alive."""

    pid: int
    url: str
    started_at: int
    version: str = __version__


class Gateway:
    def __init__(self, runtime: Runtime, ground: Ground, settings: GatewaySettings) -> None:
        """Raises ConfigError for what must not be started: no secret, one that can be guessed, a port that is taken."""
        self.settings = settings
        self._runtime = runtime
        self._house = runtime.house
        self._stage: Stage = "starting"
        self._leave = asyncio.Event()
        self._hurry = asyncio.Event()
        secret = OwnerSecret(self._config, ground.env, ground.home.root, settings.mode)
        self.token_from = "nowhere: the door is open" if settings.mode == "none" else secret.prepare()
        _check_length(secret, settings)
        register = self._house.access
        assert register is not None  # noqa: S101  # a runtime has one
        self._register: Register = register
        clock = self._house.clock
        self._guard = Guard(register, place_of(0), secret, clock, open_door=settings.mode == "none")
        hub = Hub()
        self._desk = Desk(
            house=self._house,
            ground=ground,
            table=TABLE,
            guard=self._guard,
            hub=hub,
            new_id=random_id,
            endpoints=Endpoints(
                settings.chat_completions, settings.responses, settings.invoke_allow, settings.invoke_deny
            ),
            started_at=clock.now_ms(),
        )
        self._codes = Codes(clock)
        self._guard.on_revoked.append(self._forget_codes)
        methods = Methods(METHODS, TABLE)
        self._sockets = Sockets(self._desk, methods, DeviceDoorkeeper(self._guard, hub, clock, random_id))
        self._watching = Watching(self._house, runtime.agents.loaded, ground.env)
        runtime.when_committed(self._watching.meter.committed)
        app = self._watching.around(make_app(self._desk, self._sockets, self._routes(methods)))
        self._lan = Lan(ground.home.root, clock) if settings.lan else None
        secure = Secure(EVERYWHERE, settings.secure_port, self._lan.context) if self._lan is not None else None
        self._listening = Listening(app, settings.hosts, settings.port, secure)
        self._guard.place = place_of(
            self._listening.port,
            settings.names,
            settings.origins,
            any_address=not settings.plain_is_near,
            secure_port=self._listening.secure_port,
            secure_hosts=(*settings.names, *machine_names()),
        )
        self._house.dispatcher.runs.listen(Publisher(hub, clock))
        self._watch: asyncio.Task[None] | None = None

    def _routes(self, methods: Methods) -> list[BaseRoute]:
        routes = [
            *health_routes(lambda: self._stage, self._runtime.disk_trouble),
            *self._watching.routes(self._desk, lambda: self._sockets.count),
            *(route for make, _ in ROUTES for route in make(self._desk)),
            *page.page_routes(self._desk, self._codes, Files()),
        ]
        told = [*metrics.DOCUMENTED, *page.DOCUMENTED, *(row for _, rows in ROUTES for row in rows)]
        return [*routes, *reading_routes(methods, routes, told, EVENTS)]

    @property
    def url(self) -> str:
        host = self._listening.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self._listening.port}"

    @property
    def port(self) -> int:
        return self._listening.port

    async def start(self) -> None:
        await self._register.load()
        self._guard.look()
        await self._listening.start()
        self._watching.start()
        self._watch = asyncio.create_task(self._look())
        self._house.holder.gateway = self.standing
        self._house.holder.end = self.leave
        self._house.holder.link = self.link
        running = Running(os.getpid(), self.url, self._desk.started_at)
        write_atomic(self._state_file, msgspec.json.format(msgspec.json.encode(running)) + b"\n")
        self._stage = "ready"
        log.info("the gateway listens at %s", self.url)

    def standing(self) -> GatewayStanding:
        return GatewayStanding(
            running=True,
            pid=os.getpid(),
            url=self.url,
            bind=self.settings.bind,
            auth=self.settings.mode,
            token_from=self.token_from,
            version=__version__,
            started_at=self._desk.started_at,
            uptime_ms=self._house.clock.now_ms() - self._desk.started_at,
            clients=self._sockets.count,
            busy=self._house.dispatcher.busy,
            ready=self._stage == "ready",
            secure_url=self._lan.url(self._listening.secure_port) if self._lan is not None else "",
            fingerprint=self._lan.fingerprint if self._lan is not None else "",
        )

    def link(self, lan: bool = False, scopes: tuple[Scope, ...] = SCOPES) -> PageLink:
        """Implements operations.Holder.link."""
        if lan:
            return self._lan_link(scopes)
        if self._guard.open_door:
            return PageLink(f"{self.url}/")
        code, until = self._codes.make(scopes)
        return PageLink(f"{self.url}/login#code={code}", until)

    def _lan_link(self, scopes: tuple[Scope, ...]) -> PageLink:
        if self._lan is None:
            raise BadRequest("the network does not reach this gateway", hint="`pal gateway run --lan` opens it by TLS")
        self._lan.keep()  # this machine may have another address by now
        if not (url := self._lan.url(self._listening.secure_port)):
            raise BadRequest("this machine is in no network", hint="connect it, then ask again")
        code, until = self._codes.make(scopes)
        return PageLink(f"{url}/login#code={code}", until, self._lan.fingerprint)

    def _forget_codes(self, died: str) -> None:
        if died == CONFIGURED:
            self._codes.forget()

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
        self._house.dispatcher.shut()  # at once: whoever sees that it leaves is not answered any more
        draining = asyncio.create_task(self._runtime.drain())
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait([draining, hurry], return_when=asyncio.FIRST_COMPLETED)
        if not draining.done():
            self._stop_runs()
            await asyncio.wait([draining], timeout=STOP_SECONDS)
        if not draining.done():
            log.warning("%d run(s) did not stop and are left to the next start", self._house.dispatcher.busy)
            await self._house.dispatcher.abandon()
        for task in (draining, hurry, self._watch):
            if task is not None:
                task.cancel()
        await asyncio.gather(draining, hurry, *((self._watch,) if self._watch else ()), return_exceptions=True)
        await self._sockets.shut(reason)
        await self._listening.close()
        await self._watching.close()
        self._house.holder.gateway = self._house.holder.end = self._house.holder.link = None
        with suppress(StorageError):  # when a token was last used is not worth a failure at the end
            await self._register.flush()
        self._remove_state()

    def _stop_runs(self) -> None:
        for run in self._house.dispatcher.runs.active():
            run.stop.request("the gateway is shutting down")

    async def _look(self) -> None:
        """The configured secret is asked for with every request; those who only listen are looked after here."""
        looks = 0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            looks += 1
            self._guard.look()
            if self._lan is not None and looks % RENEW_LOOKS == 0:
                with suppress(StorageError):  # tried again soon enough
                    self._lan.keep()
            if looks % FLUSH_LOOKS == 0:
                with suppress(StorageError):
                    await self._register.flush()

    def _config(self) -> Loaded:
        self._runtime.agents.refresh()
        return self._runtime.agents.loaded

    @property
    def _state_file(self) -> Path:
        return self._house.home.root / STATE_FILE

    def _remove_state(self) -> None:
        with suppress(OSError):
            self._state_file.unlink()


def _check_length(secret: OwnerSecret, settings: GatewaySettings) -> None:
    if settings.mode == "none" or not secret.is_short():
        return
    if not settings.is_near:
        raise ConfigError(
            f"the gateway's {settings.mode} has less than {SHORT} characters and could be guessed from outside",
            hint="choose a longer one, or bind to loopback",
        )
    log.warning("the gateway's %s has less than %d characters and could be guessed", settings.mode, SHORT)
