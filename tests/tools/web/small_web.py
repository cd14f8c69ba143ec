"""A web of one loopback server that says what it is told, and a network of which nothing is real."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpcore2

from palinurus.domain.keys import SessionKey
from palinurus.domain.messages import Origin, ToolCall
from palinurus.domain.tool import ToolOutput, ToolRun
from palinurus.tools.built_in import web_tools
from palinurus.tools.registry import ToolRegistry
from palinurus.tools.settings import FetchSettings, SearchSettings

RUN = ToolRun(SessionKey.main(), "run-1", private=True, max_characters=200_000)
Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(body: bytes | str = b"", *headers: str, status: str = "200 OK") -> bytes:
    """A whole response; its length is said unless a header says otherwise."""
    data = body.encode() if isinstance(body, str) else body
    framed = any(each.lower().startswith(("content-length", "transfer-encoding")) for each in headers)
    lines = [f"HTTP/1.1 {status}", *headers, *([] if framed else [f"Content-Length: {len(data)}"]), "", ""]
    return "\r\n".join(lines).encode("utf-8") + data


def redirect(location: str, status: str = "302 Found") -> bytes:
    return answer(b"", f"Location: {location}", status=status)


class Server:
    """Answers by path, and keeps what it was asked."""

    def __init__(self) -> None:
        self.pages: dict[str, Answer] = {}
        self.requests: list[bytes] = []
        self.port = 0

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(request)
            path = request.split(b" ")[1].decode().partition("?")[0]
            page = self.pages.get(path, answer("nothing here", status="404 Not Found"))
            if isinstance(page, bytes):
                writer.write(page)
            else:
                await page(writer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client had enough
        finally:
            writer.close()


async def call(name: str, fetch: FetchSettings, search: SearchSettings, arguments: Any, **seams: Any) -> ToolOutput:
    """One call through the registry, as the gate makes it."""
    registry = ToolRegistry(web_tools(fetch, search, **seams))
    output = await asyncio.wait_for(registry.run(RUN, ToolCall("c1", name, arguments)), 60)
    assert output.origin == Origin.OUTSIDE
    return output


class FakeNet:
    """A network of names and canned answers. `connected` is every address that somebody tried to reach."""

    def __init__(self) -> None:
        self.names: dict[str, list[Sequence[str]]] = {}
        self.answers: list[bytes] = []
        self.connected: list[tuple[str, int]] = []
        self.looked_up: list[str] = []
        self.streams: list[Recorder] = []

    def name(self, host: str, *lookups: Sequence[str]) -> None:
        """What the host leads to at the first look-up, the second, and so on; the last holds from then on."""
        self.names[host] = list(lookups)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.looked_up.append(host)
        lookups = self.names.get(host, [[]])
        return lookups.pop(0) if len(lookups) > 1 else lookups[0]

    async def connect(self, address: str, port: int, seconds: float) -> httpcore2.AsyncNetworkStream:
        self.connected.append((address, port))
        stream = Recorder(self.answers.pop(0) if self.answers else answer("hello", "Content-Type: text/plain"))
        self.streams.append(stream)
        return stream

    async def fetch(self, url: str, **settings: Any) -> ToolOutput:
        return await call(
            "web_fetch", FetchSettings(**settings), SearchSettings(), {"url": url},
            resolver=self.resolve, connector=self.connect,
        )  # fmt: skip


class Recorder(httpcore2.AsyncMockStream):
    """Says what it is told and keeps what it hears."""

    def __init__(self, data: bytes) -> None:
        super().__init__([data[at : at + 4000] for at in itertools.islice(range(0, len(data), 4000), 100)])
        self.heard = b""
        self.tls_name: str | None = None

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.heard += buffer

    async def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        self.tls_name = server_hostname
        return self
