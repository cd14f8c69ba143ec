"""A crowd that asks `/v1/chat/completions`: many sessions side by side, the turns of each one after the other.

Every message says which turn of which session it is, and the loopback model answers with the turns that it was shown,
so that whoever asked can see whether something was lost or came in another order. The client is as plain as it can be:
it shares the machine with what it measures.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

TURN_SECONDS = 300.0


@dataclass(frozen=True)
class Question:
    """How one server is asked: its headers and its body, for a session and for words."""

    headers: Callable[[str], Mapping[str, str]]
    body: Callable[[str, str], Mapping[str, Any]]


@dataclass
class Crowd:
    """What came of it."""

    turns: int = 0
    seconds: float = 0.0
    refused: int = 0
    wrong: int = 0  # an answer that shows turns lost or in another order
    complaints: list[str] = field(default_factory=list)

    def refuse(self, complaint: str) -> None:
        self.refused += 1
        self.complaints.append(complaint)


async def ask_all(port: int, question: Question, name: str, sessions: int, turns: int) -> Crowd:
    """So many turns in so many sessions that nobody has spoken in before."""
    crowd = Crowd()
    began = time.monotonic()
    names = [f"{name}x{number}" for number in range(sessions)]
    await asyncio.gather(*(_session(port, question, each, turns, crowd) for each in names))
    crowd.seconds = time.monotonic() - began
    return crowd


async def _session(port: int, question: Question, name: str, turns: int, crowd: Crowd) -> None:
    connection = Connection(port)
    try:
        for number in range(turns):
            body = json.dumps(question.body(name, f"turn {number} of session {name}")).encode()
            try:
                async with asyncio.timeout(TURN_SECONDS):
                    status, answer = await connection.post("/v1/chat/completions", question.headers(name), body)
            except (OSError, asyncio.IncompleteReadError) as error:
                return crowd.refuse(repr(error))
            if status != 200:
                return crowd.refuse(f"{status}: {answer[:200]!r}")
            crowd.turns += 1
            shown = json.loads(answer)["choices"][0]["message"]["content"]
            crowd.wrong += shown != f"turns {' '.join(map(str, range(number + 1)))} of session {name}"
    finally:
        connection.close()


class Connection:
    """HTTP/1.1 on one connection that is kept."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        return await self._exchange("POST", path, {**headers, "Content-Type": "application/json"}, body)

    async def get(self, path: str) -> tuple[int, bytes]:
        return await self._exchange("GET", path, {}, b"")

    async def _exchange(self, verb: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"{verb} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nContent-Length: {len(body)}\r\n{lines}\r\n"
        writer.write(head.encode() + body)
        status, told = _head(await reader.readuntil(b"\r\n\r\n"))
        if told.get("transfer-encoding") == "chunked":
            answer = await _chunks(reader)
        else:
            answer = await reader.readexactly(int(told.get("content-length", "0")))
        if told.get("connection") == "close":
            self.close()
        return status, answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return int(first.split()[1]), {name.strip().lower(): value.strip().lower() for name, _, value in pairs}


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int(await reader.readline(), 16):
        parts.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(parts)
