"""Listen and serve: the application on a port, in the running event loop; and TLS for the local network.

The gateway makes and renews its own certificate. It is self-signed, so a browser warns at the first visit and a person
compares the fingerprint. Only this user can read the key, and it never leaves the home.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import uvicorn
from msgspec import Struct
from starlette.types import ASGIApp

from palinurus.config.atomic import make_directory, write_atomic
from palinurus.domain.clock import Clock
from palinurus.domain.errors import ConfigError, StorageError
from palinurus.gateway.auth.guard import is_address
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
        try:
            self._secure_sockets, self.secure_port = _bind_all(secure.hosts, secure.port) if secure else ([], 0)
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
        server = self._server
        connection = partial(
            HttpConnection, config=server.config, server_state=server.server_state, app_state=server.lifespan.state
        )
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
    listener = None
    try:
        # Named, because asyncio switches Nagle off only for a socket that says it is TCP: 40 ms for each reply.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        if listener is not None:
            listener.close()
        hint = "another program may be there: gateway.port names another port"
        raise ConfigError(f"the gateway cannot listen at {host}:{port}: {error.strerror or error}", hint=hint) from None
    listener.setblocking(False)
    return listener


log = logging.getLogger(__name__)

CERTIFICATE_FILE = "tls/gateway.pem"  # in the home
CERTIFICATE_DAYS = 398  # browsers accept no longer validity
RENEW_DAYS = 30  # before its end
EARLIER = timedelta(hours=1)  # clocks differ
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  # on request, and with TLS
HERE = ("127.0.0.1", "::1", "localhost")
SIOCGIFADDR = 0x8915
# Documentation addresses: nothing is sent there; the system only says which of its addresses it would use.
REMOTE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


class Certificate(Struct, frozen=True):
    pem: bytes  # with its key
    fingerprint: str  # SHA-256, as browsers show it
    names: frozenset[str]
    ends_at: datetime


class LanCertificate:
    """The TLS context of the gateway, with a certificate that is kept valid for the addresses of this machine."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self._path = root / CERTIFICATE_FILE
        self._clock = clock
        self._current: Certificate | None = None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])

    @property
    def fingerprint(self) -> str:
        return self._current.fingerprint if self._current is not None else ""

    def renew(self, names: Iterable[str] = ()) -> None:
        """Make a new certificate unless the current one is valid for a while for these names, or for those that this
        machine has now. The next connection uses it. Raises StorageError."""
        wanted = frozenset(names or (*HERE, *machine_names(), *network_addresses()))
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        current = self._current or _read(self._path)
        if current is None or not wanted <= current.names or current.ends_at < now + timedelta(days=RENEW_DAYS):
            current = make_certificate(sorted(wanted), now)
            make_directory(self._path.parent)
            write_atomic(self._path, current.pem)
            log.info("made a certificate for %s: %s", ", ".join(sorted(wanted)), current.fingerprint)
        if current is not self._current:
            self.context.load_cert_chain(self._path)
            self._current = current

    def url(self, port: int) -> str:
        """The address of the gateway in the network; empty without a network."""
        address = next(iter(network_addresses()), "")
        host = f"[{address}]" if ":" in address else address
        return f"https://{host}:{port}" if host else ""


def make_certificate(names: Iterable[str], now: datetime) -> Certificate:
    """A new key, and a certificate for it that holds only these addresses and names."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())  # browsers do not support Ed25519 here
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Palinurus gateway")])
    known = [x509.IPAddress(ipaddress.ip_address(each)) if is_address(each) else x509.DNSName(each) for each in names]
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)  # signatures
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now - EARLIER + timedelta(days=CERTIFICATE_DAYS, seconds=-1))  # the last second counts
        .add_extension(x509.SubjectAlternativeName(known), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return parse_certificate(secret + made.public_bytes(pem))


def parse_certificate(pem: bytes) -> Certificate:
    """Raises ValueError when it is not a certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    found = x509.load_pem_x509_certificate(pem)
    named = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    fingerprint = found.fingerprint(hashes.SHA256()).hex(":").upper()
    return Certificate(pem, fingerprint, frozenset(str(each.value) for each in named), found.not_valid_after_utc)


def _read(path: Path) -> Certificate | None:
    """The stored certificate, if it is complete and nobody else can read it."""
    from cryptography.x509 import ExtensionNotFound

    try:
        if path.stat().st_mode & 0o077:
            log.warning("others could read %s: a new one is made", path)
            path.unlink()
            return None
        return parse_certificate(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, ExtensionNotFound):
        log.warning("%s holds no certificate: a new one is made", path)
        return None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from None


def network_addresses() -> list[str]:
    """The addresses that others can reach, that of the default route first. Empty without a network."""
    found = [*_route_addresses(), *_interface_addresses()]
    return list(dict.fromkeys(each for each in found if _is_reachable(each)))


def machine_names() -> list[str]:
    """Names by which others in the network may find this machine."""
    name = socket.gethostname().partition(".")[0].lower()
    if not name or not name.isascii() or not name.replace("-", "").isalnum() or name == "localhost":
        return []
    return [name, f"{name}.local"]


def _route_addresses() -> list[str]:
    found = []
    for family, address in REMOTE:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            found.append(probe.getsockname()[0])
    return found


def _interface_addresses() -> list[str]:
    if not sys.platform.startswith("linux"):
        return []
    import fcntl

    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # one that has no address
                reply = fcntl.ioctl(any_socket, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append(socket.inet_ntoa(reply[20:24]))
    return found


def _is_reachable(text: str) -> bool:
    address = ipaddress.ip_address(text)
    return not (address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast)
