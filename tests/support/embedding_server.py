"""A loopback server that embeds texts as OpenAI, Voyage, Mistral, Gemini and Ollama do, badly on purpose when asked.

The vectors are those of `palinurus.testing.fakes.vector_of`: each word has a direction.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import Any, Self

import msgspec

from palinurus.extensions.embedders.remote import RemoteEmbedder
from palinurus.extensions.embedders.vendors import VENDORS
from palinurus.memory.embedder import EmbedderPlace
from palinurus.memory.settings import EmbedderOptions
from palinurus.testing.fakes import FakeClock, vector_of

Json = Any
HANGS = "hangs"
TOKENS = {"prompt_tokens": 3, "total_tokens": 3}
Spoil = Callable[[list[list[float]]], list[list[float]]]


class Refuses(msgspec.Struct, frozen=True):
    status: int
    said: str = '{"error": {"message": "no"}}'
    headers: Mapping[str, str] = {}


class EmbeddingServer:
    """Each request takes the next of `script`; after the last one all are answered well."""

    def __init__(self, *script: Refuses | str, dimensions: int = 64) -> None:
        self.script = list(script)
        self.dimensions = dimensions
        self.spoil: Spoil = lambda vectors: vectors
        self.shuffle = False  # the order of numbered vectors
        self.requests: list[Json] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.other: Callable[[str, str, bytes], Json | None] = lambda *_: None  # method, path, body -> its answer
        self.delay = 0.0
        self.embedders: list[RemoteEmbedder] = []  # that ask it: they are closed with it
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def texts(self) -> list[str]:
        """All that were sent."""
        return [text for body in self.requests for text in texts_of(body)]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=64 * 1024 * 1024)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        for embedder in self.embedders:
            await embedder.close()
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                method, path, _ = lines[0].split(" ")
                headers = {
                    name.lower(): value for name, _, value in (each.partition(": ") for each in lines[1:] if each)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                answer = await self._answer(method, path, headers, body)
                writer.write(answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> bytes:
        self.paths.append(path)
        self.headers.append(headers)
        step = self.script.pop(0) if self.script else None
        if step == HANGS:
            await asyncio.get_running_loop().create_future()
        if isinstance(step, Refuses):
            return response(step.status, step.said.encode(), step.headers)
        other = self.other(method, path, body)
        if isinstance(other, bytes):
            return response(200, other)
        if isinstance(other, Refuses):
            return response(other.status, other.said.encode(), other.headers)
        if other is not None:
            return response(200, msgspec.json.encode(other))
        asked = msgspec.json.decode(body)
        self.requests.append(asked)
        await asyncio.sleep(self.delay)
        return response(200, msgspec.json.encode(self._embedded(path, asked)))

    def _embedded(self, path: str, asked: Json) -> Json:
        size = self.dimensions
        # Those of each model differ from those of others.
        texts = [" ".join(f"{asked.get('model', '')}:{word}" for word in text.split()) for text in texts_of(asked)]
        made = [list(struct.unpack(f"<{size}f", vector_of(text.replace(":", "_"), size))) for text in texts]
        vectors = self.spoil(made)
        if path.endswith(":batchEmbedContents"):
            return {"embeddings": [{"values": vector} for vector in vectors]}
        if path.endswith("/api/embed"):
            return {"model": asked["model"], "embeddings": vectors}
        data = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
        return {
            "id": "1",
            "object": "list",
            "data": data[::-1] if self.shuffle else data,
            "model": asked["model"],
            "usage": TOKENS,
        }


def texts_of(body: Json) -> list[str]:
    if "requests" in body:
        return [each["content"]["parts"][0]["text"] for each in body["requests"]]
    return list(body["input"])


def response(status: int, body: bytes, headers: Mapping[str, str] = {}) -> bytes:
    more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    kind = "Content-Type: application/json\r\n"
    return f"HTTP/1.1 {status} x\r\n{kind}Content-Length: {len(body)}\r\n{more}\r\n".encode() + body


KEY = "sk-secret-0123456789abcdef"
VERSIONS = {"gemini": "/v1beta", "ollama": ""}  # what stands in the address of each, where it is not /v1


class Waiting:
    """Time that passes when somebody waits."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.waited: list[float] = []

    async def pause(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.clock.advance(seconds=seconds)


def remote(
    provider: str, server: EmbeddingServer, waiting: Waiting | None = None, *, seconds: float = 30.0, **options: Any
) -> RemoteEmbedder:
    """An embedder whose service is this server."""
    waiting = waiting or Waiting()
    sent: list[int] = []

    async def reserve(_: str, tokens: int) -> None:
        sent.append(tokens)

    place = EmbedderPlace(
        provider,
        options.pop("model", "test-model"),
        "main",
        EmbedderOptions(base_url=server.url + VERSIONS.get(provider, "/v1"), **{"api_key": KEY, **options}),
        "",
        lambda: "sk-stored-key-of-the-provider",
        lambda value: value if isinstance(value, str) else None,
        reserve,
        waiting.clock,
    )
    server.embedders.append(RemoteEmbedder(place, VENDORS[provider], seconds=seconds, pause=waiting.pause))
    return server.embedders[-1]
