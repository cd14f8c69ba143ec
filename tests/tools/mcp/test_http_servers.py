"""Servers at an address that answer in plain JSON, too much, or in a form that nobody asked for."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from calling import Made, words

from palinurus.extensions.mcp.settings import ServerSettings

Make = Callable[..., Made]


class Web:
    """Answers each request as a server would that holds no session."""

    def __init__(self) -> None:
        self.url = ""
        self.headers: list[str] = []
        self.answer: bytes | None = None  # in place of what a call would be answered

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.headers.append(head)
            length = next((line for line in head.lower().splitlines() if line.startswith("content-length:")), ": 0")
            body = await reader.readexactly(int(length.partition(":")[2]))
            writer.write(self._answered(json.loads(body)) if body else _http(405, b""))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answered(self, message: dict[str, Any]) -> bytes:
        if "id" not in message:
            return _http(202, b"")
        if message["method"] == "tools/call" and self.answer is not None:
            return self.answer
        text = {"content": [{"type": "text", "text": "hi"}]}
        about = {"name": "web", "version": "1"}
        results = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about},
            "tools/list": {"tools": [{"name": "greet"}]},
            "tools/call": text,
        }
        return _http(
            200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}).encode()
        )


def _http(status: int, body: bytes, *headers: str) -> bytes:
    lines = [
        f"HTTP/1.1 {status} X",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    made = Web()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    yield made
    listening.close()


async def test_a_server_without_sessions_and_streams_is_enough(make: Make, web: Web) -> None:
    made = make(ServerSettings("web", url=web.url, headers={"Authorization": "Bearer key"}, timeout_seconds=60.0))
    assert words(await made.call("web__greet")) == "hi"
    assert all("authorization: bearer key" in head.lower() for head in web.headers)
    assert "mcp-protocol-version: 2025-06-18" in web.headers[-1].lower()


async def test_an_answer_that_is_too_long_is_an_error_and_the_next_call_works(make: Make, web: Web) -> None:
    made = make(ServerSettings("web", url=web.url, timeout_seconds=60.0))
    await made.tools()
    web.answer = _http(200, b" " * (9 * 1024 * 1024))
    large = await made.call("web__greet")
    assert large.is_error
    assert "longer than 8,388,608 bytes" in str(large.content)
    web.answer = None
    assert words(await made.call("web__greet")) == "hi"


@pytest.mark.parametrize(
    "answer",
    [
        _http(200, gzip.compress(b"{}"), "Content-Encoding: gzip"),
        _http(200, b"{oops"),
        _http(500, b"broken"),
        _http(302, b"", "Location: http://127.0.0.1:1/elsewhere"),
        b"nonsense\r\n\r\n",
    ],
)
async def test_an_odd_answer_is_an_error_and_the_next_call_works(make: Make, web: Web, answer: bytes) -> None:
    made = make(ServerSettings("web", url=web.url, timeout_seconds=60.0))
    await made.tools()
    web.answer = answer
    assert (await made.call("web__greet")).is_error
    web.answer = None
    assert words(await made.call("web__greet")) == "hi"


@pytest.mark.parametrize("settings", [{"url": "ftp://host/"}, {"url": "http:///x"}, {"headers": {"A": "b\r\nC: d"}}])
async def test_what_can_be_no_address_or_header_is_told_without_its_value(
    make: Make, web: Web, settings: dict[str, Any]
) -> None:
    made = make(ServerSettings(**{"name": "web", "url": web.url, **settings}))
    assert await made.tools() == {}
    (warning,) = made.servers.warnings()
    assert "C: d" not in warning
    assert "is not an address" in warning or "not allowed in a header" in warning
