"""The gateway in the network: TLS with a certificate of its own, as a real client meets it, and a phone's way in."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
import ssl
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from serving import PATIENCE, Answer, Running, Visitor, configure, parse_answer, request, running

from palinurus.config.home import Home
from palinurus.domain.errors import BadRequest, ConfigError
from palinurus.gateway.http import server
from palinurus.gateway.http.server import CERTIFICATE_DAYS, LanCertificate, make_certificate, parse_certificate
from palinurus.runtime import gateway as wired
from palinurus.testing.fakes import FakeClock

NOW = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)


def at(moment: datetime) -> FakeClock:
    return FakeClock(moment)


JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def far(home: Home, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """A machine whose address in the network is one of loopback: tests reach no other."""
    monkeypatch.setattr(server, "network_addresses", lambda: ["127.0.0.7"])
    monkeypatch.setattr(wired, "EVERYWHERE", ("127.0.0.7",))
    async with running(home, lan=True) as here:
        yield here


def trusting(fingerprint: str) -> ssl.SSLContext:
    """Of a client that checks nothing but the fingerprint, which the test does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def ask(url: str, path: str, fingerprint: str, method: str = "GET", body: bytes = b"", **headers: str) -> Answer:
    """One request over TLS, said only to a server that has shown the certificate with this fingerprint."""
    host, _, port = url.removeprefix("https://").rpartition(":")
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection(host, int(port), ssl=trusting(fingerprint))
        try:
            shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            assert hashlib.sha256(shown).hexdigest().upper() == fingerprint.replace(":", "")
            said = {"Host": f"{host}:{port}", "Connection": "close", "Content-Length": str(len(body))} | headers
            lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in said.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            return parse_answer(await reader.read())
        finally:
            writer.close()


async def test_a_phone_comes_in_by_the_link_and_sees_the_certificate_that_was_shown(far: Running) -> None:
    link = far.gateway.link(lan=True)
    url, _, code = link.url.partition("/login#code=")
    assert url == far.gateway.standing().secure_url
    assert url.startswith("https://127.0.0.7:")
    assert far.gateway.standing().fingerprint == link.fingerprint
    assert (await ask(url, "/", link.fingerprint)).status == 200
    body = json.dumps({"code": code}).encode()
    told = await ask(url, "/page/login", link.fingerprint, "POST", body, Origin=url, **JSON)
    assert told.status == 200
    cookie, _, rest = told.headers["set-cookie"].partition("; ")
    assert cookie.startswith(f"__Host-pal-{url.rpartition(':')[2]}=pal_")
    assert rest == "Max-Age=2592000; Path=/; HttpOnly; SameSite=Strict; Secure"
    page = await Visitor.arrive(
        url.replace("https:", "wss:") + "/ws",
        origin=url,
        additional_headers={"Cookie": cookie},
        ssl=trusting(link.fingerprint),
    )
    assert (await page.connect(auth={"bootstrapToken": told.json["key"]})).ok
    await page.leave()


async def test_the_certificate_holds_for_a_client_that_was_told_to_trust_it(far: Running, home: Home) -> None:
    """As strictly as a browser: the address must stand in it."""
    url = far.gateway.standing().secure_url
    trusted = ssl.create_default_context(cadata=_public(home.root / "tls" / "gateway.pem"))
    trusted.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    for host, good in (("127.0.0.7", True), ("localhost", True), ("192.0.2.9", False), ("evil.example", False)):
        opening = asyncio.open_connection("127.0.0.7", int(url.rpartition(":")[2]), ssl=trusted, server_hostname=host)
        if good:
            _, writer = await asyncio.wait_for(opening, PATIENCE)
            assert writer.get_extra_info("ssl_object").version() in ("TLSv1.2", "TLSv1.3")
            writer.close()
        else:
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.wait_for(opening, PATIENCE)


def _public(pem: Path) -> str:
    return "-----BEGIN CERT" + pem.read_text().partition("-----BEGIN CERT")[2]


@pytest.mark.parametrize(
    "origin", ["", "http://{host}", "https://127.0.0.8:{port}", "https://evil.example", "https://localhost:{port}"]
)
async def test_over_tls_only_the_very_page_counts(far: Running, origin: str) -> None:
    link = far.gateway.link(lan=True)
    url, _, code = link.url.partition("/login#code=")
    host = url.removeprefix("https://")
    named = origin.replace("{host}", host).replace("{port}", host.rpartition(":")[2])
    headers = {**JSON, **({"Origin": named} if named else {})}
    body = json.dumps({"code": code}).encode()
    told = await ask(url, "/page/login", link.fingerprint, "POST", body, **headers)
    assert (told.status, told.json["code"]) == (403, "WRONG_ORIGIN")


