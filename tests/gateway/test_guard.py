"""The guard: where a request comes from, who it is, how often somebody may guess; and the register behind it."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import Running, request, running

from palinurus.config.home import Home
from palinurus.domain.errors import BadRequest, NotFound
from palinurus.gateway.auth.guard import (
    CONFIGURED,
    GUESSES,
    PEERS,
    WINDOW_MS,
    Guard,
    Guesses,
    Principal,
    granted_scopes,
    server_address,
)
from palinurus.gateway.protocol import Refused
from palinurus.operations.access import AccessStore, Register
from palinurus.operations.scopes import SCOPES, Scope, widened
from palinurus.storage.database import MemoryDatabase
from palinurus.testing.fakes import FakeClock, SeededIds

OWNERS = "the-secret-of-the-owner"


class Door:
    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.configured = OWNERS
        self.register = Register(AccessStore(MemoryDatabase()), clock, SeededIds())
        self.guard = Guard(self.register, server_address(1), lambda: self.configured, clock)
        self.died: list[str] = []
        self.guard.on_revoked.append(self.died.append)

    def status(self, secret: str, peer: str = "127.0.0.1") -> int:
        try:
            self.guard.identify((secret,), peer)
        except Refused as refused:
            return refused.status
        return 200


@pytest.fixture
def door(clock: FakeClock) -> Door:
    return Door(clock)


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:8", "", 200),
        ("localhost:8", "", 200),
        ("LOCALHOST:8", "HTTP://LOCALHOST:8", 200),
        ("[::1]:8", "http://[::1]:8", 200),
        ("127.0.0.1:8", "http://localhost:8", 200),
        ("pal.lan", "https://pal.lan", 200),
        ("pal.lan:8", "http://pal.lan:8", 200),
        ("proxy.lan:99", "https://proxy.lan:99", 200),
        ("127.0.0.1:8", "https://ui.example", 200),
        ("proxy.lan:8", "", 421),
        ("", "", 421),
        ("127.0.0.1", "", 421),
        ("127.0.0.1:80", "", 421),
        ("127.0.0.2:8", "", 421),
        ("192.168.1.5:8", "", 421),
        ("::1:8", "", 421),
        ("localhost.:8", "", 421),
        ("rebound.example:8", "", 421),
        ("pal.lan.evil.example", "", 421),
        ("127.0.0.1:8", "http://127.0.0.1", 403),
        ("127.0.0.1:8", "http://127.0.0.1:9", 403),
        ("127.0.0.1:8", "https://ui.example.evil.example", 403),
        ("127.0.0.1:8", "http://ui.example", 403),
        ("127.0.0.1:8", "null", 403),
        ("127.0.0.1:8", "chrome-extension://abc", 403),
    ],
)
def test_only_known_names_and_pages_pass(host: str, origin: str, status: int) -> None:
    place = server_address(8, hosts=("pal.lan", "proxy.lan:99"), origins=("https://ui.example",))
    assert checked(place, host, origin) == status


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("192.168.1.5:8", "http://192.168.1.5:8", 200),
        ("[fe80::1]:8", "", 200),
        ("127.0.0.1:8", "", 200),
        ("192.168.1.5", "", 421),
        ("192.168.1.5:9", "", 421),
        ("rebound.example:8", "http://rebound.example:8", 421),
        ("1.2.3.4.evil.example:8", "", 421),
        ("192.168.1.5:8", "http://192.168.1.6:8", 403),
        ("192.168.1.5:8", "https://evil.example", 403),
    ],
)
def test_on_the_network_a_bare_address_passes_and_a_name_made_to_point_here_does_not(
    host: str, origin: str, status: int
) -> None:
    assert checked(server_address(8, any_address=True), host, origin) == status


def test_at_port_80_the_port_may_be_left_out() -> None:
    assert checked(server_address(80), "localhost", "http://localhost") == 200


def checked(place: Any, host: str, origin: str) -> int:
    try:
        place.check({"host": host, **({"origin": origin} if origin else {})})
    except Refused as refused:
        return refused.status
    return 200


@pytest.mark.parametrize("path", ["/healthz", "/v1/models", "/schema", "/nothing"])
async def test_every_route_checks_host_and_origin_first(served: Running, path: str) -> None:
    port, bearer = served.port, f"Bearer {served.token}"
    assert (await request(port, path, host=f"evil.example:{port}", Authorization=bearer)).status == 421
    assert (await request(port, path, Origin="https://evil.example", Authorization=bearer)).status == 403
    assert (await request(port, path, Host="-", Authorization=bearer)).status in (400, 421)
    told = await request(port, path, Origin=f"http://localhost:{port}", Authorization=bearer)
    assert told.status == (404 if path == "/nothing" else 200)


async def test_ipv6_loopback_is_served_too(served: Running) -> None:
    if "::1" not in served.gateway._listening.hosts:
        pytest.skip("this machine has no IPv6 loopback")
    told = await request(served.port, "/healthz", host=f"[::1]:{served.port}", address="::1")
    assert told.status == 200


async def test_two_hosts_or_origins_in_one_request_are_refused(served: Running) -> None:
    port = served.port
    for extra in ("Host: evil.example", f"Origin: http://localhost:{port}\r\nOrigin: https://evil.example"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"GET /healthz HTTP/1.1\r\nHost: localhost:{port}\r\n{extra}\r\nConnection: close\r\n\r\n".encode()
        )
        assert b" 400 " in (await asyncio.wait_for(reader.read(), 60)).split(b"\r\n")[0]
        writer.close()


@pytest.mark.parametrize("name", ["token", "access_token", "Password", "api_key"])
async def test_a_credential_in_an_address_is_refused(served: Running, name: str) -> None:
    told = await request(served.port, f"/v1/models?{name}={served.token}")
    assert (told.status, told.json["code"]) == (400, "TOKEN_IN_URL")


async def test_errors_are_problems_and_carry_the_headers_of_the_house(served: Running) -> None:
    told = await request(served.port, "/nothing")
    assert told.headers["content-type"] == "application/problem+json"
    assert told.json == {"type": "about:blank", "title": "Not Found", "status": 404, "code": "NOT_FOUND"}
    assert told.headers["x-frame-options"] == "DENY"
    assert told.headers["x-content-type-options"] == "nosniff"
    assert "server" not in told.headers
    told = await request(served.port, "/healthz", method="POST")
    assert (told.status, told.json["code"]) == (405, "WRONG_METHOD")


async def test_a_body_that_is_told_to_be_huge_is_refused_before_it_comes(served: Running) -> None:
    told = await request(served.port, "/v1/chat/completions", method="POST", Content_Length="30000000")
    assert told.status == 413


async def test_a_mistake_of_ours_is_told_as_one_and_costs_one_request(
    served: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(served.gateway._guard, "identify", lambda *_: 1 / 0)
    told = await request(served.port, "/schema")
    assert told.status == 200
    told = await request(served.port, "/v1/models", Authorization="Bearer x")
    assert told.status == 500
    assert "ZeroDivision" not in told.body.decode()
    assert (await request(served.port, "/healthz")).status == 200


async def test_what_a_client_says_about_a_proxy_does_not_move_it(served: Running) -> None:
    for number in range(GUESSES + 5):
        told = await request(served.port, "/v1/models", Authorization="Bearer x", X_Forwarded_For=f"10.0.0.{number}")
    assert told.status == 429
    assert told.headers["retry-after"]


async def test_a_client_that_dawdles_over_its_headers_is_dropped(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palinurus.gateway.http.connections.HEADER_SECONDS", 0.05)
    async with running(home) as served:
        for said in (b"", b"GET / HTT", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(said)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 60) == b""
            writer.close()


@pytest.mark.parametrize("bad", [b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET \xff HTTP/1.1\r\n\r\n"])
async def test_bytes_that_are_no_http_are_answered_and_not_logged(
    served: Running, bad: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(bad)
    assert (await asyncio.wait_for(reader.read(), 60)).startswith(b"HTTP/1.1 400")
    writer.close()
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


# Who it is.


async def test_the_owners_secret_may_do_everything_and_a_token_what_it_was_made_for(door: Door) -> None:
    assert door.guard.identify((OWNERS,), "").may("admin")
    _, secret = await door.register.make_token("phone", ["write"])
    phone = door.guard.identify((secret,), "")
    assert [scope for scope in SCOPES if phone.may(scope)] == ["read", "write"]


async def test_only_the_digest_of_a_token_is_kept(clock: FakeClock) -> None:
    store = AccessStore(MemoryDatabase())
    token, secret = await Register(store, clock, SeededIds()).make_token("phone", ["read"])
    assert secret not in repr(await store.tokens())
    assert token.digest in repr(await store.tokens())


async def test_a_token_that_is_rotated_revoked_or_expired_is_dead(door: Door) -> None:
    _, first = await door.register.make_token("phone", ["read"], days=1)
    phone = door.guard.identify((first,), "")
    _, second = await door.register.rotate_token("phone")
    assert (door.status(first), door.status(second)) == (401, 200)
    assert not door.guard.is_valid(phone)
    renewed = door.guard.identify((second,), "")
    assert door.guard.is_valid(renewed)
    door.clock.now += timedelta(days=1)
    assert door.status(second) == 401
    assert not door.guard.is_valid(renewed)
    _, third = await door.register.make_token("phone", ["read"])
    await door.register.revoke_token("phone")
    assert door.status(third) == 401
    assert door.died == [phone.id, door.register._find_token("phone").id]


async def test_a_dead_token_stays_dead(door: Door) -> None:
    await door.register.make_token("phone", ["read"])
    await door.register.revoke_token("phone")
    with pytest.raises(BadRequest, match="no longer valid"):
        await door.register.rotate_token("phone")


async def test_rotations_at_the_same_time_leave_one_living_secret(door: Door) -> None:
    await door.register.make_token("phone", ["read"])
    made = await asyncio.gather(*(door.register.rotate_token("phone") for _ in range(5)))
    assert [door.status(secret) for _, secret in made].count(200) == 1


async def test_two_living_tokens_do_not_share_a_name(door: Door) -> None:
    await door.register.make_token("phone", ["read"])
    with pytest.raises(BadRequest, match="already"):
        await door.register.make_token("phone", ["read"])
    await door.register.revoke_token("phone")
    await door.register.make_token("phone", ["read"])


@pytest.mark.parametrize("wrong", [{"name": ""}, {"name": "x\n"}, {"scopes": []}, {"scopes": ["root"]}, {"days": 0}])
async def test_a_token_that_makes_no_sense_is_not_made(door: Door, wrong: dict[str, Any]) -> None:
    asked = {"name": "phone", "scopes": ["read"]} | wrong
    with pytest.raises(BadRequest):
        await door.register.make_token(asked.pop("name"), asked.pop("scopes"), **asked)
    with pytest.raises(NotFound):
        await door.register.revoke_token("phone")


async def test_what_was_kept_is_there_after_a_restart(clock: FakeClock) -> None:
    store = AccessStore(MemoryDatabase())
    register = Register(store, clock, SeededIds())
    _, secret = await register.make_token("phone", ["read"])
    _, dead = await register.make_token("old", ["read"])
    await register.revoke_token("old")
    register.holder_of(secret)
    await register.flush()
    again = Register(store, clock, SeededIds(1))
    await again.load()
    assert again.holder_of(secret) is not None
    assert again.holder_of(dead) is None
    assert next(token for token in again.tokens() if token.name == "phone").last_used_at == clock.now_ms()


def test_a_configured_secret_that_changes_kills_the_old_one(door: Door) -> None:
    owner = door.guard.identify((OWNERS,), "")
    assert door.guard.is_valid(owner)
    door.configured = "another-secret-entirely"
    assert not door.guard.is_valid(owner)
    assert door.died == [CONFIGURED]
    assert (door.status(OWNERS), door.status("another-secret-entirely")) == (401, 200)
    door.configured = ""
    assert door.status("") == 401
    assert door.status("another-secret-entirely") == 401


def test_an_open_door_asks_for_nothing(clock: FakeClock) -> None:
    guard = Guard(
        Register(AccessStore(MemoryDatabase()), clock, SeededIds()), server_address(1), lambda: "", clock, no_auth=True
    )
    assert guard.identify(("whatever",), "").may("admin")
    assert not guard.is_valid(Principal("somebody", "of yesterday", frozenset({"admin"})))


# Guessing.


def test_a_valid_credential_passes_whoever_guesses(door: Door) -> None:
    statuses = [door.status(f"guess {number}") for number in range(GUESSES * 2)]
    assert statuses == [401] * GUESSES + [429] * GUESSES
    assert door.status(OWNERS) == 200
    assert door.status("guess", peer="10.0.0.1") == 401
    door.clock.now += timedelta(milliseconds=WINDOW_MS)
    assert door.status("guess") == 401


def test_many_peers_together_have_an_allowance_too(door: Door) -> None:
    statuses = [door.status("guess", peer=f"10.0.{number // 250}.{number % 250}") for number in range(GUESSES * 11)]
    assert statuses.count(401) == GUESSES * 10
    assert door.status(OWNERS) == 200


def test_peers_are_remembered_up_to_a_number(clock: FakeClock) -> None:
    guesses = Guesses(clock)
    for number in range(PEERS * 3):
        guesses.count(f"peer {number}")
    assert len(guesses._by_peer) <= PEERS + 1


def test_a_clock_that_is_set_back_does_not_lengthen_the_wait(door: Door) -> None:
    for _ in range(GUESSES * 2):
        door.status("guess")
    door.clock.now -= timedelta(hours=1)
    assert door.status("guess") == 401


@given(held=st.sets(st.sampled_from(SCOPES)), asked=st.lists(st.sampled_from([*SCOPES, "operator.admin", "root", ""])))
def test_nobody_gets_more_than_his_credential_holds(held: set[Scope], asked: list[str]) -> None:
    granted = granted_scopes(held, asked)
    principal, whole = (Principal("", "", frozenset(scopes)) for scopes in (granted, widened(held)))
    assert set(granted) <= set(widened(held))
    assert all(whole.may(scope) for scope in SCOPES if principal.may(scope))
    if not asked:
        assert granted == widened(held)
