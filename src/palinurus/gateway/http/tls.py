"""TLS for the local network: the addresses of this machine, and a certificate that the gateway makes and renews.

It is self-signed, so a browser warns at the first visit and a person compares the fingerprint. Only this user can read
the key, and it never leaves the home.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
import ssl
import struct
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec import Struct

from palinurus.config.atomic import make_directory, write_atomic
from palinurus.domain.clock import Clock
from palinurus.domain.errors import StorageError

log = logging.getLogger(__name__)

FOLDER, FILE = "tls", "gateway.pem"
DAYS = 398  # browsers accept no longer validity
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
        self._path = root / FOLDER / FILE
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
    known = [x509.IPAddress(ipaddress.ip_address(each)) if _is_address(each) else x509.DNSName(each) for each in names]
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)  # signatures
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now - EARLIER + timedelta(days=DAYS, seconds=-1))  # the last second counts
        .add_extension(x509.SubjectAlternativeName(known), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return parse_certificate(secret + made.public_bytes(serialization.Encoding.PEM))


def parse_certificate(pem: bytes) -> Certificate:
    """Raises ValueError when it is not a certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    found = x509.load_pem_x509_certificate(pem)
    named = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    names = {str(each.value) for each in named}
    return Certificate(
        pem, found.fingerprint(hashes.SHA256()).hex(":").upper(), frozenset(names), found.not_valid_after_utc
    )


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


def _is_address(name: str) -> bool:
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


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
