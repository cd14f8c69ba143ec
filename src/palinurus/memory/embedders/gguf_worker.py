"""What the worker process of a GGUF file runs (see domain/worker_program.py). Knows nothing of Palinurus.

`purpose` is embed, rerank or write. Orders and answers:

    embed   a list of texts                     the numbers of a vector (uint32), then all vectors (float32)
    rerank  {"query": "…", "texts": ["…"]}      a list of scores, as JSON
    write   {"prompt": "…", "most": 60}         the text
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from typing import Any

WINDOW = 2_048  # tokens
LEAST = 40  # characters; a text that is too long for the model even then is an error


def start(weights: str, purpose: str, folder: str) -> Callable[[Any, Callable[[bytes], None]], bytes]:
    """`folder` is empty and private."""
    work: Any = {"embed": _embed, "rerank": _rerank, "write": _write}[purpose]
    server = _load(weights, purpose, folder)
    return lambda order, _: work(server, order)


def _load(weights: str, purpose: str, folder: str) -> Any:
    import xllamacpp

    pooling = xllamacpp.llama_pooling_type
    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.n_ctx = params.n_batch = params.n_ubatch = WINDOW
    params.n_parallel = 1
    params.cache_ram_mib = 0
    params.warmup = False
    params.verbosity = -1
    params.n_threads_http = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    if purpose != "write":
        params.embedding = True
    if purpose == "rerank":
        params.pooling_type = pooling.LLAMA_POOLING_TYPE_RANK
    # The library insists on listening. A socket in a private, removed folder is unreachable.
    params.hostnames = [os.path.join(folder, "s.sock")]  # noqa: PTH118  pathlib would only make the start slower
    try:
        server = xllamacpp.Server(params)
        if purpose == "embed" and "error" in server.handle_embeddings({"input": "a"}):
            # A model that says nothing of pooling, such as one that chats: the mean of its states.
            params.pooling_type = pooling.LLAMA_POOLING_TYPE_MEAN
            params.hostnames = [os.path.join(folder, "t.sock")]  # noqa: PTH118
            server = xllamacpp.Server(params)
        return server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _embed(server: Any, texts: list[str]) -> bytes:
    vectors = [_shorter(text, lambda one: server.handle_embeddings({"input": one}))["data"] for text in texts]
    numbers = [data[0]["embedding"] for data in vectors]
    flat = [number for vector in numbers for number in vector]
    return struct.pack(f"<I{len(flat)}f", len(numbers[0]) if numbers else 0, *flat)


def _rerank(server: Any, order: dict[str, Any]) -> bytes:
    scores = []
    for text in order["texts"]:
        asked = {"query": order["query"]}
        said = _shorter(text, lambda one, asked=asked: server.handle_rerank({**asked, "documents": [one]}))  # type: ignore[misc]
        scores.append(said["results"][0]["relevance_score"])
    return json.dumps(scores).encode()


def _write(server: Any, order: dict[str, Any]) -> bytes:
    asked = {"messages": [{"role": "user", "content": order["prompt"]}], "max_tokens": order["most"], "temperature": 0}
    said = _checked(server.handle_chat_completions(asked))
    return str(said["choices"][0]["message"]["content"] or "").encode()


def _shorter(text: str, ask: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Asks with as much of the text as the model can read."""
    while "error" in (said := ask(text)) and len(text) > LEAST:
        text = text[: len(text) // 2]
    return _checked(said)


def _checked(said: dict[str, Any]) -> dict[str, Any]:
    if "error" in said:
        raise RuntimeError(said["error"].get("message", said["error"]))
    return said
