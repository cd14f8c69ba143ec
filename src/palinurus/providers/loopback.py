"""Ask a model server on this machine which models it has, quickly or not at all.

Plain sockets: a refused connection costs a millisecond and no HTTP library is loaded for it. The request is HTTP/1.0,
so the answer is not chunked and ends with the connection.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

PROBE_SECONDS = 0.5  # where nobody listens it takes a millisecond; a server may be at work for somebody
MAX_ANSWER = 1024 * 1024


class ListedModel(Struct):
    id: str


class ModelList(Struct):
    data: list[ListedModel] | None = None


async def list_models(base_url: str, timeout: float = PROBE_SECONDS) -> tuple[str, ...]:
    """The models of a server, in its order. Nothing there, nothing in time and nonsense are all: none."""
    try:
        async with asyncio.timeout(timeout):
            return _models(await _get(f"{base_url.rstrip('/')}/models"))
    except (OSError, ValueError, asyncio.LimitOverrunError):  # TimeoutError is an OSError, DecodeError a ValueError
        return ()


async def _get(url: str) -> bytes:
    address = urlsplit(url)
    if address.scheme != "http" or not address.hostname:
        return b""
    reader, writer = await asyncio.open_connection(address.hostname, address.port or 80)
    try:
        request = f"GET {address.path} HTTP/1.0\r\nHost: {address.netloc}\r\nAccept: application/json\r\n\r\n"
        writer.write(request.encode())
        answer = b""
        while len(answer) < MAX_ANSWER and (data := await reader.read(65536)):
            answer += data
        return answer
    finally:
        writer.close()


def _models(answer: bytes) -> tuple[str, ...]:
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if status != [b"200"]:
        return ()
    return tuple(model.id for model in msgspec.json.decode(body, type=ModelList).data or ())
