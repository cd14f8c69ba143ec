"""What the worker process of the small model runs (see domain/worker_program.py). Knows nothing of Palinurus.

For an order {"messages": [...], "most": 160, "seed": 7} it sends the words as pieces and answers with
{"input": 30, "output": 12, "cut": false}. A process of its own gives its 200 MB back when it ends.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from typing import Any

TEMPERATURE = 0.3  # above that the model digresses
REPEAT_PENALTY = 1.1


def start(weights: str, context: str, folder: str) -> Callable[[Any, Callable[[bytes], None]], bytes]:
    """`folder` is empty and private."""
    server = _load(weights, int(context), folder)
    return lambda order, send_piece: _answer(server, order, send_piece)


def _load(weights: str, context: int, folder: str) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.n_ctx = context
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.n_threads_http = 1
    params.cache_ram_mib = 0
    params.warmup = False
    params.verbosity = -1
    # The library insists on listening. A socket in a private, removed folder is unreachable.
    params.hostnames = [os.path.join(folder, "s.sock")]  # noqa: PTH118  pathlib would only make the start slower
    try:
        return xllamacpp.Server(params)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answer(server: Any, order: dict[str, Any], send_piece: Callable[[bytes], None]) -> bytes:
    last: dict[str, Any] = {}

    def piece(chunk: dict[str, Any]) -> bool:
        """Called with each piece of the reply. True would stop it."""
        last.clear()
        last.update(chunk)
        for choice in chunk.get("choices") or ():
            if text := choice["delta"].get("content"):
                send_piece(text.encode())
        return False

    request = {
        "messages": order["messages"],
        "max_tokens": order["most"],
        "seed": order["seed"],
        "temperature": TEMPERATURE,
        "repeat_penalty": REPEAT_PENALTY,
        "stop": ["\n"],
        "stream": True,
    }
    server.handle_chat_completions(request, piece)
    if "error" in last:
        raise RuntimeError(last["error"].get("message", last["error"]))
    times = last.get("timings") or {}
    cut = any(choice.get("finish_reason") == "length" for choice in last.get("choices") or ())
    read = times.get("prompt_n", 0) + times.get("cache_n", 0)
    return json.dumps({"input": read, "output": times.get("predicted_n", 0), "cut": cut}).encode()
