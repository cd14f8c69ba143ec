"""Models of the user's own, each a GGUF file on this machine, run by xllamacpp in a process of their own: one that
embeds, one that judges results, and one that widens questions.

Nothing is downloaded. A file that cannot be run costs a search nothing but its words in the answer.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from palinurus.domain.errors import EmbedderError
from palinurus.domain.worker import PROGRAM, Worker, WorkerFailed
from palinurus.domain.worker_program import BATCH, QUERY
from palinurus.memory.embedder import Embedder, EmbedderPlace, Space
from palinurus.memory.embedders import gguf_worker
from palinurus.memory.embedders.embedded import AGAIN
from palinurus.text.words import words_of

IDLE_SECONDS, LOAD_SECONDS, REST_SECONDS = 300.0, 120.0, 60.0
ASK_SECONDS, BATCH_SECONDS = 60.0, 300.0
MOST_CHARACTERS = 4_000  # of a text
MOST_TEXTS = 16  # at once
EDGE = 64 * 1024  # bytes at both ends of a file, by which it is known
MOST_WORDS = 12  # by which a question is widened
MOST_TOKENS = 60
PROMPT = (
    "List words that a diary line answering this question may contain: synonyms, examples, names of kinds."
    " Only the words, separated by commas.\nQuestion: {query}\nWords:"
)


class GgufModel:
    """One file for one purpose. Its process starts on first use and ends after some idle minutes."""

    def __init__(self, path: Path, purpose: Literal["embed", "rerank", "write"]) -> None:
        self.path = path
        self._purpose = purpose
        self._worker = Worker(
            path.name,
            self._arguments,
            idle_seconds=IDLE_SECONDS,
            load_seconds=LOAD_SECONDS,
            rest_seconds=REST_SECONDS,
        )

    def check(self) -> None:
        """Raises EmbedderError when it cannot work."""
        if not self.path.is_file():
            raise EmbedderError(f"there is no GGUF file {self.path}", hint="check its modelPath", lasting=True)
        if find_spec("xllamacpp") is None:
            hint = "`pal models install embedded` installs what runs GGUF files"
            raise EmbedderError(f"{self.path.name} needs xllamacpp", hint=hint, lasting=True)

    async def ask(self, kind: int, order: object, seconds: float) -> bytes:
        try:
            [answer] = [part.body async for part in self._worker.ask(kind, order, seconds)]
        except WorkerFailed as error:
            raise EmbedderError(str(error), hint=AGAIN) from error
        return answer

    async def close(self) -> None:
        await self._worker.stop()

    @contextmanager
    def _arguments(self) -> Iterator[Sequence[str | Path]]:
        self.check()
        with tempfile.TemporaryDirectory(prefix="pal-", ignore_cleanup_errors=True) as folder:
            yield (PROGRAM, gguf_worker.__file__, self.path, self._purpose, folder)


def open_gguf(place: EmbedderPlace) -> Embedder:
    """Implements OpenEmbedder."""
    return GgufEmbedder(Path(place.options.model_path or "").expanduser())


class GgufEmbedder:
    """Implements Embedder."""

    def __init__(self, path: Path) -> None:
        """Raises EmbedderError."""
        self._model = GgufModel(path, "embed")
        self._model.check()
        self._space = Space("local", path.name, 0, f"unit,{_fingerprint(path)}")

    @property
    def space(self) -> Space:
        return self._space

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        made: list[bytes] = []
        for at in range(0, len(texts), MOST_TEXTS):
            made += await self._ask(BATCH, texts[at : at + MOST_TEXTS], BATCH_SECONDS)
        return made

    async def embed_query(self, text: str) -> bytes:
        return (await self._ask(QUERY, [text], ASK_SECONDS))[0]

    async def close(self) -> None:
        await self._model.close()

    async def _ask(self, kind: int, texts: Sequence[str], seconds: float) -> list[bytes]:
        answer = await self._model.ask(kind, [clean(text) for text in texts], seconds)
        (size,) = struct.unpack_from("<I", answer)
        if not self._space.dimensions:
            self._space = Space("local", self._space.model, size, self._space.preparation)
        if size != self._space.dimensions or len(answer) != 4 + 4 * size * len(texts):
            raise EmbedderError(f"{self._space.model} gave no {len(texts)} vectors of {self._space.dimensions} numbers")
        form = struct.Struct(f"<{size}f")
        return [self._unit(form, answer, 4 + at * form.size) for at in range(len(texts))]

    def _unit(self, form: struct.Struct, answer: bytes, at: int) -> bytes:
        numbers = form.unpack_from(answer, at)
        length = math.hypot(*numbers)
        if not 0 < length < math.inf:
            raise EmbedderError(f"{self._space.model} gave a vector without a direction")
        return form.pack(*[number / length for number in numbers])


def _fingerprint(path: Path) -> str:
    """Of a file that may have gigabytes: its size and both ends."""
    with path.open("rb") as file:
        known = hashlib.sha256(f"{path.stat().st_size}".encode() + file.read(EDGE))
        file.seek(max(0, path.stat().st_size - EDGE))
        known.update(file.read(EDGE))
    return known.hexdigest()[:12]


class GgufReranker:
    """Implements search.Reranker."""

    def __init__(self, path: Path) -> None:
        self._model = GgufModel(path, "rerank")

    async def judge(self, query: str, texts: Sequence[str]) -> list[float]:
        order = {"query": clean(query), "texts": [clean(text) for text in texts]}
        scores = json.loads(await self._model.ask(QUERY, order, ASK_SECONDS))
        if len(scores) != len(texts) or not all(isinstance(score, int | float) for score in scores):
            raise EmbedderError(f"{self._model.path.name} gave no score for each of {len(texts)} texts")
        return [_share(score) for score in scores]

    async def close(self) -> None:
        await self._model.close()


class GgufExpander:
    """Implements search.QueryExpander."""

    def __init__(self, path: Path) -> None:
        self._model = GgufModel(path, "write")

    async def widen(self, query: str) -> tuple[str, ...]:
        order = {"prompt": PROMPT.format(query=clean(query)), "most": MOST_TOKENS}
        said = (await self._model.ask(QUERY, order, ASK_SECONDS)).decode("utf-8", "replace")
        return tuple(dict.fromkeys(words_of(said)))[:MOST_WORDS]

    async def close(self) -> None:
        await self._model.close()


def clean(text: str) -> str:
    """As it can be sent: without lone surrogates, and not empty."""
    whole = text[:MOST_CHARACTERS].encode("utf-8", "replace").decode().replace("\0", " ")
    return whole if whole.strip() else "-"


def _share(score: float) -> float:
    """From 0 to 1: models say how sure they are as a number without bounds."""
    return 1 / (1 + math.exp(-max(-40.0, min(40.0, score))))
