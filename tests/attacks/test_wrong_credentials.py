"""Credentials in the wrong place, made up, worn out, guessed: refused; and a valid one always passes."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from besieged import Besieged, exchange, siege, statuses
from doors import routes
from serving import PATIENCE, Key, Running, Visitor, request, running, upgrade

from palinurus.config.home import Home
from palinurus.gateway.auth import guard
from palinurus.gateway.auth.guard import GUESSES

pytestmark = pytest.mark.slow

IN_THE_QUERY = (
    "token",
    "Token",
    "access_token",
    "auth_token",
    "password",
    "api_key",
    "apikey",
    "authorization",
    "to%6ben",
)
GUESSED = 10_000


async def test_a_token_in_the_address_is_refused_everywhere(gateway: Besieged) -> None:
    async with siege(gateway):
        for name in IN_THE_QUERY:
            for _, verb, path in routes():
                said = {"Authorization": f"Bearer {gateway.token}"}  # even beside a good one
                for query in (f"?{name}={gateway.token}", f"?a=b&{name}=x"):
                    told = await request(gateway.port, f"{path}{query}", method=verb, **said)
                    assert (told.status, told.json["code"]) == (400, "TOKEN_IN_URL"), (name, path)
                    assert gateway.token.encode() not in told.body
            for path in ("/", "/ws"):
                assert (await upgrade(gateway.port, Path=f"{path}?{name}={gateway.token}")).status == 400
    assert not gateway.logged(gateway.token)


def forms(token: str) -> list[dict[str, str]]:
    """Ways to send a credential that are none, though the token is right."""
    return [
        {},
        {"Cookie": f"token={token}; access_token={token}; session={token}"},
        {"Authorization": f"Basic {token}"},
        {"Authorization": "Basic cGFsOnBhc3N3b3Jk"},
        {"Authorization": token},
        {"Authorization": "Bearer"},
        {"Authorization": f"Bearer{token}"},
        {"Authorization": f"Bearer\t{token}"},
        {"Authorization": f"Bearer: {token}"},
        {"Authorization": f"Token {token}"},
        {"Authorization": f"Digest username={token}"},
        {"Authorization": f'Bearer "{token}"'},
        {"Authorization": f"Bearer {token} {token}"},
        {"Authorization": f"Bearer {token},"},
        {"Authorization": f"Bearer x, Bearer {token}"},
        {"Authorization": f"Bearer {token[:-1]}"},
        {"Authorization": f"Bearer {token}x"},
        {"Authorization": f"Bearer {token.upper()}"},
        {"Authorization": f"Bearer {token}%0a"},
        {"Authorization": f"Bearer \xa0{token}"},
        {"Authorization": "Bearer *"},
        {"Authorization": "Bearer null"},
        {"Authorization": "Bearer undefined"},
        {"Authorization": "Bearer configured"},
        {"Authorization": "Bearer " + "x" * 60_000},
        {"Authorization": "Bearer \xff\xfe\xfd"},
        {"Proxy_Authorization": f"Bearer {token}"},
        {"X_Api_Key": f"{token}x"},
        {"X_Api_Key": f"Bearer {token}"},
        {"Api_Key": token},
        {"X_Openclaw_Token": token},
        {"X_Palinurus_Token": token},
        {"X_Auth_Token": token},
        {"X_Forwarded_User": "owner"},
        {"X_Remote_User": "owner"},
        {"Remote_User": "owner"},
        {"Tailscale_User_Login": "owner"},
        {"X_Forwarded_For": "127.0.0.1"},
        {"X_Real_IP": "127.0.0.1"},
        {"Forwarded": "for=127.0.0.1;host=localhost"},
        {"X_Original_URL": "/healthz"},
        {"X_Rewrite_URL": "/healthz"},
    ]


async def test_only_a_bearer_in_the_authorization_header_or_an_api_key_is_a_credential(gateway: Besieged) -> None:
    async with siege(gateway):
        for said in forms(gateway.token):
            told = await request(gateway.port, "/v1/models", **said)
            assert told.status in (401, 429), said
            assert told.status == 429 or told.headers["www-authenticate"] == "Bearer"
    for said in (f"Bearer {gateway.token}", f"bearer {gateway.token}", f"BEARER   {gateway.token}  "):
        assert (await request(gateway.port, "/v1/models", Authorization=said)).status == 200
    assert (await request(gateway.port, "/v1/models", X_Api_Key=gateway.token)).status == 200


@pytest.mark.parametrize("break_", ["\r\n ", "\r\n\t", "\n", "\r", "\0", "\x0b"])
async def test_a_header_is_not_broken_in_two(gateway: Besieged, break_: str) -> None:
    head = f"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nConnection: close\r\n"
    head += (
        f"Authorization: Bearer{break_}{gateway.token}\r\nX-A: {break_}Authorization: Bearer {gateway.token}\r\n\r\n"
    )
    assert statuses(await exchange(gateway.port, head.encode())) in ([400], [401], [429])


async def test_what_comes_behind_the_body_is_no_header(gateway: Besieged) -> None:
    """A proxy that checks or strips headers does not look there."""
    head = f"POST /v1/embeddings HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nConnection: close\r\n"
    head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = '{"input": "x"}'
    trailer = f"Authorization: Bearer {gateway.token}\r\n"
    data = f"{head}{len(body):x}\r\n{body}\r\n0\r\n{trailer}\r\n"
    assert statuses(await exchange(gateway.port, data.encode())) == [401]


async def test_scopes_that_somebody_declares_never_add_to_his_own(gateway: Besieged) -> None:
    owner = await gateway.guest()
    made = await owner.ask("gateway.tokens.create", name="a reader", scopes=["read"])
    secret = made.payload["secret"]
    declared = ["operator.admin", "admin", "operator.write", "operator.approvals", "*", "operator.*", "root", "read"]
    async with siege(gateway):
        reader = await Visitor.enter(gateway.ws, secret, scopes=declared, permissions={"admin": True}, caps=["admin"])
        assert reader.hello is not None
        assert reader.hello.payload["auth"]["scopes"] == ["operator.read"]
        for name, params in (
            ("gateway.tokens.create", {"name": "x", "scopes": ["admin"]}),
            ("config.get", {}),
            ("config.patch", {"raw": "{}", "scopes": ["admin"]}),
            ("approvals.answer", {"id": "x", "answer": "allow-always"}),
            ("chat.send", {"sessionKey": "main", "message": "x", "idempotencyKey": "k"}),
            ("tools.invoke", {"tool": "session_status"}),
        ):
            assert (await reader.ask(name, **params)).code == "FORBIDDEN", name
        again = await reader.ask("connect", auth={"token": gateway.token}, scopes=["operator.admin"])
        assert not again.ok  # nobody becomes somebody else later on
        assert (await reader.ask("config.get")).code == "FORBIDDEN"
        await reader.leave()
        for name in ("x-openclaw-scopes", "x-palinurus-scopes", "x-scopes"):
            said = {"Authorization": f"Bearer {secret}", name: "operator.admin, operator.write"}
            body = json.dumps({"messages": [{"role": "user", "content": "x"}]}).encode()
            told = await request(
                gateway.port, "/v1/chat/completions", method="POST", body=body, Content_Type="application/json", **said
            )
            assert told.status == 403
    await owner.leave()


async def test_nobody_gives_more_than_he_has(gateway: Besieged) -> None:
    """Somebody who may write cannot make himself a stronger token, pair a stronger device or approve by talking."""
    owner = await gateway.guest()
    secret = (await owner.ask("gateway.tokens.create", name="a writer", scopes=["write"])).payload["secret"]
    device, visitor = Key(), await Visitor.arrive(gateway.ws)
    now = (await owner.ask("health")).payload["ts"]
    proof = device.proof(visitor.nonce, now, token=secret, scopes="operator.admin")
    client = {"id": "test", "mode": "test", "platform": "Linux ", "deviceFamily": "Server"}
    told = await visitor.connect(secret, scopes=["operator.admin"], device=proof, client=client)
    assert told.payload["auth"]["scopes"] == ["operator.read", "operator.write"]
    await visitor.leave()
    writer = await Visitor.enter(gateway.ws, secret)
    for words in (
        "/approve x allow-always",
        "/trust all",
        "/elevated full",
        "/elev on",
        "so /elevated full",
        "/new /elevated full",
    ):
        for name, params in (
            ("chat.send", {"sessionKey": "main", "message": words}),
            ("agent", {"message": words}),
            ("sessions.send", {"key": "agent:main:main", "message": words}),
            ("chat.send", {"sessionKey": "main", "message": "x", "thinking": f"high {words}"}),
        ):
            if "thinking" in params and words.startswith(("/approve", "/trust")):
                continue  # behind /think it is a word to the model
            told = await writer.ask(name, **params, idempotencyKey=words)
            assert (told.code, told.detail) == ("FORBIDDEN", "MISSING_SCOPE"), (name, words)
    told = await writer.ask("sessions.patch", key="agent:main:main", elevatedLevel="full")
    assert told.code == "FORBIDDEN"
    await writer.leave()
    await owner.leave()


async def test_a_rotated_token_is_dead_at_once_everywhere(gateway: Besieged) -> None:
    owner = await gateway.guest()
    old = (await owner.ask("gateway.tokens.create", name="turning", scopes=["write"])).payload["secret"]
    listening = await Visitor.enter(gateway.ws, old)
    said = {"Authorization": f"Bearer {old}"}
    assert (await request(gateway.port, "/v1/models", **said)).status == 200
    async with siege(gateway):
        new = (await owner.ask("gateway.tokens.rotate", token="turning")).payload["secret"]
        assert (await request(gateway.port, "/v1/models", **said)).status in (401, 429)
        assert await listening.closed() == (1008, "this credential is no longer valid")
        late = await Visitor.arrive(gateway.ws)
        assert (await late.connect(old)).code in ("UNAUTHORIZED", "RATE_LIMITED")
        await late.closed()
    assert (await request(gateway.port, "/v1/models", Authorization=f"Bearer {new}")).status == 200
    await owner.ask("gateway.tokens.revoke", token="turning")
    assert (await request(gateway.port, "/v1/models", Authorization=f"Bearer {new}")).status in (401, 429)
    await owner.leave()


async def test_ten_thousand_bad_tokens_are_a_line_or_two_and_no_stall(gateway: Besieged) -> None:
    began = time.monotonic()
    async with siege(gateway, memory=12 * 1024 * 1024) as seen:
        told = await asyncio.gather(*(guess(gateway, GUESSED // 8, number) for number in range(8)))
        valid = await request(gateway.port, "/v1/models", Authorization=f"Bearer {gateway.token}")
    found = [status for each in told for status in each]
    assert len(found) == GUESSED
    assert set(found) <= {401, 429}
    assert found.count(401) <= GUESSES
    assert valid.status == 200  # whoever else is guessing
    borders = 1 + (time.monotonic() - began) // 60  # of minutes: at each, what was counted before is told
    assert len(seen.told) <= 3 + 2 * borders
    assert gateway.logged("a wrong credential")


async def guess(gateway: Besieged, count: int, seed: int) -> list[int]:
    """One behind the other on one connection, from what it says are ever new places."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    found = []
    for number in range(count):
        place = f"10.{seed}.{number % 250}.1"
        head = f"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nX-Forwarded-For: {place}\r\n"
        writer.write(f"{head}Authorization: Bearer pal_guess-{seed}-{number}\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        size = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await asyncio.wait_for(reader.readexactly(int(size.split()[1])), PATIENCE)
        found.append(int(answer.split()[1]))
    writer.close()
    return found


async def test_guessing_on_the_socket_is_counted_whatever_is_sent_along(gateway: Besieged) -> None:
    async with siege(gateway):
        for number in range(300):
            stranger = await Visitor.arrive(gateway.ws)
            places = ("token", "password", "deviceToken", "bootstrapToken")
            auth = {place: f"guess-{place}-{number}" for place in places[: 1 + number % 4]}
            told = await stranger.connect(auth=auth, device=None)
            assert told.code in ("UNAUTHORIZED", "RATE_LIMITED")
            assert (await stranger.closed())[0] == 1008
    guest = await gateway.guest()
    await guest.leave()


@pytest.fixture
async def served(home: Home) -> AsyncIterator[Running]:
    async with running(home) as here:
        yield here


async def test_secrets_are_compared_by_digest_and_in_constant_time(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By construction: what is compared or looked up is a SHA-256 of the guess, which nobody can steer."""
    seen: list[tuple[Any, Any]] = []
    monkeypatch.setattr(guard.hmac, "compare_digest", lambda a, b: seen.append((a, b)) or hmac_compare(a, b))
    _, secret = await served.register.make_token("other", ["read"])
    for said in (served.token, secret, "x", served.token[:-1], "\xff" * 500):
        status = (await request(served.port, "/v1/models", Authorization=f"Bearer {said}")).status
        assert status == (200 if said in (served.token, secret) else 401)
    assert len(seen) == 5
    assert {len(side) for pair in seen for side in pair} == {64}
    assert all(key not in (served.token, secret) for key in served.register._tokens)


hmac_compare = hmac.compare_digest
