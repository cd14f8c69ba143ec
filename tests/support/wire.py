"""A loopback server that speaks the wires of OpenAI, Anthropic and Google, badly on purpose when asked.

    async with WireServer(Answers(429, headers={"Retry-After": "3"}), Says("hello")) as server:
        provider = OpenAIProvider("test", server.base_url, None, ...)

Which wire it speaks goes by the address of the request. Each chat request takes the next behaviour of the script; after
the last one, `otherwise` answers: a behaviour, or a function from the request's body to one.
`PYTHONPATH=tests python -m support.wire` runs it as a zero-delay model.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import msgspec

from .behaviours import (
    USAGE,
    Answers,
    Behaviour,
    Calls,
    Cuts,
    CutsWithoutFinish,
    ErrorInStream,
    Garbage,
    Hangs,
    Json,
    Otherwise,
    PlainJson,
    Says,
    Waits,
    Word,
    echo,
)
from .dialects import Dialect, dialect_of

__all__ = [
    "USAGE",
    "Answers",
    "Behaviour",
    "Calls",
    "Cuts",
    "CutsWithoutFinish",
    "ErrorInStream",
    "Garbage",
    "Hangs",
    "Json",
    "Otherwise",
    "PlainJson",
    "Says",
    "Waits",
    "WireServer",
    "Word",
    "dialect_of",
    "echo",
]

MAX_BODY = 64 * 1024 * 1024


class WireServer:
    """The server. `requests` are the bodies as parsed, `raw` as bytes, `headers` their headers in lower case.

    `paths` are the addresses that they were sent to.
    """

    def __init__(self, *script: Behaviour, otherwise: Otherwise = echo, models: tuple[str, ...] = ("test",)) -> None:
        self.script = list(script)
        self.otherwise = otherwise
        self.models = models
        self.about: dict[str, Json] = {}  # what the list of models says of one besides its name
        self.requests: list[Json] = []
        self.raw: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.connections = 0
        self.departed = 0  # clients that left while the server hung
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        if self._server is None:
            raise RuntimeError("the wire server has not been started")
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def until(self, condition: Callable[[WireServer], bool], timeout: float = 60.0) -> None:
        """Waits until something is true of the server: so many requests, a client gone. Raises TimeoutError."""
        async with asyncio.timeout(timeout), self._changed:
            await self._changed.wait_for(lambda: condition(self))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self.connections += 1
        try:
            while request := await _read_request(reader):
                if not await self._answer(request, reader, writer):
                    break
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client's business
        except asyncio.CancelledError:
            pass  # the server closes; asyncio would report a handler that ends in cancellation
        finally:
            writer.close()

    async def _answer(self, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection can be used again."""
        if request.path.endswith("/models"):
            listed = {
                "object": "list",
                "data": [{"id": name, "object": "model"} | self.about.get(name, {}) for name in self.models],
            }
            writer.write(_response(200, msgspec.json.encode(listed)))
            return not request.last
        body = msgspec.json.decode(request.body or b"{}", type=Json)
        async with self._changed:
            self.requests.append(body)
            self.raw.append(request.body)
            self.headers.append(request.headers)
            self.paths.append(request.path)
            self._changed.notify_all()
        behaviour = self.script.pop(0) if self.script else self.otherwise
        if callable(behaviour):
            behaviour = behaviour(body)
        if isinstance(behaviour, Waits):
            await behaviour.let_go.wait()
            behaviour = behaviour.then
        return await self._behave(behaviour, _Asked.of(request, body), reader, writer) and not request.last

    async def _behave(
        self, behaviour: Behaviour, asked: _Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        dialect, model = asked.dialect, asked.model
        match behaviour:
            case Answers(status, said, headers):
                text = said.encode() if isinstance(said, str) else msgspec.json.encode(said)
                writer.write(_response(status, text, headers))
            case Garbage(said):
                writer.write(_response(200, said, {"Content-Type": "text/event-stream"}))
            case PlainJson(reply):
                writer.write(_response(200, dialect.whole(reply, model)))
            case Says() | Calls() if not asked.stream:
                await asyncio.sleep(behaviour.delay)
                writer.write(_response(200, dialect.whole(behaviour, model)))
            case Says() | Calls():
                await _stream(dialect.reply(behaviour, model), behaviour.delay, writer)
            case Cuts(after):
                writer.write(STREAM_HEAD + _chunks(dialect.part(after, model)))
                return False
            case CutsWithoutFinish(after, done):
                end = dialect.done() if done else []
                writer.write(STREAM_HEAD + _chunks([*dialect.part(after, model), *end]) + LAST_CHUNK)
            case ErrorInStream(after, error):
                events = [*dialect.part(after, model), dialect.error(error), *dialect.done()]
                writer.write(STREAM_HEAD + _chunks(events) + LAST_CHUNK)
            case Hangs(after):
                writer.write(STREAM_HEAD + _chunks(dialect.part(after, model)))
                await writer.drain()
                await self._until_departed(reader)
                return False
        return True

    async def _until_departed(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while await reader.read(4096):
                pass
        async with self._changed:
            self.departed += 1
            self._changed.notify_all()


@dataclass(frozen=True)
class _Request:
    path: str
    headers: dict[str, str]
    body: bytes
    last: bool  # the client asked to close the connection afterwards


@dataclass(frozen=True)
class _Asked:
    """What a chat request wants, on whichever wire."""

    dialect: Dialect
    model: str
    stream: bool

    @classmethod
    def of(cls, request: _Request, body: Json) -> _Asked:
        path = request.path.partition("?")[0]
        named = path.rpartition("/")[2].partition(":")[0]  # Google names the model in the address
        return cls(
            dialect_of(path), str(body.get("model", named)), "streamGenerate" in path or bool(body.get("stream"))
        )


async def _read_request(reader: asyncio.StreamReader) -> _Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(min(int(headers.get("content-length", "0")), MAX_BODY))
    last = headers.get("connection", "").lower() == "close" or first.endswith("HTTP/1.0")
    return _Request(first.split(" ")[1], headers, body, last)


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


async def _stream(events: list[bytes], delay: float, writer: asyncio.StreamWriter) -> None:
    if not delay:
        writer.write(STREAM_HEAD + _chunks(events) + LAST_CHUNK)
        return
    writer.write(STREAM_HEAD)
    for event in events:
        await asyncio.sleep(delay)
        writer.write(_chunks([event]))
        await writer.drain()
    writer.write(LAST_CHUNK)


def _chunks(events: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)


def _response(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    named = {"Content-Type": "application/json", **(headers or {}), "Content-Length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status} Wire\r\n{lines}\r\n".encode() + body


def main(argv: list[str] | None = None) -> None:
    """Run as a program: prints the base URL on its first line and serves until it is stopped."""
    parser = argparse.ArgumentParser(prog="python -m support.wire", description=main.__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--reply", default="", help="say this to everything; without it, echo")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="before each chunk")
    parser.add_argument("--chunks", type=int, default=1)
    options = parser.parse_args(argv)

    def answer(body: Json) -> Behaviour:
        said = echo(body)
        text = options.reply or (said.text if isinstance(said, Says) else "")
        return Says(text, chunks=options.chunks, delay=options.delay_ms / 1000)

    async def serve() -> None:
        server = WireServer(otherwise=answer)
        await server.start(options.port)
        sys.stdout.write(server.base_url + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())


if __name__ == "__main__":
    main()
