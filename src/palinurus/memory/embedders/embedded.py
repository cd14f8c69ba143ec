"""The embedded model as an embedder. No network, no key, English first.

The process behind it (worker.py) is started on first use and ends after two idle minutes, so that the house stays
small: neither numpy nor the model is ever loaded here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from palinurus.domain.errors import EmbedderError
from palinurus.memory.embedder import Space
from palinurus.memory.embedders import worker
from palinurus.memory.embedders.checks import check_vectors
from palinurus.memory.embedders.child import Child
from palinurus.memory.embedders.parts import (
    MOST_TOKENS,
    SPACE,
    VOCABULARY_SHA256,
    WEIGHTS_SHA256,
    Parts,
    find_parts,
)

IDLE_SECONDS = 120.0
LOAD_SECONDS = 60.0
QUERY_SECONDS = 60.0  # that a process may be silent; whoever asks has a shorter limit, out of timeoutMs
BATCH_SECONDS = 120.0  # a second of work on a free core; but it is nice to all others
REST_SECONDS = 60.0  # after a start that failed
MOST_TEXTS = 8  # at once; more take longer each, because they leave the processor's cache
MOST_AT_ONCE = 1_000  # characters of several texts
MOST_CHARACTERS = 4_000  # of a text, of which no more than 256 tokens are read


class EmbeddedModel:
    """Implements Embedder with worker.py in a process of its own."""

    def __init__(
        self,
        *,
        idle_seconds: float = IDLE_SECONDS,
        load_seconds: float = LOAD_SECONDS,
        query_seconds: float = QUERY_SECONDS,
        batch_seconds: float = BATCH_SECONDS,
        rest_seconds: float = REST_SECONDS,
        program: Path = Path(worker.__file__),
        find: Callable[[], Parts] = find_parts,
    ) -> None:
        self._idle_seconds = idle_seconds
        self._load_seconds = load_seconds
        self._query_seconds = query_seconds
        self._batch_seconds = batch_seconds
        self._rest_seconds = rest_seconds
        self._program = program
        self._find = find
        self._starting: asyncio.Task[Child] | None = None
        self._failed: tuple[float, EmbedderError] | None = None  # until when it rests, and why
        self._users = 0
        self._unloading: asyncio.TimerHandle | None = None

    @property
    def space(self) -> Space:
        return SPACE

    @property
    def pid(self) -> int | None:
        """Of the process that holds the model, while there is one."""
        child = self._child()
        return child.pid if child else None

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        made: dict[int, bytes] = {}
        with self._used():
            for places in batches(texts):
                some = [_clean(texts[place]) for place in places]
                made.update(zip(places, await self._ask(worker.BATCH, some, self._batch_seconds), strict=True))
        return [made[place] for place in range(len(texts))]

    async def embed_query(self, text: str) -> bytes:
        with self._used():
            return (await self._ask(worker.QUERY, [_clean(text)], self._query_seconds))[0]

    async def close(self) -> None:
        self._keep()
        starting, self._starting = self._starting, None
        if starting is None:
            return
        starting.cancel()  # nothing happens to one that is done
        await asyncio.wait([starting])
        if not starting.cancelled() and starting.exception() is None:
            await starting.result().kill()

    async def _ask(self, kind: int, texts: Sequence[str], seconds: float) -> list[bytes]:
        child = await self._started()
        answer = await child.ask(kind, texts, seconds)
        size = SPACE.dimensions * 4
        vectors = [answer[at : at + size] for at in range(0, len(answer), size)]
        check_vectors(SPACE, vectors, len(texts))
        return vectors

    async def _started(self) -> Child:
        """One start serves all who wait for it, and goes on when one of them leaves."""
        if child := self._child():
            return child
        if self._starting is None or self._starting.done():
            self._still_resting()
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._starting)

    async def _start(self) -> Child:
        try:
            parts = self._find()
            files = (str(parts.weights), str(parts.vocabulary))
            arguments = (str(self._program), *files, str(MOST_TOKENS), WEIGHTS_SHA256, VOCABULARY_SHA256)
            return await Child.start(arguments, self._load_seconds)
        except EmbedderError as error:
            self._failed = (asyncio.get_running_loop().time() + self._rest_seconds, error)
            raise

    def _still_resting(self) -> None:
        """What could not be started is not tried again with each question."""
        if self._failed is None:
            return
        until, error = self._failed
        if asyncio.get_running_loop().time() < until:
            raise EmbedderError(error.message, hint=error.hint)
        self._failed = None

    def _child(self) -> Child | None:
        task = self._starting
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        child = task.result()
        return child if child.is_alive else None

    @contextmanager
    def _used(self) -> Iterator[None]:
        self._users += 1
        self._keep()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._unloading = asyncio.get_running_loop().call_later(self._idle_seconds, self._unload)

    def _keep(self) -> None:
        if self._unloading is not None:
            self._unloading.cancel()
            self._unloading = None

    def _unload(self) -> None:
        if child := self._child():
            self._starting = None
            child.leave()


def batches(texts: Sequence[str]) -> Iterator[list[int]]:
    """Places of texts that go together: of like length, because each is worked on as if it were the longest. Pure."""
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
    """Half a surrogate pair is text to Python and to nobody else."""
    return text[:MOST_CHARACTERS].encode("utf-8", "replace").decode()