async def test_a_name_that_was_made_to_point_here_is_refused_over_tls_too(far: Running) -> None:
    link = far.gateway.link(lan=True)
    url = link.url.partition("/login")[0]
    port = url.rpartition(":")[2]
    assert (await ask(url, "/", link.fingerprint, Host=f"evil.example:{port}")).status == 421
    assert (await ask(url, "/", link.fingerprint, Host=f"127.0.0.7:{far.port}")).status == 421


async def test_the_plain_port_stays_on_this_machine_and_tls_has_its_own(far: Running) -> None:
    assert far.gateway._listening.hosts[0] == "127.0.0.1"
    assert far.gateway._listening.secure_hosts == ("127.0.0.7",)
    assert server.EVERYWHERE == ("0.0.0.0", "::")
    assert far.gateway.url == f"http://127.0.0.1:{far.port}"
    assert (await request(far.port, "/healthz")).status == 200
    secure = far.gateway._listening.secure_port
    reader, writer = await asyncio.open_connection("127.0.0.7", secure)
    writer.write(f"GET / HTTP/1.1\r\nHost: 127.0.0.7:{secure}\r\n\r\n".encode())
    assert b"HTTP/1.1 200" not in await asyncio.wait_for(reader.read(), PATIENCE)
    writer.close()


async def test_the_secret_key_is_for_this_user_alone(far: Running, home: Home) -> None:
    file = home.root / "tls" / "gateway.pem"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


async def test_a_gateway_without_the_network_makes_no_link_for_it(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(home) as here:
        with pytest.raises(BadRequest, match="does not reach"):
            here.gateway.link(lan=True)
        assert not (home.root / "tls").exists()
    monkeypatch.setattr(server, "network_addresses", list)
    monkeypatch.setattr(wired, "EVERYWHERE", ("127.0.0.7",))
    async with running(home, lan=True) as here:
        with pytest.raises(BadRequest, match="in no network"):
            here.gateway.link(lan=True)


@pytest.mark.parametrize(
    ("auth", "said"), [({"mode": "none"}, "without authentication"), ({"token": "short"}, "could be guessed")]
)
async def test_the_network_is_not_let_in_without_a_good_secret(home: Home, auth: dict[str, Any], said: str) -> None:
    configure(home, gateway={"auth": auth})
    with pytest.raises(ConfigError, match=said):
        async with running(home, lan=True):
            pass


def test_a_certificate_says_what_browsers_want() -> None:
    made = make_certificate(["192.168.1.5", "fd00::2", "pal.local"], NOW)
    assert made.names == {"192.168.1.5", "fd00::2", "pal.local"}
    assert NOW + timedelta(days=CERTIFICATE_DAYS - 1) < made.ends_at < NOW + timedelta(days=CERTIFICATE_DAYS)
    assert parse_certificate(made.pem) == made
    assert make_certificate(["192.168.1.5"], NOW).fingerprint != made.fingerprint


def test_it_is_kept_until_its_end_is_near_or_the_machine_has_another_address(tmp_path: Path) -> None:
    now = NOW

    def kept(*names: str) -> str:
        own = LanCertificate(tmp_path, at(now))
        own.renew(names)
        return own.fingerprint

    first = kept("192.168.1.5", "pal")
    assert kept("192.168.1.5") == first
    now += timedelta(days=CERTIFICATE_DAYS - 32)
    assert kept("192.168.1.5") == first
    now += timedelta(days=3)
    second = kept("192.168.1.5")
    assert second != first
    third = kept("192.168.1.6")
    assert third != second


def test_a_running_one_takes_the_new_certificate(tmp_path: Path) -> None:
    own = LanCertificate(tmp_path, at(NOW))
    own.renew(["192.168.1.5"])
    context, first = own.context, own.fingerprint
    own.renew(["192.168.1.6"])
    assert own.context is context
    assert own.fingerprint != first


@pytest.mark.parametrize(
    "spoiled", [b"", b"nothing", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_a_file_that_is_spoiled_or_that_others_can_read_is_made_anew(tmp_path: Path, spoiled: bytes) -> None:
    own = LanCertificate(tmp_path, at(NOW))
    own.renew(["192.168.1.5"])
    file = tmp_path / "tls" / "gateway.pem"
    before = file.read_bytes()
    file.chmod(0o644)
    other = LanCertificate(tmp_path, at(NOW))
    other.renew(["192.168.1.5"])
    assert file.read_bytes() != before
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_bytes(spoiled)
    last = LanCertificate(tmp_path, at(NOW))
    last.renew(["192.168.1.5"])
    assert parse_certificate(file.read_bytes()).fingerprint == last.fingerprint


def test_addresses_of_this_machine_are_those_that_others_can_reach() -> None:
    """In a process of its own: here even asking for the way out is refused."""
    code = "from palinurus.gateway.http.server import network_addresses; print(*network_addresses())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    for address in map(ipaddress.ip_address, told.stdout.split()):
        assert [address.is_loopback, address.is_link_local, address.is_unspecified] == [False] * 3
