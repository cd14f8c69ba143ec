"""The gateway's certificate for the network: made by itself, for the addresses of this machine, and made anew in time.

No authority vouches for it, so a browser asks when it first sees it, and a person compares the fingerprint. The key is
for this user alone and never leaves the home.
"""

from __future__ import annotations

import ipaddress
import logging
import ssl
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct

from palinurus.config.atomic import make_directory, write_atomic
from palinurus.domain.errors import StorageError

log = logging.getLogger(__name__)

FOLDER, FILE = "tls", "gateway.pem"
DAYS = 398  # browsers take no longer life from a certificate
RENEW_DAYS = 30  # before its end
EARLIER = timedelta(hours=1)  # clocks differ


class Certificate(Struct, frozen=True):
    pem: bytes  # with its key
    fingerprint: str  # SHA-256, as browsers show it
    names: frozenset[str]
    ends_at: datetime


class OwnCertificate:
    """Keeps the certificate of a TLS context good. `now` gives the time in UTC."""

    def __init__(self, root: Path, now: Callable[[], datetime]) -> None:
        self._path = root / FOLDER / FILE
        self._now = now
        self._known: Certificate | None = None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])

    @property
    def fingerprint(self) -> str:
        return self._known.fingerprint if self._known is not None else ""

    @property
    def names(self) -> frozenset[str]:
        return self._known.names if self._known is not None else frozenset()

    def keep(self, names: Iterable[str]) -> None:
        """See that it is good for these names and for a while. The next connection meets it. Raises StorageError."""
        wanted, until = frozenset(names), self._now() + timedelta(days=RENEW_DAYS)
        known = self._known or _read(self._path)
        if known is None or not wanted <= known.names or known.ends_at < until:
            known = make_certificate(sorted(wanted), self._now())
            make_directory(self._path.parent)
            write_atomic(self._path, known.pem)
            log.info("made a certificate for %s: %s", ", ".join(sorted(wanted)), known.fingerprint)
        if known is not self._known:
            self.context.load_cert_chain(self._path)
            self._known = known


def make_certificate(names: Iterable[str], now: datetime) -> Certificate:
    """A new key, and a certificate for it that says nothing but these addresses and names."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())  # browsers know no Ed25519 here
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
    """Raises ValueError for what is none."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    found = x509.load_pem_x509_certificate(pem)
    named = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    names = {str(each.value) for each in named}
    return Certificate(
        pem, found.fingerprint(hashes.SHA256()).hex(":").upper(), frozenset(names), found.not_valid_after_utc
    )


def _read(path: Path) -> Certificate | None:
    """The one that is kept, when it is whole and nobody else can read it."""
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
