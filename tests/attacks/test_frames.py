"""Frames that are too large, malformed, too many, never read: they end their own connection and disturb no other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from besieged import MB, Besieged, siege
from doors import methods
from rawsocket import BINARY, CLOSE, CONT, PING, PONG, RawSocket, asked, frame, head
from serving import PATIENCE, Running, Visitor, running

from palinurus.config.home import Home
from palinurus.gateway.hub import EVERYTHING, MOST_SESSIONS, Hub
from palinurus.gateway.protocol import MAX_FIRST_FRAME, MAX_FRAME
from palinurus.gateway.websocket import requests, socket
from palinurus.gateway.websocket.methods import ClientSession, Method
from palinurus.runtime import gateway as wiring

pytestmark = pytest.mark.slow

GOOD = asked("health")
MALFORMED: dict[str, bytes] = {
    "no JSON": frame(b"no json at all"),
    "empty": frame(b""),
    "an array": frame(b"[]"),
    "an object of nothing": frame(b"{}"),
    "null": frame(b"null"),
    "no id": frame(b'{"type":"req","method":"health"}'),
    "no method": frame(b'{"type":"req","id":"1"}'),
    "a number as id": frame(b'{"type":"req","id":1,"method":"health"}'),
    "not a number": frame(b'{"type":"req","id":"1","method":"health","params":{"limit":NaN}}'),
    "a response": frame(b'{"type":"res","id":"1","ok":true}'),
    "an event": frame(b'{"type":"event","event":"tick","payload":{}}'),
    "two objects": frame(GOOD + GOOD),
    "half an object": frame(GOOD[:-3]),
    "nested too deep": frame(b'{"type":"req","id":"1","method":"health","params":' + b"[" * 50_000),
    "nested too deep and closed": frame(
        b'{"type":"req","id":"1","method":"health","params":' + b'{"a":' * 9_000 + b"1" + b"}" * 9_000 + b"}"
    ),
    "binary of no JSON": frame(b"\x00\xff\xfe", BINARY),
    "no UTF-8": frame(b'{"type":"req","id":"\xff","method":"health"}'),
    "half a surrogate": frame(b'{"type":"req","id":"\\ud800","method":"health"}'),
    "a byte order mark": frame(b"\xef\xbb\xbf" + GOOD),
    "not masked": frame(GOOD, masked=False),
    "a reserved bit": frame(GOOD, rsv=4),
    "an unknown opcode": frame(GOOD, 0x3),
    "an unknown control": frame(b"", 0xB),
    "a continuation of nothing": frame(GOOD, CONT),
    "a message inside a message": frame(b"{", fin=False) + frame(GOOD),
    "a ping in pieces": frame(b"x", PING, fin=False),
    "a ping too long": frame(b"x" * 126, PING),
    "a close code that is none": frame(b"\x00\x01", CLOSE),
    "half a close code": frame(b"\x03", CLOSE),
    "a close reason of no UTF-8": frame(b"\x03\xe8\xff", CLOSE),
    "more than anybody has": head(2**63 - 1),
    "a negative length": bytes([0x81, 0xFF]) + b"\xff" * 8 + b"\0\0\0\0",
    "too many pieces": frame(b"{", fin=False) + frame(b"", CONT, fin=False) * 5_000,
    "HTTP once more": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200,
}


@pytest.mark.parametrize("known", [False, True], ids=["a stranger", "a guest"])
async def test_malformed_frames_end_their_connection_and_no_other(gateway: Besieged, known: bool) -> None:
    async with siege(gateway):
        for name, data in MALFORMED.items():
            for _ in range(3):
                raw = await RawSocket.open(gateway.port, gateway.token if known else "")
                await raw.shout(data)
                try:
                    heard = await raw.rest()
                except TimeoutError:
                    raise AssertionError(f"{name}: it was not closed") from None
                assert b"mistake" not in heard, name


async def test_a_binary_frame_is_read_like_a_text(gateway: Besieged) -> None:
    raw = await RawSocket.open(gateway.port, gateway.token)
    await raw.shout(frame(asked("health", "b"), BINARY))
    await asyncio.wait_for(raw.reader.readuntil(b'"id":"b","ok":true'), PATIENCE)
    raw.close()


async def test_what_is_announced_and_never_sent_costs_nothing(gateway: Besieged) -> None:
    """A length is a promise of the client; memory is taken when bytes come."""
    async with siege(gateway, memory=8 * MB):
        raws = []
        for size in (MAX_FIRST_FRAME, MAX_FIRST_FRAME + 1, 2**31, 2**62):
            for _ in range(10):
                raws.append(await RawSocket.open(gateway.port))
                await raws[-1].shout(head(size) + b"{")
        for raw in raws[10:]:
            await raw.rest()
        guests = [await RawSocket.open(gateway.port, gateway.token) for _ in range(30)]
        for raw in guests:
            await raw.shout(head(MAX_FRAME) + b"{")
        for raw in (*raws[:10], *guests):
            raw.close()


async def test_oversized_frames_are_refused_by_size(gateway: Besieged) -> None:
    async with siege(gateway, memory=40 * MB):
        for _ in range(3):
            stranger = await Visitor.arrive(gateway.ws)
            await stranger.shout("x" * (MAX_FIRST_FRAME + 1))
            assert (await stranger.closed())[0] == 1009
            guest = await gateway.guest()
            await guest.shout("x" * (MAX_FRAME + 1))
            assert (await guest.closed())[0] == 1009


async def test_who_may_only_read_sends_small_frames(gateway: Besieged) -> None:
    reader = await gateway.guest(scopes=["operator.read"])
    assert reader.hello is not None
    assert reader.hello.payload["policy"]["maxPayload"] == MAX_FIRST_FRAME
    async with siege(gateway, memory=8 * MB):
        await reader.shout(json.dumps({"type": "req", "id": "1", "method": "health", "params": {"a": "x" * MB}}))
        assert (await reader.closed())[0] == 1009


TEXTS = ("sessionKey", "session_key", "key", "id", "runId", "run_id", "name", "agentId", "query", "search", "tool")
HOSTILE_PARAMS = {
    "deep": "[" * 900 + "]" * 900,
    "deep objects": '{"a":' * 900 + "1" + "}" * 900,
    "long number": "1" * 50_000,
    "large exponent": '{"limit": 1e999999}',
    "largest integer": '{"limit": 9223372036854775808, "timeoutMs": -9223372036854775809}',
    "the same key": "{" + ",".join('"sessionKey":"main"' for _ in range(1_200)) + "}",
    "prototype": '{"__proto__": {"admin": true}, "constructor": {"prototype": {}}, "__class__": "x"}',
    "null bytes": '{"sessionKey": "main\\u0000", "key": "\\u0000", "id": "\\u0000", "runId": "\\u0000"}',
    "controls": '{"sessionKey": "a\\r\\nb\\u001b[2J", "key": "\\u202e", "name": "\\u0000/\\u0000"}',
    "empty texts": json.dumps(dict.fromkeys(TEXTS, "")),
    "long texts": json.dumps(
        dict.fromkeys(("sessionKey", "key", "id", "runId", "run_id", "name", "query"), "x" * 9_000)
    ),
    "wrong types": '{"sessionKey": [], "key": {}, "id": 1, "runId": true, "name": null, "limit": "many"}',
    "quotes": json.dumps(
        dict.fromkeys(("sessionKey", "key", "id", "runId", "query", "search"), "x' OR 1=1; -- \" * NEAR(")
    ),
}
# They start programs, or ask models.
SLOW = {"sandbox.test", "sandbox.explain", "mcp.test", "mcp.list", "models.test", "memory.index", "memory.search"}


async def test_hostile_parameters_are_a_typed_error_of_every_method(playground: Besieged) -> None:
    async with siege(playground, changes=True):
        guest = await playground.guest()
        for _, name in methods():
            for kind, params in HOSTILE_PARAMS.items():
                if name in SLOW:
                    continue
                await guest.socket.send(f'{{"type":"req","id":"x","method":"{name}","params":{params}}}')
                told = await guest.answer("x")
                assert told.ok or told.code not in ("", "FAILED"), (name, kind, told)
        await guest.leave()


async def test_unknown_methods_and_long_ids_are_answered_shortly(gateway: Besieged) -> None:
    async with siege(gateway):
        guest = await gateway.guest()
        for name in ("x", "", "agent.submit", "../health", "health\0", "HEALTH", "x" * 60_000, "connect", "__class__"):
            await guest.socket.send(json.dumps({"type": "req", "id": "n", "method": name}))
            told = await guest.answer("n")
            assert told.code == "UNKNOWN_METHOD"
            assert len(told.error["message"]) < 200
        long = "i" * 50_000
        await guest.socket.send(json.dumps({"type": "req", "id": long, "method": "health"}))
        assert (await guest.answer(long)).ok
        await guest.leave()


async def test_a_flood_of_requests_is_answered_or_told_to_wait(gateway: Besieged) -> None:
    count = 1_500
    async with siege(gateway):
        raws = [await RawSocket.open(gateway.port, gateway.token) for _ in range(4)]
        flood = b"".join(frame(asked("health" if number % 2 else "no.such", str(number))) for number in range(count))
        told = await asyncio.gather(*(_flood(raw, flood, count) for raw in raws))
    assert told == [count] * 4


async def _flood(raw: RawSocket, flood: bytes, count: int) -> int:
    writing = asyncio.create_task(raw.shout(flood))
    answers = 0
    async with asyncio.timeout(60):
        while answers < count:
            told = await raw.next()
            assert told is not None, f"closed after {answers} answers"
            answers += b'"type":"res"' in told[1][:20]
    await writing
    raw.close()
    return answers


@pytest.mark.parametrize("opcode", [PING, PONG], ids=["pings", "pongs"])
@pytest.mark.parametrize("known", [False, True], ids=["a stranger", "a guest"])
async def test_a_flood_of_pings_ends_the_connection(gateway: Besieged, known: bool, opcode: int) -> None:
    flood = frame(b"", opcode) * 40_000
    async with siege(gateway, memory=8 * MB):
        raws = [await RawSocket.open(gateway.port, gateway.token if known else "") for _ in range(10)]
        await asyncio.gather(*(raw.shout(flood) for raw in raws))
        await asyncio.gather(*(raw.rest() for raw in raws))


async def test_pings_of_a_client_that_reads_nothing_do_not_pile_up(gateway: Besieged) -> None:
    async with siege(gateway, memory=8 * MB):
        raws = [await RawSocket.open(gateway.port, gateway.token) for _ in range(10)]
        flood = frame(b"x" * 125, PING) * 60
        for _ in range(5):
            await asyncio.gather(*(raw.shout(flood) for raw in raws))
        for raw in raws:
            raw.close()


async def test_a_few_pings_are_answered(gateway: Besieged) -> None:
    guest = await gateway.guest()
    for _ in range(20):
        await asyncio.wait_for(await guest.socket.ping(), PATIENCE)
    await guest.leave()


async def test_strangers_that_say_nothing_do_not_keep_anybody_out(gateway: Besieged) -> None:
    """Half of a handshake, a whole one and no word after it, half of a first frame: three hundred of each."""
    async with siege(gateway, memory=32 * MB):
        raws: list[Any] = []
        for number in range(300):
            raws.append(await asyncio.open_connection("127.0.0.1", gateway.port))
            raws[-1][1].write(b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n"[: 1 + number % 30])
            raws.append(await RawSocket.open(gateway.port))
            raws.append(await RawSocket.open(gateway.port))
            await raws[-1].shout(frame(asked("connect"))[: 1 + number % 40])
        for _ in range(5):
            guest = await gateway.guest()
            assert (await guest.ask("health")).ok
            await guest.leave()
        for each in raws:
            (each[1] if isinstance(each, tuple) else each.writer).transport.abort()


async def test_a_client_that_never_reads_is_left_behind(gateway: Besieged) -> None:
    """Events beyond a number are left out, and answers beyond a size end the connection."""
    async with siege(gateway, memory=90 * MB):
        raw = await RawSocket.open(gateway.port, gateway.token)
        large = frame(asked("chat.history", "x" * 1_000_000, sessionKey="main"))
        for _ in range(100):
            if not await raw.shout(large, seconds=2.0):
                break
        else:
            raise AssertionError("it may go on for ever")
        raw.close()


# In this process, with limits made small.


class Nothing(msgspec.Struct, frozen=True):
    pass


@pytest.fixture
async def served(home: Home, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    go_on = asyncio.Event()

    async def wait(_: ClientSession, __: Nothing, ___: str) -> dict[str, int]:
        await asyncio.wait_for(go_on.wait(), PATIENCE)
        return {}

    waiting = Method("test.wait", Nothing, dict[str, int], "read", wait)
    monkeypatch.setattr(wiring, "METHODS", (*wiring.METHODS, waiting))
    monkeypatch.setattr(requests, "MAX_BUFFERED", 3 * MB)
    async with running(home) as here:
        yield here
        go_on.set()


async def test_requests_that_wait_hold_so_many_bytes_and_no_more(served: Running) -> None:
    guest = await Visitor.enter(served.ws, served.token)
    numbers = [await guest.send("test.wait", junk="x" * MB) for _ in range(10)]
    for number in numbers[2:]:
        told = await guest.answer(number)
        assert (told.code, told.error["retryable"]) == ("BUSY", True)
    assert (await guest.ask("health")).ok
    await guest.leave()


async def test_a_stranger_who_takes_his_time_is_shown_out(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then buys no more time."""
    monkeypatch.setattr(socket, "CONNECT_SECONDS", 0.2)
    raw = await RawSocket.open(served.port)
    slow = asyncio.create_task(_drip(raw, frame(asked("connect", auth={"token": served.token}))))
    assert b"connect did not arrive in time" in await raw.rest()
    slow.cancel()


