"""The process that runs the small model. Knows nothing of Palinurus, because it is started as a program.

    python worker.py weights.gguf /an/empty/private/folder

One JSON object a line. It says {"ready": true} once the weights are loaded; then for each request on stdin
{"messages": [...], "most": 160, "seed": 7} it says {"text": "..."} as the words come and at last
{"done": {"input": 30, "output": 12, "cut": false}} or {"error": "..."}. It ends when stdin does, whatever it is doing.

A process of its own gives its 200 MB back when it ends, can be stopped in the middle of a thought, and takes nobody
along if native code falls over.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import sys
import threading
from typing import Any

CONTEXT = 2048
TEMPERATURE = 0.3  # the model wanders off above that
REPEAT_PENALTY = 1.1


def main(weights: str, folder: str) -> None:
    orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    server = _load(weights, folder)
    _say({"ready": True})
    while True:
        _answer(server, orders.get())


def _load(weights: str, folder: str) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.n_threads_http = 1
    params.cache_ram_mib = 0
    params.warmup = False
    params.verbosity = -1
    # It insists on listening. A socket in a private folder that is removed at once can be reached by nobody.
    params.hostnames = [os.path.join(folder, "s.sock")]  # noqa: PTH118  pathlib would only make the start slower
    try:
        return xllamacpp.Server(params)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answer(server: Any, order: dict[str, Any]) -> None:
    last: dict[str, Any] = {}

    def piece(chunk: dict[str, Any]) -> bool:
        """Called with each piece of the reply. True would stop it."""
        last.clear()
        last.update(chunk)
        for choice in chunk.get("choices") or ():
            if text := choice["delta"].get("content"):
                _say({"text": text})
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
        _say({"error": str(last["error"].get("message", last["error"]))})
        return
    times = last.get("timings") or {}
    cut = any(choice.get("finish_reason") == "length" for choice in last.get("choices") or ())
    read = times.get("prompt_n", 0) + times.get("cache_n", 0)
    _say({"done": {"input": read, "output": times.get("predicted_n", 0), "cut": cut}})


def _listen(orders: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin.buffer:
        orders.put(json.loads(line))
    os._exit(0)  # native code may be busy and cannot be asked to leave


def _say(said: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:  # noqa: BLE001  the edge of the process: told to whoever started it
        _say({"error": f"{type(error).__name__}: {error}"})
        os._exit(1)
