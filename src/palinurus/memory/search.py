"""One question to one agent's memory.

While the disk is compared with the index (promise 11), the question is embedded in another process and its words are
looked for; if the index turns out to be behind, they are looked for again. Then what both legs say is joined. Keyword
search never waits for an embedder longer than its share of the time, and never fails because of one (promise 12): the
answer is then by words alone and says so.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import date
from functools import partial
from time import perf_counter
from typing import Protocol

import msgspec

from palinurus.config.remembering import MemorySettings
from palinurus.domain.clock import Clock, local_time
from palinurus.domain.errors import EmbedderError, StorageDamaged, StorageError
from palinurus.memory.answer import Answer, Freshness, Result
from palinurus.memory.clamp import clamped
from palinurus.memory.dates import Span, asked_about, words_for
from palinurus.memory.embedder import Embedder
from palinurus.memory.embedders.checks import check_vectors
from palinurus.memory.excerpt import shortened
from palinurus.memory.fusion import rank
from palinurus.memory.question import MAX_QUERY, Question
from palinurus.memory.store import Looked, MemoryStore, WordQuery
from palinurus.memory.words import word_query

log = logging.getLogger(__name__)

EMBEDDING_SHARE, LOOK_SECONDS = 0.5, 1.0  # the embedder has all of the question's time but a second, at least half
SWEEP_SHARE = 0.6
MUCH = 200_000  # characters of candidates that are not judged on the event loop


class Swept(Protocol):
    """The index, as far as a question needs it."""

    async def catch_up(self, seconds: float) -> Freshness:
        """Compare the disk with the index, read what has changed within the time, and tell what was left."""

    def reload(self) -> None:
        """Forget what was known of the index: it turned out to be damaged."""


class _Vector(msgspec.Struct, frozen=True):
    """A question's vector, or why there is none."""

    value: bytes | None
    state: str  # there | off | down
    why: str = ""


class _Asked(msgspec.Struct, frozen=True):
    """A question as it was understood."""

    question: Question
    text: str
    words: WordQuery
    wide: WordQuery  # with words for its dates
    days: tuple[Span, ...]
    today: date

    @property
    def sources(self) -> tuple[str, ...]:
        return self.question.sources


