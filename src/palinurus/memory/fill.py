"""Computes missing vectors in the background, within a share of one core, newest documents first.

The words of a document are found as soon as it is indexed; its vectors may take minutes. Each step reads from the index
what is missing, so no state is stored here: a stopped or failed run is completed by the next.

The first space of an index is used from the start, however few vectors it has. If the embedder changes, the new space
is filled as a shadow and replaces the old one when it is complete. If the embedder fails, the next of its chain does
the same, and the vectors of the one that failed stay until it works again.

While a batch makes the vectors of a large index (`VectorBatches`), only what is newer than the batch is embedded here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from msgspec import Struct, field

from palinurus.domain.errors import EmbedderError, StorageError
from palinurus.memory.answer import OnProgress, Progress
from palinurus.memory.document import MissingVector
from palinurus.memory.embedder import RETURN_SECONDS, Embedder, EmbedderChain, Space, check_vectors, embedder_errors
from palinurus.memory.store import MemoryStore

T = TypeVar("T")
STEP = 64  # texts; about half a second of the embedded model
STEP_SECONDS = 300.0  # the embedder has its own limit; this one is a safeguard
BATCH_SECONDS = 60.0  # after that it is looked whether a batch has ended
FIRST_RETRY = 5.0
LAST_RETRY = 600.0
_LEAST_SHARE = 0.01
log = logging.getLogger(__name__)


class VectorBatches(Protocol):
    """Has large numbers of vectors made elsewhere, in their own time, and put into the index."""

    async def covered(self, embedder: Embedder, store: MemoryStore) -> int:
        """The last piece whose vector a batch makes; one is begun if so many are missing. 0: there is none."""


class FillReport(Struct, frozen=True):
    """The result of a run. After an error, earlier vectors stay."""

    embedded: int
    trouble: str = ""


class VectorFiller(Struct, eq=False):
    """One for each index. `run` and the background task may run at the same time; they alternate step by step."""

    store: MemoryStore
    embedder: Embedder | EmbedderChain
    share: float = 0.5  # of one core, for the background task
    step: int = STEP
    step_seconds: float = STEP_SECONDS
    batches: VectorBatches | None = None
    covered: int = 0  # by a batch
    trouble: str = ""  # why vectors are not being computed, in one sentence; empty if all is well
    last: list[MissingVector] = []
    embedder_failed: bool = False  # that is the trouble
    wait: float = 0.0  # seconds, of an embedder that has said when it may be asked again
    again: int = 0  # how often the same texts were requested
    one_step: asyncio.Lock = field(default_factory=asyncio.Lock)
    nudged: asyncio.Event = field(default_factory=asyncio.Event)
    filling: asyncio.Task[None] | None = None

    @property
    def serving(self) -> Embedder:
        return self.embedder.serving if isinstance(self.embedder, EmbedderChain) else self.embedder

    @property
    def has_fallen(self) -> bool:
        return isinstance(self.embedder, EmbedderChain) and self.embedder.fallback is not None

    @property
    def kept(self) -> tuple[Space, ...]:
        return self.embedder.kept if isinstance(self.embedder, EmbedderChain) else ()

    async def run(self, progress: OnProgress | None = None, *, share: float = 1.0) -> FillReport:
        """Runs until nothing is missing. Errors are reported, not raised."""
        made = total = 0
        if progress:
            totals = await self.store.totals()
            total = max(0, totals.pieces - totals.embedded.get(self.serving.space.id, 0))

        def count_up(count: int) -> None:
            nonlocal made
            made += count
            if progress:
                progress(Progress("vectors", min(made, total), total))

        before = self.serving
        while (trouble := await self._fill(share, count_up)) and self._may_go_on(before):
            before = self.serving
        if progress and not trouble:
            progress(Progress("vectors", total, total))  # pieces with equal text share a vector
        return FillReport(made, trouble)

    def _may_go_on(self, before: Embedder) -> bool:
        """After a failure: whether another embedder serves, or one that can be replaced has failed."""
        chain = self.embedder if isinstance(self.embedder, EmbedderChain) else None
        return self.serving is not before or (self.embedder_failed and chain is not None and chain.has_next)

    def start(self) -> None:
        """Starts the background task, which runs now and after each `nudge`."""
        if self.filling is None:
            self.nudged.set()
            self.filling = asyncio.create_task(self._go_on())

    async def stop(self) -> None:
        filling, self.filling = self.filling, None
        if filling is not None:
            filling.cancel()
            with suppress(asyncio.CancelledError):
                await filling

    def nudge(self) -> None:
        """Reports that there may be work. A pause after a failure is not shortened."""
        self.nudged.set()

    async def _go_on(self) -> None:
        rest, clock = FIRST_RETRY, asyncio.get_running_loop().time
        return_at = 0.0  # when the first embedder is tried again, however busy it is until then; 0: it serves
        while True:
            return_at = (return_at or clock() + RETURN_SECONDS) if self.has_fallen else 0.0
            with suppress(TimeoutError):
                patience = return_at - clock() if return_at else BATCH_SECONDS if self.covered else None
                async with asyncio.timeout(patience):
                    await self.nudged.wait()
            if isinstance(self.embedder, EmbedderChain) and return_at and clock() >= return_at:
                return_at = 0.0
                await self.embedder.try_first()
            self.nudged.clear()
            before = self.serving
            if await self._fill(self.share, lambda _: None):
                self.nudged.set()
                if self.serving is before:
                    await asyncio.sleep(max(rest, self.wait))
                    rest = min(rest * 2, LAST_RETRY)
            else:
                rest = FIRST_RETRY

    async def _fill(self, share: float, made: Callable[[int], None]) -> str:
        """The error, or ""."""
        embedder = self.serving
        try:
            await self._begin(embedder)
            spent: float | None = 0.0
            while spent is not None:
                await asyncio.sleep(spent / max(min(share, 1.0), _LEAST_SHARE) - spent)
                spent = await self._take_step(embedder, made)
        except (EmbedderError, StorageError) as error:
            if str(error) != self.trouble:
                log.warning("vectors are not being made: %s", error)
            self.trouble = str(error)
            self.embedder_failed, self.wait = False, 0.0
            if isinstance(error, EmbedderError):
                self.embedder_failed, self.wait = True, error.retry_after or 0.0
                if isinstance(self.embedder, EmbedderChain):
                    self.embedder.failed(embedder, error)
        else:
            self.trouble = ""
            if isinstance(self.embedder, EmbedderChain):
                self.embedder.worked(embedder)
        return self.trouble

    async def _begin(self, embedder: Embedder) -> None:
        """Learns the space of an embedder that does not know its dimensions, and uses the first one of an index."""
        async with self.one_step:
            if not embedder.space.dimensions:
                await self._within(embedder, embedder.embed_query("How many numbers has a vector?"))
            if not await self.store.space_in_use():
                await self.store.use_space(embedder.space)

    async def _take_step(self, embedder: Embedder, made: Callable[[int], None]) -> float | None:
        """Seconds that the embedder took; None if nothing is missing."""
        space = embedder.space
        async with self.one_step:
            missing, self.covered = await self.store.unembedded(space, self.step), 0
            if missing and self.batches is not None:
                self.covered = await self.batches.covered(embedder, self.store)
                missing = await self.store.unembedded(space, self.step, after=self.covered)
            if not missing:
                if not self.covered and await self.store.space_in_use() != space.id:
                    await self.store.use_space(space, kept=self.kept)  # the shadow is complete
                return None
            self._must_be_new(missing)
            began = asyncio.get_running_loop().time()
            vectors = await self._vectors(embedder, missing)
            spent = asyncio.get_running_loop().time() - began
            pairs = zip((each.digest for each in missing), vectors, strict=True)
            await self.store.put_vectors(space, list(pairs))
            self.last = missing
        made(len(missing))
        return spent

    def _must_be_new(self, missing: list[MissingVector]) -> None:
        """Raises if the index repeatedly asks for the same texts, which would keep a core busy forever.

        Once is normal: while a document is indexed again its pieces are missing, and its new vectors are not stored.
        """
        last, self.last = self.last, []
        self.again = self.again + 1 if missing == last else 0
        if self.again > 1:
            raise StorageError("the index does not store its vectors", hint="`pal memory index --force` rebuilds it")

    async def _vectors(self, embedder: Embedder, missing: list[MissingVector]) -> list[bytes]:
        vectors = await self._within(embedder, embedder.embed([each.meaning for each in missing]))
        with embedder_errors(embedder):
            check_vectors(embedder.space, vectors, len(missing))
        return vectors

    async def _within(self, embedder: Embedder, asked: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self.step_seconds):
                with embedder_errors(embedder):
                    return await asked
        except TimeoutError as error:
            said = f"the embedder {embedder.space.model} gave no vectors within {self.step_seconds:g} seconds"
            raise EmbedderError(said, hint="it is tried again later") from error
