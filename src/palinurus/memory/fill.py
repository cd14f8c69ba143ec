"""Computes missing vectors in the background, within a share of one core, newest documents first.

The words of a document are found as soon as it is indexed; its vectors may take minutes. Each step reads from the index
what is missing, so no state is stored here: a stopped or failed run is completed by the next.

The first space of an index is used from the start, however few vectors it has. If the embedder changes, the new space
is filled as a shadow and replaces the old one when it is complete.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct, field

from palinurus.domain.errors import EmbedderError, StorageError
from palinurus.memory.answer import OnProgress, Progress
from palinurus.memory.document import MissingVector
from palinurus.memory.embedder import Embedder, check_vectors
from palinurus.memory.store import MemoryStore

STEP = 64  # texts; about half a second of the embedded model
STEP_SECONDS = 300.0  # the embedder has its own limit; this one is a safeguard
FIRST_RETRY = 5.0
LAST_RETRY = 600.0
_LEAST_SHARE = 0.01
log = logging.getLogger(__name__)


class FillReport(Struct, frozen=True):
    """The result of a run. After an error, earlier vectors stay."""

    embedded: int
    trouble: str = ""


class VectorFiller(Struct, eq=False):
    """One for each index. `run` and the background task may run at the same time; they alternate step by step."""

    store: MemoryStore
    embedder: Embedder
    share: float = 0.5  # of one core, for the background task
    step: int = STEP
    step_seconds: float = STEP_SECONDS
    trouble: str = ""  # why vectors are not being computed, in one sentence; empty if all is well
    last: list[MissingVector] = []
    again: int = 0  # how often the same texts were requested
    one_step: asyncio.Lock = field(default_factory=asyncio.Lock)
    nudged: asyncio.Event = field(default_factory=asyncio.Event)
    filling: asyncio.Task[None] | None = None

    async def run(self, progress: OnProgress | None = None, *, share: float = 1.0) -> FillReport:
        """Runs until nothing is missing. Errors are reported, not raised."""
        made = total = 0
        if progress:
            totals = await self.store.totals()
            total = max(0, totals.pieces - totals.embedded.get(self.embedder.space.id, 0))

        def count_up(count: int) -> None:
            nonlocal made
            made += count
            if progress:
                progress(Progress("vectors", min(made, total), total))

        trouble = await self._fill(share, count_up)
        if progress and not trouble:
            progress(Progress("vectors", total, total))  # pieces with equal text share a vector
        return FillReport(made, trouble)

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
        rest = FIRST_RETRY
        while True:
            await self.nudged.wait()
            self.nudged.clear()
            if await self._fill(self.share, lambda _: None):
                self.nudged.set()
                await asyncio.sleep(rest)
                rest = min(rest * 2, LAST_RETRY)
            else:
                rest = FIRST_RETRY

    async def _fill(self, share: float, made: Callable[[int], None]) -> str:
        """The error, or ""."""
        try:
            async with self.one_step:
                if not await self.store.space_in_use():
                    await self.store.use_space(self.embedder.space)
            spent: float | None = 0.0
            while spent is not None:
                await asyncio.sleep(spent / max(min(share, 1.0), _LEAST_SHARE) - spent)
                spent = await self._take_step(made)
        except (EmbedderError, StorageError) as error:
            if str(error) != self.trouble:
                log.warning("vectors are not being made: %s", error)
            self.trouble = str(error)
        else:
            self.trouble = ""
        return self.trouble

    async def _take_step(self, made: Callable[[int], None]) -> float | None:
        """Seconds that the embedder took; None if nothing is missing."""
        space = self.embedder.space
        async with self.one_step:
            missing = await self.store.unembedded(space, self.step)
            if not missing:
                if await self.store.space_in_use() != space.id:
                    await self.store.use_space(space)  # the shadow is complete
                return None
            self._must_be_new(missing)
            began = asyncio.get_running_loop().time()
            vectors = await self._vectors(missing)
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

    async def _vectors(self, missing: list[MissingVector]) -> list[bytes]:
        space = self.embedder.space
        try:
            async with asyncio.timeout(self.step_seconds):
                vectors = await self.embedder.embed([each.meaning for each in missing])
        except TimeoutError as error:
            said = f"the embedder {space.model} gave no vectors within {self.step_seconds:g} seconds"
            raise EmbedderError(said, hint="it is tried again later") from error
        check_vectors(space, vectors, len(missing))
        return vectors
