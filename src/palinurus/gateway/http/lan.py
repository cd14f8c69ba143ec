"""The gateway in the network: under which addresses others know this machine, and a certificate for them."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import struct
import sys
from datetime import UTC, datetime
from pathlib import Path

from palinurus.domain.clock import Clock
from palinurus.gateway.http.certificate import OwnCertificate

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  # asked for, and with TLS
HERE = ("127.0.0.1", "::1", "localhost")
SIOCGIFADDR = 0x8915
# Documentation addresses: nothing is sent to them, they only make the system say by which way it would go.
ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


class Lan:
    def __init__(self, root: Path, clock: Clock) -> None:
        """Raises StorageError when the certificate cannot be kept."""
        self._certificate = OwnCertificate(root, lambda: datetime.fromtimestamp(clock.now_ms() / 1000, UTC))
        self.keep()

    @property
    def context(self) -> ssl.SSLContext:
        return self._certificate.context

    @property
    def fingerprint(self) -> str:
        return self._certificate.fingerprint

    def keep(self) -> None:
        """See that the certificate is good, and for the addresses that this machine has now."""
        self._certificate.keep((*HERE, *machine_names(), *network_addresses()))

    def url(self, port: int) -> str:
        """How others in the network call us; empty without a network."""
        address = next(iter(network_addresses()), "")
        host = f"[{address}]" if ":" in address else address
        return f"https://{host}:{port}" if host else ""


def network_addresses() -> list[str]:
    """Those that others can reach, the usual way out first. Empty without a network."""
    found = [*_ways_out(), *_of_interfaces()]
    return list(dict.fromkeys(each for each in found if _is_reachable(each)))


def machine_names() -> list[str]:
    """What others in the network may call this machine, where they find it by name at all."""
    name = socket.gethostname().partition(".")[0].lower()
    if not name or not name.isascii() or not name.replace("-", "").isalnum() or name == "localhost":
        return []
    return [name, f"{name}.local"]


def _ways_out() -> list[str]:
    found = []
    for family, address in ELSEWHERE:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            found.append(probe.getsockname()[0])
    return found


def _of_interfaces() -> list[str]:
    if not sys.platform.startswith("linux"):
        return []
    import fcntl

    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # one that has no address
                told = fcntl.ioctl(any_socket, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append(socket.inet_ntoa(told[20:24]))
    return found


def _is_reachable(text: str) -> bool:
    address = ipaddress.ip_address(text)
    return not (address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast)
