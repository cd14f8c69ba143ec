"""HTTP that means two things, drips, never ends or is never read: refused in one way, and soon."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest
from besieged import MB, Besieged, besieged, exchange, siege, statuses
from serving import PATIENCE, Running, request, running

from palinurus.config.home import Home
from palinurus.gateway.http import connections

pytestmark = pytest.mark.slow

SMUGGLED = b"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n"
POST = b"POST /v1/embeddings HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
POST += b"Content-Type: application/json\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: {host}\r\n"
UPGRADE = b"GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
UPGRADE += b"Sec-WebSocket-Key: c2l4dGVlbiBieXRlcyBvaw==\r\nSec-WebSocket-Version: 13\r\n\r\n"
AMBIGUOUS: dict[str, bytes] = {
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 0\r\n\r\nhello",
    "the same length twice": POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": POST + b"Content-Length: 5, 5\r\n\r\nhello",
    "length and chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "chunks by another name": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunks and then nothing": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "two encodings": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "a space before the colon": POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a folded line": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a tab for a letter": POST + b"Transfer-\tEncoding: chunked\r\n\r\n0\r\n\r\n",
    "a length below zero": POST + b"Content-Length: -1\r\n\r\n",
    "a length with a sign": POST + b"Content-Length: +5\r\n\r\nhello",
    "a length of sixteens": POST + b"Content-Length: 0x5\r\n\r\nhello",
    "a length with an underscore": POST + b"Content-Length: 1_0\r\n\r\nhellohello",
    "a length of no number": POST + b"Content-Length: five\r\n\r\nhello",
    "a length beyond all": POST + b"Content-Length: 18446744073709551616\r\n\r\nhello",
    "a chunk of no size": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
    "a chunk below zero": POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\nhello\r\n0\r\n\r\n",
    "a chunk beyond all": POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "a chunk longer than it says": POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n",
    "lines that end in LF": b"GET /healthz HTTP/1.1\nHost: {host}\n\n",
    "a line that ends in CR": GET + b"X-A: b\rX-C: d\r\n\r\n",
    "a null byte in a header": GET + b"X-A: b\0c\r\n\r\n",
    "a null byte in the path": b"GET /heal\0thz HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "a space in the path": b"GET /health z HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "a header without a name": GET + b": x\r\n\r\n",
    "a header without a colon": GET + b"X-A\r\n\r\n",
    "a name that is none": GET + b"X(A): x\r\n\r\n",
    "another version": b"GET /healthz HTTP/3.7\r\nHost: {host}\r\n\r\n",
    "the beginning of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a method of ours": b"STEAL /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "a tunnel": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "a target elsewhere": b"GET http://{host}/healthz HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64,
    "noise": bytes(range(256)),
}


def filled(data: bytes, here: Besieged) -> bytes:
    host = f"127.0.0.1:{here.port}".encode()
    return data.replace(b"{host}", host).replace(b"{token}", here.token.encode())


async def test_a_request_that_means_two_things_is_none_and_what_follows_is_not_read(gateway: Besieged) -> None:
    async with siege(gateway):
        for name, data in AMBIGUOUS.items():
            heard = await exchange(gateway.port, filled(data + SMUGGLED, gateway))
            assert statuses(heard) == [400], (name, heard)
            told = json.loads(heard.rpartition(b"\r\n\r\n")[2])
            assert told["status"] == 400, name
    assert gateway.logged("this is not an HTTP request")


async def test_a_head_that_is_too_long_is_refused(gateway: Besieged) -> None:
    long = connections.MAX_HEAD
    async with siege(gateway, memory=8 * MB):
        for data in (
            b"GET /" + b"a" * long + b" HTTP/1.1\r\nHost: {host}\r\n\r\n",
            b"GET /healthz?" + b"a" * long + b" HTTP/1.1\r\nHost: {host}\r\n\r\n",
            GET + b"X-A: " + b"a" * long + b"\r\n\r\n",
            GET + b"X-A: b\r\n" * (long // 4) + b"\r\n",
            GET + b"a" * long + b": b\r\n\r\n",
        ):
            assert statuses(await exchange(gateway.port, filled(data, gateway))) == [431]
        for data in (GET + b"X-A: ", b"GET /", GET + b"a"):  # which never end
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(filled(data, gateway))
            sent = 0
            try:
                async with asyncio.timeout(PATIENCE):
                    while not writer.is_closing() and not reader.at_eof() and sent < 400 * MB:
                        writer.write(b"a" * MB)
                        sent += MB
                        await writer.drain()
                        await asyncio.sleep(0)
            except ConnectionError:
                pass
            writer.close()
            assert sent < 100 * MB


async def test_a_long_but_decent_request_is_answered(gateway: Besieged) -> None:
    told = await request(gateway.port, "/healthz?" + "a" * 30_000, X_A="b" * 30_000)
    assert told.status == 200


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(gateway: Besieged) -> None:
    said = {"Authorization": f"Bearer {gateway.token}", "Content_Type": "application/json"}
    async with siege(gateway, memory=40 * MB):
        for path, size in (("/v1/embeddings", 21 * MB), ("/v1/chat/completions", 10**11), ("/tools/invoke", 3 * MB)):
            lines = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nContent-Length: {size}\r\n"
            head = lines + "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in said.items())
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(f"{head}\r\n".encode())
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
            assert statuses(answer) == [413]
            writer.close()
        chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        head = filled(POST + b"Transfer-Encoding: chunked\r\n\r\n", gateway)
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(head)
        for _ in range(22):
            writer.write(chunk)
        assert statuses(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)) == [413]
        writer.transport.abort()


async def test_requests_far_ahead_of_their_answers_end_the_connection(gateway: Besieged) -> None:
    async with siege(gateway):
        flood = filled(GET + b"\r\n", gateway) * 5_000
        heard = await asyncio.gather(*(exchange(gateway.port, flood) for _ in range(5)))
    for each in heard:
        assert statuses(each).count(200) <= 2 * connections.AHEAD
        assert statuses(each)[-1] == 429


async def test_a_few_requests_ahead_are_answered_in_order(gateway: Besieged) -> None:
    last = filled(b"GET /readyz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n", gateway)
    heard = await exchange(gateway.port, filled(GET + b"\r\n", gateway) * 10 + last)
    assert statuses(heard) == [200] * 11
    assert heard.count(b'"live"') == 10
    assert heard.endswith(b'"ready"}')


async def test_an_upgrade_behind_a_request_that_is_being_answered_is_refused(gateway: Besieged) -> None:
    heard = await exchange(gateway.port, filled(GET + b"\r\n" + UPGRADE, gateway))
    assert 101 not in statuses(heard)


async def test_a_handshake_that_its_parser_does_not_take_is_closed(gateway: Besieged) -> None:
    lines = b"GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    good = b"Sec-WebSocket-Key: c2l4dGVlbiBieXRlcyBvaw==\r\nSec-WebSocket-Version: 13\r\n"
    async with siege(gateway):
        for name, data in {
            "no key": lines + b"Sec-WebSocket-Version: 13\r\n\r\n",
            "two keys": lines + good + b"Sec-WebSocket-Key: c2l4dGVlbiBieXRlcyBvaw==\r\n\r\n",
            "an old version": lines + good.replace(b"13", b"8") + b"\r\n",
            "a long header": lines + good + b"X-A: " + b"a" * 20_000 + b"\r\n\r\n",
            "many headers": lines + good + b"X-A: b\r\n" * 300 + b"\r\n",
            "a post": lines.replace(b"GET", b"POST") + good + b"\r\n",
            "another path": lines.replace(b"/ ", b"/elsewhere ") + good + b"\r\n",
            "another upgrade": lines.replace(b"/ ", b"/ws ").replace(b"websocket", b"h2c")
            + b"Connection: close\r\n\r\n",
        }.items():
            try:
                heard = await exchange(gateway.port, filled(data, gateway) + b"\xff" * 64)
            except TimeoutError:
                raise AssertionError(f"{name}: it was not closed") from None
            assert not statuses(heard) or statuses(heard)[0] in (400, 403, 404, 405, 426), (name, heard)


# In this process, with the patience of the gateway made short.


@pytest.fixture
async def hasty(home: Home, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.3)
    monkeypatch.setattr(connections, "READ_SECONDS", 0.3)
    monkeypatch.setattr(connections, "CLOSE_SECONDS", 0.3)
    monkeypatch.setattr(connections, "MAX_REQUEST", 2 * MB)
    async with running(home) as here:
        yield here


DRIPS = {
    "nothing": (b"", b""),
    "half a line": (b"GET / HT", b""),
    "headers one by one": (b"GET / HTTP/1.1\r\n", b"X-A: b\r\n"),
    "a header letter by letter": (b"GET / HTTP/1.1\r\nX-A: ", b"a"),
    "a body that nobody wants": (
        b"POST /v1/embeddings HTTP/1.1\r\nHost: {host}\r\nContent-Length: 99999\r\n\r\n",
        b"a",
    ),
    "chunks that nobody wants": (
        b"POST /v1/embeddings HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"1\r\na\r\n",
    ),
    "blank lines": (b"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n", b"\r\n"),
    "trailers": (
        b"POST /v1/embeddings HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        b"X-A: b\r\n",
    ),
}


async def test_what_drips_is_closed_in_time(hasty: Running) -> None:
    ended = await asyncio.gather(*(_drip(hasty.port, *DRIPS[name]) for name in DRIPS), return_exceptions=True)
    assert {name: wrong for name, wrong in zip(DRIPS, ended, strict=True) if wrong} == {}


async def _drip(port: int, first: bytes, drop: bytes) -> None:
    """Until it is closed, though something comes all the time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(first.replace(b"{host}", f"127.0.0.1:{port}".encode()))
    hearing = asyncio.create_task(_hear(reader))
    async with asyncio.timeout(PATIENCE):
        while not hearing.done():
            writer.write(drop)
            await asyncio.wait({hearing}, timeout=0.02)
    writer.transport.abort()


