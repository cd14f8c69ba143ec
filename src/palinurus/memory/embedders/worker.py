"""The process that runs the embedded model. Knows nothing of Palinurus, because it is started as a program.

    python worker.py weights.onnx tokenizer.json MOST_TOKENS SHA256_OF_WEIGHTS SHA256_OF_VOCABULARY

Frames both ways: a header (bytes of the body, number, kind) and a body. An order is a number, QUERY or BATCH, and a
JSON list of texts; its answer is the same number, VECTORS and their float32, or FAILED and a sentence. Number 0 says
that the model is loaded. It ends when stdin does, whatever it is doing.

Orders of the two kinds are worked on by a thread each, and the batches' thread is nice: a question is not held up by
the thousand lines that are being filled in.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import struct
import sys
import threading
from typing import Any

HEADER = struct.Struct("<IIB")
QUERY, BATCH = 1, 2
VECTORS, FAILED = 3, 4
NICE = 15

Orders = queue.SimpleQueue[tuple[int, list[str]]]

_speaking = threading.Lock()


def main(weights: str, vocabulary: str, most_tokens: str, weights_sha256: str, vocabulary_sha256: str) -> None:
    orders: dict[int, Orders] = {QUERY: queue.SimpleQueue(), BATCH: queue.SimpleQueue()}
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    _check(weights, weights_sha256)
    _check(vocabulary, vocabulary_sha256)
    model = Model(weights, vocabulary, int(most_tokens))
    _say(0, VECTORS, b"")
    threading.Thread(target=_work_nicely, args=(model, orders[BATCH]), daemon=True).start()
    _work(model, orders[QUERY])


class Model:
    """Two threads may use it at the same time."""

    def __init__(self, weights: str, vocabulary: str, most_tokens: int) -> None:
        import numpy
        import onnxruntime
        import tokenizers

        self._numpy = numpy
        self._words = tokenizers.Tokenizer.from_file(vocabulary)
        self._words.no_padding()
        self._words.enable_truncation(most_tokens)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])

    def embed(self, texts: list[str]) -> bytes:
        np = self._numpy
        rows = [self._words.encode(text).ids for text in texts]
        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        mask = np.zeros_like(ids)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = row
            mask[at, : len(row)] = 1
        asked = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        states = self._session.run(None, asked)[0]
        vectors = (states * mask[:, :, None]).sum(axis=1)  # the mean but for its length, which becomes one
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        made: bytes = vectors.astype("<f4").tobytes()
        return made


def _work(model: Any, orders: Orders) -> None:
    while True:
        number, texts = orders.get()
        try:
            made = model.embed(texts)
        except Exception as error:  # noqa: BLE001  told to whoever asked; the next may fare better
            _say(number, FAILED, _sentence(error))
        else:
            _say(number, VECTORS, made)


def _work_nicely(model: Any, orders: Orders) -> None:
    # Linux has a niceness for each thread. Elsewhere it is the process's, and questions are nice too.
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
    elif hasattr(os, "nice"):
        os.nice(NICE)
    _work(model, orders)


def _listen(orders: dict[int, Orders]) -> None:
    stdin = sys.stdin.buffer
    while header := stdin.read(HEADER.size):
        size, number, kind = HEADER.unpack(header)
        orders[kind].put((number, json.loads(stdin.read(size))))
    os._exit(0)  # native code may be busy and cannot be asked to leave


def _say(number: int, kind: int, body: bytes) -> None:
    with _speaking:
        sys.stdout.buffer.write(HEADER.pack(len(body), number, kind) + body)
        sys.stdout.buffer.flush()


def _check(path: str, sha256: str) -> None:
    with open(path, "rb") as file:  # noqa: PTH123  pathlib would only make the start slower
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(f"{path} is not the file it should be")


def _sentence(error: Exception) -> bytes:
    return f"{type(error).__name__}: {error}".encode("utf-8", "replace")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:  # noqa: BLE001  the edge of the process: told to whoever started it
        _say(0, FAILED, _sentence(error))
        os._exit(1)
