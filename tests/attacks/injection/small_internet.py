"""A whole internet on one loopback port: pages by host and path, and every request that arrived."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Self
from urllib.parse import parse_qs, urlsplit

import httpcore2
from msgspec import Struct

PUBLIC = "93.184.216.34"


class Arrival(Struct, frozen=True):
    host: str
    target: str  # path and query, as it came

    def __str__(self) -> str:
        return f"{self.host}{self.target}"


class SmallInternet:
    """`pages` are texts by `host/path`; `hits` is what the search engine answers to everything."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.hits: list[tuple[str, str, str]] = []
        self.arrivals: list[Arrival] = []
        self._server: asyncio.Server | None = None

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        return [PUBLIC]

    async def connect(self, address: str, port: int, seconds: float) -> httpcore2.AsyncNetworkStream:
        if self._server is None:
            raise OSError("the small internet is down")
        here = self._server.sockets[0].getsockname()
        return await httpcore2.AnyIOBackend().connect_tcp(here[0], here[1], timeout=seconds)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            target = head.split(" ")[1]
            host = next(line[5:].strip() for line in head.split("\r\n") if line.lower().startswith("host:"))
            self.arrivals.append(Arrival(host, target))
            kind, body = self._page(host, target)
            status = "200 OK" if body else "404 Not Found"
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                f"Connection: close\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client had enough
        finally:
            writer.close()

    def _page(self, host: str, target: str) -> tuple[str, bytes]:
        parts = urlsplit(target)
        if host == "search.example":
            results = [{"title": title, "url": url, "content": text} for title, url, text in self.hits]
            return "application/json", json.dumps({"results": results}).encode()
        text = self.pages.get(f"{host}{target}") or self.pages.get(f"{host}{parts.path}", "")
        return ("text/html" if text.startswith("<") else "text/plain"), text.encode()


def asked_words(arrival: Arrival) -> str:
    """What a search engine was asked."""
    return " ".join(parse_qs(urlsplit(arrival.target).query).get("q", []))