class MemorySearch:
    def __init__(
        self, index: Swept, store: MemoryStore, embedder: Embedder | None, settings: MemorySettings, clock: Clock
    ) -> None:
        self._index = index
        self._store = store
        self._embedder = embedder
        self._settings = settings
        self._sources = {*settings.sources, *(each.name for each in settings.collections)}
        self._clock = clock

    async def ask(self, question: Question) -> Answer:
        """Any text is a question. Fails only if the store does."""
        started = perf_counter()
        asked = self._read(question)
        embedding = asyncio.ensure_future(self._embedded(asked.text, question))
        preparing = asyncio.ensure_future(self._prepared(asked))
        try:
            fresh = await self._index.catch_up(question.budget.seconds * SWEEP_SHARE)
            if not await preparing:
                fresh = await self._made_anew(question, started, fresh)
            vector = await embedding
        finally:
            embedding.cancel()
            preparing.cancel()
        try:
            return await self._answered(asked, vector, fresh, started)
        except StorageDamaged:
            fresh = await self._made_anew(question, started, fresh)
            return await self._answered(asked, vector, fresh, started)

    async def _made_anew(self, question: Question, started: float, before: Freshness) -> Freshness:
        """An index that was damaged has been thrown away: nothing is lost, and what time allows is indexed again."""
        self._index.reload()
        fresh = await self._index.catch_up(question.budget.seconds - (perf_counter() - started))
        return msgspec.structs.replace(fresh, caught_up=before.caught_up + fresh.caught_up)

    def _read(self, question: Question) -> _Asked:
        text, today = _clean(question.query), local_time(self._clock).date()
        words, days = word_query(text), asked_about(text, today)
        # Words for dates only help to find candidates: no piece has them.
        return _Asked(question, text, words, WordQuery(words.words + words_for(days)), days, today)

    async def _prepared(self, asked: _Asked) -> bool:
        """False: the index was damaged, and what stands in its place is empty."""
        try:
            await self._store.prepare(asked.wide, limit=self._settings.ranking.candidates, sources=asked.sources)
        except StorageDamaged:
            return False
        except StorageError as error:  # the look itself will tell
            log.debug("no look was prepared: %s", error)
        return True

    async def _answered(self, asked: _Asked, vector: _Vector, fresh: Freshness, started: float) -> Answer:
        looked = await self._look(asked, vector.value)
        by_vector = vector.value is not None and looked.embedded > 0
        much = sum(len(each.text) for each in looked.candidates) > MUCH
        work = partial(self._judged, asked, looked, by_vector=by_vector)
        results, left_out = await asyncio.to_thread(work) if much else work()
        return Answer(
            tuple(results),
            _with_vectors(fresh, looked, vector),
            "hybrid" if by_vector else "keyword",
            round((perf_counter() - started) * 1000, 3),
            left_out,
        )

    async def _look(self, asked: _Asked, vector: bytes | None) -> Looked:
        space = self._embedder.space if self._embedder and vector else None
        limit = self._settings.ranking.candidates
        looked = await self._store.look(asked.wide, vector, space, limit=limit, sources=asked.sources)
        # What the config has no longer may still be in an index that there was no time to compare.
        allowed = tuple(each for each in looked.candidates if each.place.source in self._sources)
        frequencies = looked.frequencies[: len(asked.words.words)]
        return msgspec.structs.replace(looked, candidates=allowed, frequencies=frequencies)

    def _judged(self, asked: _Asked, looked: Looked, *, by_vector: bool) -> tuple[list[Result], int]:
        """The best within the budget, and how many more there were."""
        ranking, question, words = self._settings.ranking, asked.question, asked.words
        short = shortened(looked, words.words)
        order = rank(words, short, ranking, by_vector=by_vector, today=asked.today, days=asked.days)
        found = order.above(ranking.min_score if question.min_score is None else question.min_score)
        if short is not looked:
            whole = {each.id: each for each in looked.candidates}
            found = [msgspec.structs.replace(one, candidate=whole[one.candidate.id]) for one in found]
        chosen, left_out = clamped(found, question.budget, words.words, cite=question.cite)
        if not question.explain:
            return [result for _, result in chosen], left_out
        return [msgspec.structs.replace(result, factors=order.factors(one)) for one, result in chosen], left_out

    async def _embedded(self, text: str, question: Question) -> _Vector:
        if self._embedder is None or question.keyword_only or not text:
            return _Vector(None, "off")
        whole = question.budget.seconds
        seconds = max(whole * EMBEDDING_SHARE, whole - LOOK_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                vector = await self._embedder.embed_query(text)
            check_vectors(self._embedder.space, [vector], 1)
            return _Vector(vector, "there")
        except TimeoutError:
            return _Vector(None, "down", f"the embedder did not answer within {seconds:g} s: searched by words alone")
        except EmbedderError as error:
            return _Vector(None, "down", f"searched by words alone: {error}")


def _clean(query: str) -> str:
    """As much of it as is looked at, without what no text should have."""
    return query[: MAX_QUERY * 2].encode("utf-8", "replace").decode().replace("\0", " ").strip()[:MAX_QUERY]


def _with_vectors(fresh: Freshness, looked: Looked, vector: _Vector) -> Freshness:
    state = vector.state
    if state == "there":
        state = "complete" if looked.embedded >= looked.pieces else "partial"
    return msgspec.structs.replace(
        fresh,
        vectors=state,
        embedded=looked.embedded if vector.value is not None else 0,
        pieces=looked.pieces,
        why=fresh.why or vector.why,
    )
