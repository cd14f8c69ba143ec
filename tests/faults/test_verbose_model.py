"""A model that says far too much: the run is answered or refused, in little memory, and the next run is normal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from homes import PalHome
from support.behaviours import Calls, Says
from support.wire import STREAM_HEAD, WireServer

pytestmark = pytest.mark.slow

MB = 1_000_000
MOST_MEMORY = 400 * 1024 * 1024
MOST_CPU = 60  # seconds of processor time, where quadratic work would take minutes


@pytest.fixture
def small(home: PalHome) -> PalHome:
    """Its processes have little memory and little time, however busy the machine is."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU, MOST_CPU))
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))

    home.spawn["preexec_fn"] = limit
    return home


def told(pieces: int, piece: bytes) -> bytes:
    return b"".join(b"data: " + piece + b"\n\n" for _ in range(pieces))


async def goes_on(home: PalHome, wire: WireServer) -> None:
    wire.script.clear()
    ended = await home.pal("agent", "-m", "and now?")
    assert (ended.code, ended.out) == (0, "heard: and now?\n")


async def test_twenty_megabytes_of_text_are_cut_and_said_to_be(small: PalHome, wire: WireServer) -> None:
    wire.script.append(Says("many words " * (20 * MB // 11), chunks=200))
    ended = await small.pal("agent", "-m", "talk", "--json")
    assert ended.code == 0, ended.err
    assert 0.9 * MB < len(ended.out) < 1.3 * MB
    assert "the reply was cut at 1,000,000 characters" in ended.out
    await goes_on(small, wire)


async def test_one_word_of_a_megabyte_is_a_reply_like_any_other(small: PalHome, wire: WireServer) -> None:
    wire.script.append(Says("x" * 900_000 + " ", chunks=3))
    ended = await small.pal("agent", "-m", "talk")
    assert ended.code == 0, ended.err
    assert len(ended.out) > 900_000
    await goes_on(small, wire)


async def test_an_argument_of_megabytes_is_not_taken_and_the_model_is_told(small: PalHome, wire: WireServer) -> None:
    wire.script += [Calls(("write", {"path": "a.txt", "content": "y" * (3 * MB)}), whole=True), Says("I see.")]
    ended = await small.pal("agent", "-m", "write")
    assert (ended.code, ended.out) == (0, "I see.\n"), ended.err
    result = wire.requests[-1]["messages"][-1]
    assert result["role"] == "tool"
    assert "not taken" in result["content"]
    assert len(json.dumps(wire.requests[-1])) < 100_000
    assert small.database.stat().st_size < 4 * MB
    await goes_on(small, wire)


async def test_of_ten_thousand_calls_sixty_four_are_taken(small: PalHome, wire: WireServer) -> None:
    wire.script += [Calls(*[("read", {"path": "nowhere.md"})] * 10_000, whole=True), Says("Enough.")]
    ended = await small.pal("agent", "-m", "read")
    assert ended.code == 0, ended.err
    messages = wire.requests[-1]["messages"]
    assert sum(message["role"] == "tool" for message in messages) == 64
    assert "the first 64 were taken" in json.dumps(messages)
    await goes_on(small, wire)


async def test_arguments_nested_without_end_are_refused_and_the_run_goes_on(small: PalHome, wire: WireServer) -> None:
    deep = '{"path":' + "[" * 100_000 + "]" * 100_000 + "}"
    wire.script += [Calls(("read", deep), whole=True), Says("I see.")]
    ended = await small.pal("agent", "-m", "read")
    assert (ended.code, ended.out) == (0, "I see.\n"), ended.err
    assert "nested deeper than 128 levels" in wire.requests[-1]["messages"][-1]["content"]
    await goes_on(small, wire)


@asynccontextmanager
async def endless(piece: bytes) -> AsyncIterator[tuple[str, list[int]]]:
    """A server that goes on until the client goes; and how many bytes it has sent each of them, 200 MB at most."""
    sent: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            sent.append(0)
            number = len(sent) - 1
            writer.write(STREAM_HEAD)
            event = told(1000, piece)
            while sent[number] < 200 * MB:
                writer.write(b"%x\r\n%b\r\n" % (len(event), event))
                await writer.drain()
                sent[number] += len(event)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", sent
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    "piece",
    [
        b'{"choices": [{"index": 0, "delta": {"content": "on and on "}}]}',
        b'{"choices": [{"index": 0, "delta": {"reasoning_content": "hm hm hm "}}]}',
        b'{"choices": [{"index": 0, "delta": {}}]}',
    ],
    ids=["text", "thoughts", "nothing"],
)
async def test_a_stream_without_end_is_left(small: PalHome, wire: WireServer, piece: bytes) -> None:
    async with endless(piece) as (url, sent):
        small.configure(url)
        await small.pal("agent", "-m", "talk")
        assert sum(sent) < 3 * 64 * MB
        assert max(sent) < 40 * MB
    small.configure(wire.base_url)
    await goes_on(small, wire)