async def _hear(reader: asyncio.StreamReader) -> bytes:
    """All of it, however it ends."""
    heard = b""
    with contextlib.suppress(ConnectionError):
        while more := await reader.read(MB):
            heard += more
    return heard


async def test_who_does_not_fetch_his_answers_is_dropped(hasty: Running) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", hasty.port, limit=1024)
    line = f"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1:{hasty.port}\r\n\r\n".encode()
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    try:
        async with asyncio.timeout(PATIENCE):
            while hasty.gateway._listening._server.server_state.connections:
                writer.write(line * 8)
                await asyncio.sleep(0.02)
    except ConnectionError:
        pass
    writer.transport.abort()


async def test_a_request_that_never_ends_is_dropped(hasty: Running) -> None:
    """Neither chunks, nor their extensions, nor what stands behind them counts as body."""
    start = f"POST /v1/embeddings HTTP/1.1\r\nHost: 127.0.0.1:{hasty.port}\r\nTransfer-Encoding: chunked\r\n\r\n"
    for more in (b"1;" + b"x" * MB, b"0\r\n" + b"X-A: b\r\n" * (MB // 8), b"0\r\nX-A: " + b"x" * MB):
        reader, writer = await asyncio.open_connection("127.0.0.1", hasty.port)
        writer.write(start.encode() + more + b"x" * 2 * MB)
        await asyncio.wait_for(_hear(reader), PATIENCE)
        writer.transport.abort()


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    """A gateway that may have few files open."""
    with besieged(tmp_path_factory.mktemp("poor"), files=200) as here:
        yield here


async def test_connections_without_end_leave_room_for_somebody_who_wants_something(poor: Besieged) -> None:
    """More than there are descriptors: the oldest that wait for nothing go first, and guests stay."""
    idle, upgraded = filled(GET + b"\r\n", poor), filled(UPGRADE, poor)
    async with siege(poor), AsyncExitStack() as leaving:
        raws = []  # a reader that nobody keeps closes its connection
        for number in range(600):
            raws.append(await asyncio.open_connection("127.0.0.1", poor.port))
            leaving.callback(raws[-1][1].transport.abort)
            raws[-1][1].write((b"", b"GET / HT", idle, upgraded)[number % 4])
        assert (await request(poor.port, "/healthz")).status == 200
        guest = await poor.guest()
        assert (await guest.ask("health")).ok
        await guest.leave()
        assert poor.open_files() < 190
    assert not poor.logged("out of system resource")
