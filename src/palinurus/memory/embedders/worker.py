"""What the worker process of the embedded model runs (see domain/worker_program.py). Knows nothing of Palinurus.

An order is a list of texts; the answer is their vectors as float32, one behind the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any


def start(
    weights: str, vocabulary: str, max_tokens: str, weights_sha256: str, vocabulary_sha256: str
) -> Callable[[Any, Callable[[bytes], None]], bytes]:
    _check(weights, weights_sha256)
    _check(vocabulary, vocabulary_sha256)
    model = EmbeddingModel(weights, vocabulary, int(max_tokens))
    return lambda texts, _: model.embed(texts)


class EmbeddingModel:
    """Thread-safe for two threads."""

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
        vectors = (states * mask[:, :, None]).sum(axis=1)  # the mean, up to its length, which becomes one
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        made: bytes = vectors.astype("<f4").tobytes()
        return made


def _check(path: str, sha256: str) -> None:
    with open(path, "rb") as file:  # noqa: PTH123  pathlib would only make the start slower
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(f"{path} is not the file it should be")
