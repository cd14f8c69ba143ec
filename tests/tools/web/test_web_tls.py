"""TLS over a pinned connection: the certificate must be the name's, whatever the address."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpcore2
import pytest
from small_web import Server, answer

from palinurus.domain.errors import WebError
from palinurus.tools.settings import FetchSettings
from palinurus.tools.web.client import Client
from palinurus.tools.web.fetch import Fetcher, PageReader
from palinurus.tools.web.guard import AddressGuard

x509 = pytest.importorskip("cryptography.x509")
PUBLIC = "93.184.215.14"
NAME = "tides.example.com"


def certificate(directory: Path) -> Path:
    """A certificate for NAME that signs itself, with its key, in one file."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = directory / "certificate.pem"
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return file


class TlsWeb:
    """One server behind TLS; every public address leads to it, and is kept."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.server = Server()
        self.server.pages["/"] = answer("high water", "Content-Type: text/plain")
        self.asked_for: list[str | None] = []
        self.connected: list[str] = []

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file)
        context.sni_callback = lambda _, name, __: self.asked_for.append(name)
        return context

    async def resolve(self, host: str, port: int) -> list[str]:
        return [PUBLIC]

    async def connect(self, address: str, port: int, seconds: float) -> httpcore2.AsyncNetworkStream:
        self.connected.append(address)
        return await httpcore2.AnyIOBackend().connect_tcp("127.0.0.1", self.server.port, timeout=seconds)

    async def fetch(self, url: str, tls: ssl.SSLContext | None) -> str:
        client = Client(AddressGuard(resolver=self.resolve), connector=self.connect, tls=tls)
        fetched = await Fetcher(FetchSettings(timeout_seconds=60), client, PageReader()).fetch(url, most=100)
        return fetched.page.text


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[TlsWeb]:
    made = TlsWeb(certificate(tmp_path))
    listening = await asyncio.start_server(made.server.serve, "127.0.0.1", 0, ssl=made.context())
    made.server.port = listening.sockets[0].getsockname()[1]
    yield made
    listening.close()


async def test_the_name_is_what_the_certificate_must_be_for(web: TlsWeb) -> None:
    tls = ssl.create_default_context(cafile=str(web.file))
    assert await web.fetch(f"https://{NAME}/", tls) == "high water"
    assert web.connected == [PUBLIC]
    assert web.asked_for == [NAME]


async def test_a_certificate_for_another_name_is_refused(web: TlsWeb) -> None:
    tls = ssl.create_default_context(cafile=str(web.file))
    with pytest.raises(WebError, match=r"other\.example\.com failed: .*(CERTIFICATE|certificate)"):
        await web.fetch("https://other.example.com/", tls)
    with pytest.raises(WebError, match="failed"):
        await web.fetch(f"https://{PUBLIC}/", tls)
    assert web.server.requests == []


async def test_a_certificate_that_nobody_vouches_for_is_refused(web: TlsWeb) -> None:
    with pytest.raises(WebError, match="certificate"):
        await web.fetch(f"https://{NAME}/", None)
    assert web.server.requests == []