async def _drip(raw: RawSocket, data: bytes) -> None:
    for at in range(len(data)):
        await raw.shout(data[at : at + 1])
        await asyncio.sleep(0.02)


def test_who_listens_to_ever_more_sessions_is_not_remembered_for_all() -> None:
    class Ear:
        def __init__(self) -> None:
            self.heard: list[str] = []

        def send_event(self, event: str, payload: msgspec.Raw) -> None:
            self.heard.append(event)

    hub, ear, other = Hub(), Ear(), Ear()
    hub.listen(ear, EVERYTHING)
    hub.listen(other, "agent:main:7")
    for number in range(5 * MOST_SESSIONS):
        hub.listen(ear, f"agent:main:{number}")
    assert len(hub._listeners) <= MOST_SESSIONS + 1
    hub.publish("x", "agent:main:7", dict)
    assert (ear.heard, other.heard) == (["x"], ["x"])  # by `*`, though it has left that session
    hub.leave(ear)
    assert hub.listeners == 1
    hub.leave(other)
    assert not hub._listeners


async def test_sessions_without_end_are_asked_for_and_memory_stays(gateway: Besieged) -> None:
    async with siege(gateway, memory=16 * MB):
        guest = await gateway.guest()
        for number in range(1_200):
            assert (await guest.ask("chat.history", sessionKey=f"agent:main:explicit:{number}-{'x' * 200}")).ok
        await guest.leave()
