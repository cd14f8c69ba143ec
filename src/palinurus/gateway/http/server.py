"""Listen and serve: the application on a port, in the event loop that is running already."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator, Sequence

import uvicorn
from msgspec import Struct
from starlette.types import ASGIApp

from palinurus.domain.errors import ConfigError
from palinurus.gateway.http.connections import HttpConnection, ServerConfig, SocketConnection
from palinurus.gateway.protocol import MAX_FRAME

BACKLOG = 1024
AT_ONCE = 16  # connections accepted in one go: each must be counted before the next ones take the last file descriptors
START_SECONDS = 10.0
HANDSHAKE_SECONDS = 10.0  # for the TLS handshake
DATE_SECONDS = 1.0  # how exact the Date header is


class _Server(uvicorn.Server):
    """Leaves signals to the process, which has more to close, and sleeps while nothing happens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._leave = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # sets the Date header
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DATE_SECONDS):
                    await self._leave.wait()

    def leave(self) -> None:
        self.should_exit = True
        self._leave.set()


class TlsListener(Struct, frozen=True):
    """Addresses and port for TLS, in addition to the plain port."""

    hosts: Sequence[str]
    port: int
    context: ssl.SSLContext


class HttpServer:
    """A server that runs until `close`. It binds when it is made, so that a taken port is reported in one line."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str], port: int, secure: TlsListener | None = None) -> None:
        self.host = hosts[0]
        self._sockets, self.port = _bind_all(hosts, port)
        self._secure = secure
        self._secure_sockets: list[socket.socket] = []
        self.secure_port = 0
        if secure is not None:
            try:
                self._secure_sockets, self.secure_port = _bind_all(secure.hosts, secure.port)
            except ConfigError:
                for each in self._sockets:
                    each.close()
                raise
        config = ServerConfig(
            app,
            http=HttpConnection,
            ws=SocketConnection,
            backlog=AT_ONCE,
            ws_max_size=MAX_FRAME,
            ws_ping_interval=None,  # the protocol has ticks of its own
            ws_per_message_deflate=False,  # memory for each client, and little to gain on loopback
            lifespan="off",
            log_config=None,
            log_level="critical",  # clients decide how often it would complain; our own errors are caught before
            access_log=False,
            server_header=False,
            proxy_headers=False,  # anybody could send them
            timeout_graceful_shutdown=5,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(each.getsockname()[0] for each in self._sockets)

    @property
    def secure_hosts(self) -> tuple[str, ...]:
        return tuple(each.getsockname()[0] for each in self._secure_sockets)

    async def start(self) -> None:
        self._task = asyncio.create_task(self._server.serve(sockets=self._sockets))
        async with asyncio.timeout(START_SECONDS):
            while not self._server.started:
                if self._task.done():
                    await self._task
                    raise ConfigError(f"the gateway could not start at {self.host}:{self.port}")
                await asyncio.sleep(0.001)
        if self._secure is not None:
            await self._start_secure(self._secure.context)
        for each in (*self._sockets, *self._secure_sockets):  # asyncio made the queue as short as AT_ONCE
            each.listen(BACKLOG)

    async def _start_secure(self, context: ssl.SSLContext) -> None:
        """The same server behind TLS. uvicorn closes it with the others, because it is in `servers`."""
        server, config = self._server, self._server.config

        def connection() -> asyncio.Protocol:
            return HttpConnection(config=config, server_state=server.server_state, app_state=server.lifespan.state)

        for each in self._secure_sockets:
            listening = await asyncio.get_running_loop().create_server(
                connection, sock=each, ssl=context, ssl_handshake_timeout=HANDSHAKE_SECONDS, backlog=AT_ONCE
            )
            server.servers.append(listening)

    async def close(self) -> None:
        self._server.leave()
        if self._task is not None:
            await self._task
        for each in (*self._sockets, *self._secure_sockets):
            each.close()


def _bind_all(hosts: Sequence[str], port: int) -> tuple[list[socket.socket], int]:
    """The first host must be free. Others, such as IPv6, are optional."""
    sockets = [_bind(hosts[0], port)]
    port = sockets[0].getsockname()[1]
    for host in hosts[1:]:
        with contextlib.suppress(ConfigError):
            sockets.append(_bind(host, port))
    return sockets, port


def can_listen(host: str, port: int) -> bool:
    """Whether the port is free now."""
    try:
        _bind(host, port).close()
    except ConfigError:
        return False
    return True


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        # Named, because asyncio switches Nagle off only for a socket that says it is TCP: 40 ms for each reply.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise _cannot(host, port, error) from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _cannot(host, port, error) from None
    listener.setblocking(False)
    return listener


def _cannot(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(
        f"the gateway cannot listen at {host}:{port}: {error.strerror or error}",
        hint="another program may be there: gateway.port names another port",
    )
