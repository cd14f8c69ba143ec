"""The WebSocket through a real server: who comes in, what is answered, and who is shown out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket as sockets
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from serving import PATIENCE, Running, Visitor, request, running, upgrade

from palinurus.config.home import Home
from palinurus.gateway.protocol import MAX_FIRST_FRAME, MAX_FRAME
from palinurus.gateway.websocket import requests, socket
from palinurus.gateway.websocket.methods import ClientSession, Method
from palinurus.runtime import gateway as wiring


class Nothing(msgspec.Struct, frozen=True):
    pass


class Waiting:
    """Two methods that end when the test says so: one has effects, one only looks."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.begun = 0
        self.done = 0
        self.cut_off = 0

    async def wait(self, _: ClientSession, __: Nothing, ___: str) -> dict[str, int]:
        self.begun += 1
        try:
            await asyncio.wait_for(self.go_on.wait(), PATIENCE)
        except asyncio.CancelledError:
            self.cut_off += 1
            raise
        self.done += 1
        return {"done": self.done}

    def methods(self) -> tuple[Method, ...]:
        return (
            Method("test.write", Nothing, dict[str, int], "write", self.wait),
            Method("test.read", Nothing, dict[str, int], "read", self.wait),
        )

    async def until(self, **wanted: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while any(getattr(self, name) != value for name, value in wanted.items()):
                await asyncio.sleep(0)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    made = Waiting()
    monkeypatch.setattr(wiring, "METHODS", (*wiring.METHODS, *made.methods()))
    return made


@pytest.fixture
async def served_with(waiting: Waiting, home: Home) -> AsyncIterator[Running]:
    async with running(home) as here:
        yield here


async def test_a_client_is_challenged_and_hears_what_it_may_do_and_how_much(served: Running) -> None:
    visitor = await Visitor.arrive(served.ws)
    assert len(visitor.nonce) >= 16
    told = await visitor.connect(served.token, scopes=["operator.read", "operator.write"])
    assert told.ok
    hello = told.payload
    assert hello["type"] == "hello-ok"
    assert hello["protocol"] == 4
    assert {"chat.send", "chat.history", "agent.wait"} <= set(hello["features"]["methods"])
    assert {"agent", "chat", "tick", "shutdown"} <= set(hello["features"]["events"])
    assert hello["auth"] == {"role": "operator", "scopes": ["operator.read", "operator.write"]}
    assert hello["policy"]["maxPayload"] == MAX_FRAME
    assert served.gateway.standing().clients == 1
    await visitor.leave()


async def test_two_challenges_differ(served: Running) -> None:
    first, second = await Visitor.arrive(served.ws), await Visitor.arrive(served.ws)
    assert first.nonce != second.nonce
    await first.leave()
    await second.leave()


@pytest.mark.parametrize("auth", [{}, {"token": "wrong"}, {"password": "wrong"}, {"deviceToken": "pal_wrong"}])
async def test_who_has_no_valid_credential_is_told_and_shown_out(served: Running, auth: dict[str, str]) -> None:
    visitor = await Visitor.arrive(served.ws)
    told = await visitor.connect(auth=auth)
    assert told.code == "UNAUTHORIZED"
    assert told.detail == ("AUTH_TOKEN_MISMATCH" if auth else "AUTH_TOKEN_MISSING")
    assert (await visitor.closed())[0] == 1008


@pytest.mark.parametrize("place", ["token", "password", "deviceToken"])
async def test_the_secret_is_taken_from_wherever_a_client_puts_it(served: Running, place: str) -> None:
    visitor = await Visitor.arrive(served.ws)
    assert (await visitor.connect(auth={place: served.token})).ok
    await visitor.leave()


async def test_nothing_is_answered_before_connect(served: Running) -> None:
    visitor = await Visitor.arrive(served.ws)
    await visitor.send("status")
    assert await visitor.closed() == (1008, "the first request must be connect")


@pytest.mark.parametrize("said", [{"role": "node"}, {"minProtocol": 5, "maxProtocol": 9}, {"maxProtocol": 2}])
async def test_another_role_or_protocol_is_refused(served: Running, said: dict[str, Any]) -> None:
    visitor = await Visitor.arrive(served.ws)
    assert not (await visitor.connect(served.token, **said)).ok
    assert (await visitor.closed())[0] == 1008


async def test_scopes_that_a_client_declares_never_add_to_its_credential(served: Running) -> None:
    _, secret = await served.register.make_token("reader", ["read"])
    visitor = await Visitor.enter(served.ws, secret, scopes=["operator.admin", "operator.write", "operator.read"])
    assert visitor.hello is not None
    assert visitor.hello.payload["auth"]["scopes"] == ["operator.read"]
    assert (await visitor.ask("sessions.list")).ok
    message = {"sessionKey": "agent:main:main", "message": "hello", "idempotencyKey": "k"}
    told = await visitor.ask("chat.send", **message)
    assert (told.code, told.detail) == ("FORBIDDEN", "MISSING_SCOPE")
    assert (await visitor.ask("gateway.tokens.create", name="mine", scopes=["admin"])).code == "FORBIDDEN"
    await visitor.leave()
    assert served.runtime.services.dispatcher.busy == 0


async def test_a_client_may_ask_for_less_than_it_could_have(served: Running) -> None:
    visitor = await Visitor.enter(served.ws, served.token, scopes=["read"])
    assert (await visitor.ask("gateway.tokens.list")).code == "FORBIDDEN"
    assert (await visitor.ask("sessions.list")).ok
    await visitor.leave()


@pytest.mark.parametrize(
    "words",
    ["/approve x allow-always", "/trust all", "/elevated full", "please /elevated on and go", "/new /elevated full"],
)
async def test_who_may_only_talk_cannot_approve_by_talking(served: Running, words: str) -> None:
    _, secret = await served.register.make_token("talker", ["write"])
    visitor = await Visitor.enter(served.ws, secret)
    told = await visitor.ask("chat.send", sessionKey="agent:main:main", message=words, idempotencyKey="k")
    assert told.code == "FORBIDDEN"
    told = await visitor.ask("chat.send", sessionKey="agent:main:main", message="/status", idempotencyKey="s")
    assert told.ok
    await visitor.leave()


@pytest.mark.parametrize("method", ["agent.submit", "house.hand_over", "gateway.stop"])
async def test_what_is_for_this_machine_cannot_be_called_from_afar(served: Running, method: str) -> None:
    visitor = await Visitor.enter(served.ws, served.token)
    assert (await visitor.ask(method)).code == "UNKNOWN_METHOD"
    await visitor.leave()


async def test_a_run_is_told_to_the_one_who_asked(served: Running) -> None:
    visitor = await Visitor.enter(served.ws, served.token)
    told = await visitor.ask("chat.send", sessionKey="agent:main:main", message="hello", idempotencyKey="k")
    run = told.payload["runId"]
    while (event := await visitor.event("chat"))["payload"]["state"] != "final":
        pass
    assert event["payload"]["runId"] == run
    numbers = [event["seq"] for event in visitor.events]
    assert numbers == list(range(1, len(numbers) + 1))
    await visitor.leave()


@pytest.mark.parametrize(
    "frame",
    [
        "no json at all",
        "[]",
        "{}",
        '{"type":"res","id":"1","method":"status"}',
        '{"type":"req","id":1,"method":"status"}',
        '{"type":"req","id":"1","method":"status","params":' + "[" * 50_000,
        '{"type":"req","id":"1"}',
        "",
        b"\xff\xfe\x00",
        b'{"type":"req","id":"1","method":"\xff"}',
    ],
)
@pytest.mark.parametrize("known", [False, True])
async def test_a_malformed_frame_ends_its_connection_and_no_other(
    served: Running, frame: str | bytes, known: bool
) -> None:
    other = await Visitor.enter(served.ws, served.token)
    visitor = await Visitor.arrive(served.ws)
    if known:
        await visitor.connect(served.token)
    await visitor.shout(frame)
    assert (await visitor.closed())[0] in (1007, 1008)
    assert (await other.ask("sessions.list")).ok
    await other.leave()


@pytest.mark.parametrize("params", ["[]", "7", '"x"', '{"limit": "many"}', '{"sessionKey": 5}', "[" * 900 + "]" * 900])
async def test_wrong_parameters_are_told_and_the_connection_lives(served: Running, params: str) -> None:
    visitor = await Visitor.enter(served.ws, served.token)
    await visitor.socket.send(f'{{"type":"req","id":"x","method":"chat.history","params":{params}}}')
    assert (await visitor.answer("x")).code == "INVALID_REQUEST"
    await visitor.socket.send('{"type":"req","id":"y","method":"gateway.status","params":null}')
    assert (await visitor.answer("y")).ok
    await visitor.leave()


async def test_the_first_frame_is_small_and_later_ones_may_be_large(served: Running) -> None:
    stranger = await Visitor.arrive(served.ws)
    await stranger.shout("x" * (MAX_FIRST_FRAME + 1))
    assert (await stranger.closed())[0] == 1009
    guest = await Visitor.enter(served.ws, served.token)
    await guest.socket.send(json.dumps({"type": "req", "id": "x" * (4 * MAX_FIRST_FRAME), "method": "gateway.status"}))
    assert (await guest.frame())["ok"]
    await guest.shout("x" * (MAX_FRAME + 1))
    assert (await guest.closed())[0] == 1009


async def test_a_first_frame_in_many_pieces_is_counted_as_one(served: Running) -> None:
    stranger = await Visitor.arrive(served.ws)

    async def pieces() -> AsyncIterator[str]:
        for _ in range(100):
            yield "x" * 1024

    await stranger.shout(pieces())
    assert (await stranger.closed())[0] == 1009


async def test_who_says_nothing_is_shown_out_in_time(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "CONNECT_SECONDS", 0.05)
    visitor = await Visitor.arrive(served.ws)
    assert await visitor.closed() == (1008, "connect did not arrive in time")


async def test_of_strangers_the_oldest_goes_first_and_guests_stay(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "MAX_UNKNOWN", 3)
    guest = await Visitor.enter(served.ws, served.token)
    strangers = [await Visitor.arrive(served.ws) for _ in range(5)]
    assert [(await each.closed())[0] for each in strangers[:2]] == [1013, 1013]
    assert (await strangers[2].connect(served.token)).ok
    assert (await guest.ask("sessions.list")).ok
    for each in (guest, *strangers[2:]):
        await each.leave()


async def test_a_flood_of_requests_is_told_to_wait_and_the_rest_is_answered(
    served_with: Running, waiting: Waiting
) -> None:
    visitor = await Visitor.enter(served_with.ws, served_with.token)
    other = await Visitor.enter(served_with.ws, served_with.token)
    numbers = [await visitor.send("test.read") for _ in range(200)]
    refused = [await visitor.answer(number) for number in numbers[requests.AT_ONCE :]]
    assert {told.code for told in refused} == {"BUSY"}
    assert all(told.error["retryable"] for told in refused)
    assert (await other.ask("sessions.list")).ok
    waiting.go_on.set()
    answered = [await visitor.frame() for _ in range(requests.AT_ONCE)]
    assert {frame["id"] for frame in answered} == set(numbers[: requests.AT_ONCE])
    await visitor.leave()
    await other.leave()


async def test_a_request_with_effects_is_finished_though_its_client_has_gone(
    served_with: Running, waiting: Waiting
) -> None:
    visitor = await Visitor.enter(served_with.ws, served_with.token)
    await visitor.send("test.write")
    await visitor.send("test.read")
    await waiting.until(begun=2)
    await visitor.leave()
    await waiting.until(cut_off=1)
    waiting.go_on.set()
    await waiting.until(done=1)


async def test_ticks_come_whatever_else_is_said(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "TICK_MS", 10)
    visitor = await Visitor.enter(served.ws, served.token)
    for _ in range(3):
        assert (await visitor.event("tick"))["payload"]["ts"] > 0
        assert (await visitor.ask("gateway.status")).ok
    await visitor.leave()


async def test_a_client_that_is_slow_misses_events_and_sees_it_by_the_gap(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = await Visitor.enter(served.ws, served.token)
    await visitor.ask("sessions.subscribe", sessionKey="*")
    hub = served.gateway._context.hub
    for number in range(3 * requests.WAITING_OUT):
        hub.publish("agent", "agent:main:main", lambda number=number: {"number": number})  # type: ignore[misc]
    heard = [await visitor.event("agent") for _ in range(requests.WAITING_OUT)]
    assert [event["payload"]["number"] for event in heard] == list(range(requests.WAITING_OUT))
    hub.publish("agent", "agent:main:main", lambda: {"number": "last"})
    last = await visitor.event("agent")
    assert last["payload"]["number"] == "last"
    assert last["seq"] - heard[-1]["seq"] > 1
    await visitor.leave()


async def test_a_client_that_asks_and_does_not_read_is_dropped(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MAX_BUFFERED", 100_000)
    monkeypatch.setattr(requests, "FLUSH_SECONDS", 0.05)
    visitor = await deaf(served)
    async with asyncio.timeout(PATIENCE):
        while served.gateway.standing().clients:
            with_effort(visitor, b'{"type":"req","id":"%s","method":"gateway.status"}' % (b"x" * 60_000))
            await asyncio.sleep(0)
    visitor.close()


async def test_a_client_that_reads_nothing_at_all_is_dropped_in_time(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "WRITE_SECONDS", 0.05)
    monkeypatch.setattr(requests, "FLUSH_SECONDS", 0.05)
    visitor = await deaf(served)
    with_effort(visitor, b'{"type":"req","id":"s","method":"sessions.subscribe","params":{"sessionKey":"*"}}')
    hub = served.gateway._context.hub
    async with asyncio.timeout(PATIENCE):
        while served.gateway.standing().clients:
            hub.publish("agent", "agent:main:main", lambda: {"words": "x" * 100_000})
            await asyncio.sleep(0)
    visitor.close()


async def deaf(served: Running) -> sockets.socket:
    """A guest who never reads again: a bare socket with small buffers."""
    bare = sockets.socket()
    bare.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
    bare.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(bare, ("127.0.0.1", served.port))
    head = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    head += "Sec-WebSocket-Key: c2l4dGVlbiBieXRlcyBvaw==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    await loop.sock_sendall(bare, head.encode())
    assert b" 101 " in await asyncio.wait_for(loop.sock_recv(bare, 64), PATIENCE)
    auth = json.dumps({"auth": {"token": served.token}})
    await loop.sock_sendall(bare, masked(f'{{"type":"req","id":"c","method":"connect","params":{auth}}}'.encode()))
    async with asyncio.timeout(PATIENCE):
        while not served.gateway.standing().clients:
            await asyncio.sleep(0)
    return bare


def masked(data: bytes) -> bytes:
    """A text frame of a client, with a mask of zeros."""
    size = len(data).to_bytes(8, "big")
    length = bytes([0x80 | len(data)]) if len(data) < 126 else bytes([0x80 | 127]) + size
    return b"\x81" + length + b"\0\0\0\0" + data


def with_effort(bare: sockets.socket, data: bytes) -> None:
    """As much as goes out now; a frame that is cut in two goes on with the next one, which is no frame of ours."""
    with contextlib.suppress(BlockingIOError, ConnectionError):
        bare.send(masked(data))


async def test_who_leaves_in_the_middle_of_a_frame_leaves_nothing_behind(served: Running) -> None:
    for cut in (1, 5, 30):
        bare = await deaf(served)
        bare.send(masked(b'{"type":"req","id":"1","method":"gateway.status"}')[:cut])
        bare.close()
        async with asyncio.timeout(PATIENCE):
            while served.gateway.standing().clients:
                await asyncio.sleep(0)


async def test_bytes_that_are_no_frames_end_the_connection(served: Running) -> None:
    bare = await deaf(served)
    bare.send(b"\xff" * 100)
    async with asyncio.timeout(PATIENCE):
        while served.gateway.standing().clients:
            await asyncio.sleep(0)
    bare.close()


async def test_a_gateway_that_leaves_says_so(home: Home) -> None:
    async with running(home) as served:
        visitor = await Visitor.enter(served.ws, served.token)
        stranger = await Visitor.arrive(served.ws)
    assert (await visitor.event("shutdown"))["payload"]["reason"] == "the gateway is shutting down"
    assert await visitor.closed() == (1001, "the gateway is shutting down")
    assert (await stranger.closed())[0] == 1001


async def test_a_reason_with_many_bytes_still_closes_cleanly(served: Running) -> None:
    visitor = await Visitor.arrive(served.ws)
    assert not (await visitor.connect(served.token, role="ü" * 200)).ok
    code, reason = await visitor.closed()
    assert code == 1008
    assert len(reason.encode()) <= 123


async def test_rotated_and_revoked_tokens_close_their_sockets_at_once(served: Running) -> None:
    register = served.register
    await register.make_token("other", ["read"])
    for change in (register.rotate_token, register.revoke_token):
        _, secret = await register.make_token(change.__name__, ["read"])
        visitor = await Visitor.enter(served.ws, secret)
        bystander = await Visitor.enter(served.ws, served.token)
        await change(change.__name__)
        assert await visitor.closed() == (1008, "this credential is no longer valid")
        again = await Visitor.arrive(served.ws)
        assert (await again.connect(secret)).detail == "AUTH_TOKEN_MISMATCH"
        assert (await bystander.ask("gateway.status")).ok
        await bystander.leave()


async def test_the_new_secret_of_a_rotated_token_comes_in(served: Running) -> None:
    await served.register.make_token("phone", ["read"])
    _, secret = await served.register.rotate_token("phone")
    visitor = await Visitor.enter(served.ws, secret)
    assert (await visitor.ask("sessions.list")).ok
    await visitor.leave()


@pytest.mark.parametrize("listens", [False, True])
async def test_an_owners_secret_that_changes_on_the_disk_is_dead_at_once(
    home: Home, monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    monkeypatch.setattr(wiring, "LOOK_SECONDS", 0.01 if listens else 3600.0)
    async with running(home) as served:
        visitor = await Visitor.enter(served.ws, served.token)
        (home.root / "gateway.token").write_text("another-secret-of-the-owner\n")
        if not listens:
            assert (await visitor.ask("gateway.status")).code == "UNAUTHORIZED"
        assert (await visitor.closed())[0] == 1008
        old = await Visitor.arrive(served.ws)
        assert not (await old.connect(served.token)).ok
        new = await Visitor.enter(served.ws, "another-secret-of-the-owner")
        await new.leave()


async def test_thousands_of_bad_tokens_do_not_keep_a_valid_client_from_its_work(
    served: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten thousand of them lay siege to a whole process in tests/attacks."""
    visitor = await Visitor.enter(served.ws, served.token)
    answered = 0
    guessing = asyncio.gather(*(guess(served.port, 250) for _ in range(8)))
    while not guessing.done():
        assert (await visitor.ask("gateway.status")).ok
        answered += 1
    statuses = [status for told in await guessing for status in told]
    assert len(statuses) == 2_000
    assert set(statuses) == {401, 429}
    assert statuses.count(401) <= 20
    assert answered >= 100  # while two thousand guesses were told off, and not after them
    again = await Visitor.enter(served.ws, served.token)
    assert (await request(served.port, "/v1/models", Authorization=f"Bearer {served.token}")).status == 200
    assert len([record for record in caplog.records if "wrong credential" in record.getMessage()]) <= 3
    await again.leave()
    await visitor.leave()


async def guess(port: int, count: int) -> list[int]:
    """So many wrong tokens on one connection, one behind the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    statuses = []
    for number in range(count):
        head = f"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer guess-{number}\r\n\r\n"
        writer.write(head.encode())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        statuses.append(int(answer.split()[1]))
        size = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await asyncio.wait_for(reader.readexactly(int(size.split()[1])), PATIENCE)
    writer.close()
    return statuses


async def test_bad_tokens_on_the_socket_are_counted_too(served: Running) -> None:
    details = []
    for number in range(30):
        visitor = await Visitor.arrive(served.ws)
        auth = {"token": f"wrong-{number}", "deviceToken": "bogus"}
        details.append((await visitor.connect(auth=auth)).detail)
        await visitor.closed()
    assert details == ["AUTH_TOKEN_MISMATCH"] * 20 + ["AUTH_RATE_LIMITED"] * 10
    valid = await Visitor.enter(served.ws, served.token)
    await valid.leave()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 101),
        ({"Origin": "http://127.0.0.1:{port}"}, 101),
        ({"Origin": "http://localhost:{port}", "Host": "localhost:{port}"}, 101),
        ({"Host": "[::1]:{port}", "Origin": "http://[::1]:{port}"}, 101),
        ({"Path": "/ws"}, 101),
        ({"Path": "/elsewhere"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "https://127.0.0.1:{port}"}, 403),
        ({"Origin": "http://127.0.0.1.evil.example:{port}"}, 403),
        ({"Origin": "file://"}, 403),
        ({"Host": "evil.example:{port}"}, 421),
        ({"Host": "evil.example"}, 421),
        ({"Host": "localhost.evil.example:{port}"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Host": "127.0.0.1:1"}, 421),
        ({"Host": "10.0.0.1:{port}"}, 421),
        ({"Path": "/?token=abc"}, 400),
        ({"Path": "/?access_token=abc"}, 400),
    ],
)
async def test_the_upgrade_is_for_those_who_name_this_host_and_come_from_it(
    served: Running, headers: dict[str, str], status: int
) -> None:
    said = {name: value.replace("{port}", str(served.port)) for name, value in headers.items()}
    assert (await upgrade(served.port, **said)).status == status
