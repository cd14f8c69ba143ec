"""What the worker process of the embedded model runs (see domain/worker_program.py). Knows nothing of Palinurus.

An order is a list of texts, or a question. The answer for texts: their vectors as float32, one behind the other, then
how many words of each have a code (uint16), then the codes. A code is eight bytes: the signs of a word piece's state in
the projection that token_projection.py has fitted. The answer for a question: its vector, the number of its word pieces
(uint16), their states in the projection as float32, and the words that they are part of, one a line.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import Any

# Word pieces that stand in most lines and tell little. So do those without a letter or digit.
_COMMON = "the a an to i and it of you in is was that for my we so your on be have with me are this s t m re ve ll d"
COMMON = frozenset(_COMMON.split())


def start(
    weights: str,
    vocabulary: str,
    projection: str,
    max_tokens: str,
    *sha256s: str,
) -> Callable[[Any, Callable[[bytes], None]], bytes]:
    for path, sha256 in zip((weights, vocabulary, projection), sha256s, strict=True):
        _check(path, sha256)
    model = EmbeddingModel(weights, vocabulary, int(max_tokens))
    words = TokenCoder(projection)

    def handle(order: Any, _: Callable[[bytes], None]) -> bytes:
        if isinstance(order, str):
            vectors, [(tokens, states)] = model.states([order])
            return vectors + words.question(order, tokens, states)
        vectors, states_of_each = model.states(order)
        codes = [words.codes(tokens, states) for tokens, states in states_of_each]
        counts = struct.pack(f"<{len(codes)}H", *(len(each) // 8 for each in codes))
        return b"".join((vectors, counts, *codes))

    return handle


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

    def states(self, texts: list[str]) -> tuple[bytes, list[tuple[Any, Any]]]:
        """The vectors, and of each text its tokens and their states, without those of the beginning and the end."""
        np = self._numpy
        rows = [self._words.encode(text) for text in texts]
        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        mask = np.zeros_like(ids)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = row.ids
            mask[at, : len(row)] = 1
        asked = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        states = self._session.run(None, asked)[0]
        vectors = (states * mask[:, :, None]).sum(axis=1)  # the mean, up to its length, which becomes one
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors.astype("<f4").tobytes(), [(row, states[at, 1 : len(row) - 1]) for at, row in enumerate(rows)]


class TokenCoder:
    """Makes states small: for lines signs only, for questions the numbers."""

    def __init__(self, projection: str) -> None:
        import numpy

        self._numpy = numpy
        rows = numpy.fromfile(projection, "<f2").astype(numpy.float32).reshape(-1, 384)
        self._mean, self._directions = rows[0], rows[1:].T

    def codes(self, tokens: Any, states: Any) -> bytes:
        codes: bytes = self._numpy.packbits(self._projected(states[self._telling(tokens)]) > 0, axis=1).tobytes()
        return codes

    def question(self, text: str, tokens: Any, states: Any) -> bytes:
        np, places = self._numpy, self._telling(tokens)
        found = self._projected(states[places])
        found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)
        words = [text[slice(*tokens.word_to_chars(tokens.word_ids[place + 1]))] for place in places]
        return b"".join((struct.pack("<H", len(places)), found.astype("<f4").tobytes(), "\n".join(words).encode()))

    def _telling(self, tokens: Any) -> list[int]:
        pieces = enumerate(tokens.tokens[1:-1])
        return [at for at, piece in pieces if piece not in COMMON and piece.lstrip("#")[:1].isalnum()]

    def _projected(self, states: Any) -> Any:
        states = states / self._numpy.linalg.norm(states, axis=1, keepdims=True)
        return (states - self._mean) @ self._directions


def _check(path: str, sha256: str) -> None:
    with open(path, "rb") as file:  # noqa: PTH123  pathlib would only make the start slower
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(f"{path} is not the file it should be")
