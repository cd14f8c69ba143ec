"""Ask a model server on this machine which models it has, quickly or not at all.

Plain sockets: a refused connection costs a millisecond and no HTTP library is loaded for it. The request is HTTP/1.0,
so the answer is not chunked and ends with the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

PROBE_SECONDS = 0.5  # where nobody listens it takes a millisecond; a server may be at work for somebody
MAX_ANSWER = 1024 * 1024
# How servers name a model's window, the one that holds before the one that the model was trained with.
WINDOW_FIELDS = ("max_model_len", "loaded_context_length", "context_length", "context_window", "max_context_length")
TRAINED_FIELDS = ("n_ctx", "n_ctx_train")  # in `meta`, as llama.cpp has them


class ModelList(Struct):
    data: list[dict[str, Any]] | None = None


async def list_models(base_url: str, timeout: float = PROBE_SECONDS) -> tuple[str, ...]:
    """The models of a server, in its order. Nothing there, nothing in time and nonsense are all: none."""
    return tuple(await served_models(base_url, timeout))


async def served_models(base_url: str, timeout: float = PROBE_SECONDS) -> dict[str, int]:
    """The same with the context window of each, as far as the server tells it; 0 where it does not."""
    try:
        async with asyncio.timeout(timeout):
            return _models(await _get(f"{base_url.rstrip('/')}/models"))
    except (OSError, ValueError, asyncio.LimitOverrunError):  # TimeoutError is an OSError, DecodeError a ValueError
        return {}


def is_loopback(base_url: str) -> bool:
    """Whether it is an address of this machine that can be asked without a library for it."""
    address = urlsplit(base_url)
    host = address.hostname or ""
    return address.scheme == "http" and (host in ("localhost", "::1") or host.startswith("127."))


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


def _models(answer: bytes) -> dict[str, int]:
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if status != [b"200"]:
        return {}
    listed = msgspec.json.decode(body, type=ModelList).data or []
    return {model["id"]: _window(model) for model in listed if isinstance(model.get("id"), str)}


def _window(model: Mapping[str, Any]) -> int:
    meta = model.get("meta")
    told = [model.get(name) for name in WINDOW_FIELDS]
    told += [meta.get(name) for name in TRAINED_FIELDS] if isinstance(meta, dict) else []
    sizes = (size for size in told if isinstance(size, int) and not isinstance(size, bool) and size > 0)
    return next(sizes, 0)
