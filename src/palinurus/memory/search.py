"""One search in one agent's memory.

While the disk is compared with the index (promise 11), the question is embedded in another process and its words are
searched; if the index turns out to be behind, they are searched again. Then both rankings are combined. Keyword search
never waits for an embedder longer than its share of the time, and never fails because of one (promise 12): the answer
then uses keywords only and says so.

The best results within a budget are returned. By default in characters: a total, and a maximum per snippet. A budget of
tokens replaces both: whole lines, characters/4, each line once. What does not fit is left out and counted. A line is
never split, and some are megabytes; of such a line only the part with most of the question's words is scored.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Sequence
from datetime import date
from functools import lru_cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

import msgspec

from palinurus.domain.clock import Clock, local_time
from palinurus.domain.errors import EmbedderError, StorageDamaged, StorageError
from palinurus.domain.messages import OUTSIDE_MARK
from palinurus.memory.answer import IndexFreshness, SearchAnswer, SearchResult
from palinurus.memory.document import CandidateSet, WordQuery
from palinurus.memory.embedder import Embedder, EmbedderChain, Space, check_vectors, embedder_errors
from palinurus.memory.question import MAX_QUERY, Question
from palinurus.memory.rank import RankedCandidate, RankedList, rank, rejudged
from palinurus.memory.settings import MemorySettings, SearchLimits
from palinurus.memory.store import MemoryStore
from palinurus.memory.terms import DateSpan, asked_about, date_in_path, word_query, words_for
from palinurus.text.words import beginning, folded, stem

if TYPE_CHECKING:
    from palinurus.memory.index import MemoryIndex

LONG = 4_000  # characters
MOST_OFFSETS = 20  # of one word


def shortened(looked: CandidateSet, words: Sequence[str]) -> CandidateSet:
    """The same candidates, shortened to the length that is scored."""
    if all(len(candidate.text) <= LONG for candidate in looked.candidates):
        return looked
    short = (
        msgspec.structs.replace(each, text=window(each.text, LONG, words)) if len(each.text) > LONG else each
        for each in looked.candidates
    )
    return msgspec.structs.replace(looked, candidates=tuple(short))


def window(text: str, room: int, words: Sequence[str]) -> str:
    """The part of a long line with most of the words, marked where it was cut."""
    low, room = folded(text), room - 2
    if len(low) != len(text):
        return f"{text[:room].rstrip()}…"
    offsets = sorted({at for word in words for at in _offsets(low, beginning(stem(word)))})
    start = max(offsets, key=lambda at: bisect_left(offsets, at + room) - bisect_left(offsets, at), default=0)
    start = max(0, min(start - room // 5, len(text) - room))
    start = text.find(" ", start, start + 30) + 1 or start if start else 0
    end = min(len(text), start + room)
    return ("…" if start else "") + text[start:end].strip() + ("…" if end < len(text) else "")


def _offsets(text: str, word: str) -> list[int]:
    offsets: list[int] = []
    at = text.find(word)
    while at >= 0 and len(offsets) < MOST_OFFSETS:
        offsets.append(at)
        at = text.find(word, at + 1)
    return offsets


CHARACTERS_PER_TOKEN = 4
UNDER = 120  # characters of the context
LEAST = 10  # characters below which nothing more is added
SHORTEST = 40  # minimum characters of a snippet


def clamped(
    ranked: Sequence[RankedCandidate], budget: SearchLimits, words: Sequence[str], *, cite: bool
) -> tuple[list[tuple[RankedCandidate, SearchResult]], int]:
    """Results best first, and how many exceeded the budget."""
    results: list[tuple[RankedCandidate, SearchResult]] = []
    left = budget.characters if budget.tokens is None else budget.tokens * CHARACTERS_PER_TOKEN
    most = len(ranked) if budget.results is None else budget.results
    for one in ranked:
        if left < LEAST or len(results) >= most:
            break
        if not (snippet := _snippet(one.candidate.text, budget, left, words)):
            continue
        found = one.candidate
        needed = len(snippet) + 1 + (len(under(found.ref.path, found.context)) if budget.tokens is None else 0)
        if needed <= left + 1:
            left -= needed
            results.append((one, _result(one, snippet, cite=cite)))
    return results, len(ranked) - len(results)


def _snippet(text: str, budget: SearchLimits, left: int, words: Sequence[str]) -> str:
    """The snippet; empty if it does not fit."""
    if budget.tokens is not None:
        return text if len(text) < left else ""
    room = min(budget.snippet, left)
    if len(text) <= room:
        return text
    if room < budget.snippet or room < SHORTEST:
        return ""
    # A line of outside text is marked at its end, and keeps the mark when it is cut (promise 18).
    mark = f" (… {OUTSIDE_MARK}" if OUTSIDE_MARK in text else ""
    return window(text, room - len(mark), words) + mark


def _result(one: RankedCandidate, snippet: str, *, cite: bool) -> SearchResult:
    found, path, lines = one.candidate, one.candidate.ref.path, (one.candidate.start_line, one.candidate.end_line)
    cited, above = citation(path, *lines) if cite else "", under(path, found.context)
    return SearchResult(path, *lines, round(min(1.0, one.score), 4), snippet, found.ref.source, cited, above)


@lru_cache(maxsize=10_000)
def under(path: str, context: str) -> str:
    """The context of a snippet, if it adds something: "lives in Oslo" says little without the heading "Anna"."""
    known, day = folded(path), date_in_path(path)
    parts = [part.strip() for part in context.split(">")]
    news = [part for part in parts if folded(part) not in known and not (day and day.isoformat() in part)]
    return " > ".join(part for part in dict.fromkeys(news) if part)[-UNDER:]


def citation(path: str, start_line: int, end_line: int) -> str:
    """`memory/2026-11-15.md#L3-L9`."""
    return f"{path}#L{start_line}" if start_line == end_line else f"{path}#L{start_line}-L{end_line}"


log = logging.getLogger(__name__)
EMBEDDING_SHARE, LOOK_SECONDS = 0.5, 1.0  # the embedder has all of the time but a second, at least half
SWEEP_SHARE = 0.6
HELPER_SHARE = 0.5  # of a search's time, for the words of an expander
RERANK_SHARE = 0.8  # of what is left of it then
NOBODY_ASKED = "searched by words alone: the vectors of the embedder that the config names now are not complete yet"
MUCH = 200_000  # characters of candidates above which ranking runs in a thread


class Reranker(Protocol):
    """Judges how well texts answer a question. Failures are EmbedderErrors."""

    async def judge(self, query: str, texts: Sequence[str]) -> list[float]:
        """0 to 1 for each text, in order."""


class QueryExpander(Protocol):
    """Names words that an answer may have. Failures are EmbedderErrors."""

    async def widen(self, query: str) -> tuple[str, ...]: ...


class QueryHelpers(msgspec.Struct, frozen=True):
    """Models of the user that help with a question, within its time."""

    reranker: Reranker | None = None
    judged: int = 0  # results
    expander: QueryExpander | None = None


class _Vector(msgspec.Struct, frozen=True):
    """A question's vector, or why there is none."""

    value: bytes | None
    state: str = ""  # if there is none: off | down
    why: str = ""
    space: Space | None = None


class _ParsedQuestion(msgspec.Struct, frozen=True):
    """A parsed question."""

    question: Question
    text: str
    words: WordQuery
    wide: WordQuery  # with words for its dates
    days: tuple[DateSpan, ...]
    today: date
    also: WordQuery = WordQuery(())  # that an expander has named


class MemorySearch(msgspec.Struct, frozen=True, eq=False):
    index: MemoryIndex
    store: MemoryStore
    embedder: Embedder | EmbedderChain | None
    settings: MemorySettings
    clock: Clock
    moved_on: Callable[[], None] = lambda: None  # called when another embedder is to make the vectors
    helpers: QueryHelpers = QueryHelpers()

    async def ask(self, question: Question) -> SearchAnswer:
        """Any text is a question. Raises only storage errors."""
        started = perf_counter()
        asked = self._read(question)
        embedding = asyncio.ensure_future(self._embedded(asked.text, question))
        preparing = asyncio.ensure_future(self._prepared(asked))
        widening = asyncio.ensure_future(self._widened(asked))
        try:
            fresh = await self.index.catch_up(question.budget.seconds * SWEEP_SHARE)
            if not await preparing:
                fresh = await self._made_anew(question, started, fresh)
            vector = await embedding
            asked, trouble = await widening
        finally:
            embedding.cancel()
            preparing.cancel()
            widening.cancel()
        fresh = msgspec.structs.replace(fresh, why=fresh.why or trouble)
        try:
            return await self._answered(asked, vector, fresh, started)
        except StorageDamaged:
            fresh = await self._made_anew(question, started, fresh)
            return await self._answered(asked, vector, fresh, started)

    async def _made_anew(self, question: Question, started: float, before: IndexFreshness) -> IndexFreshness:
        """Rebuilds a discarded damaged index, as far as time allows; nothing is lost."""
        self.index.reload()
        fresh = await self.index.catch_up(question.budget.seconds - (perf_counter() - started))
        return msgspec.structs.replace(fresh, caught_up=before.caught_up + fresh.caught_up)

    def _read(self, question: Question) -> _ParsedQuestion:
        text, today = _clean(question.query), local_time(self.clock).date()
        words, days = word_query(text), asked_about(text, today)
        # Words for dates only help to find candidates: no piece has them.
        return _ParsedQuestion(question, text, words, WordQuery(words.words + words_for(days)), days, today)

    async def _prepared(self, asked: _ParsedQuestion) -> bool:
        """False: the index was damaged and is now empty."""
        try:
            limit, sources = self.settings.ranking.candidates, asked.question.sources
            await self.store.prepare(asked.wide, limit=limit, sources=sources)
        except StorageDamaged:
            return False
        except StorageError as error:  # the search itself will report it
            log.debug("no look was prepared: %s", error)
        return True

    async def _widened(self, asked: _ParsedQuestion) -> tuple[_ParsedQuestion, str]:
        """With more words to look for, or why not."""
        if self.helpers.expander is None or not asked.text:
            return asked, ""
        try:
            async with asyncio.timeout(asked.question.budget.seconds * HELPER_SHARE):
                said = await self.helpers.expander.widen(asked.text)
        except TimeoutError:
            return asked, "not widened: the model did not answer in time"
        except EmbedderError as error:
            return asked, f"not widened: {error}"
        new = tuple(word for word in word_query(" ".join(said)).words if word not in asked.words.words)
        wide = WordQuery(asked.wide.words + new)
        return msgspec.structs.replace(asked, wide=wide, also=WordQuery(new)), ""

    async def _reranked(
        self, asked: _ParsedQuestion, found: list[RankedCandidate], seconds: float
    ) -> tuple[list[RankedCandidate], str]:
        """In a better order, or why not. The model's judgment is half of the score; what it did not see has none."""
        reranker, best = self.helpers.reranker, found[: self.helpers.judged]
        if reranker is None or len(best) < 2:
            return found, ""
        texts = [f"{one.candidate.context}\n{one.candidate.text}".strip()[:LONG] for one in best]
        try:
            async with asyncio.timeout(seconds):
                judged = await reranker.judge(asked.text, texts)
        except TimeoutError:
            return found, "not reranked: the model did not answer in time"
        except EmbedderError as error:
            return found, f"not reranked: {error}"
        judged += [0.0] * (len(found) - len(best))
        return rejudged(found, judged), ""

    async def _answered(
        self, asked: _ParsedQuestion, vector: _Vector, fresh: IndexFreshness, started: float
    ) -> SearchAnswer:
        looked = await self._look(asked, vector)
        if vector.value is not None and not looked.embedded and isinstance(self.embedder, EmbedderChain):
            # Another space may have taken over since the question was embedded.
            left = asked.question.budget.seconds - (perf_counter() - started)
            vector = await self._embedded(asked.text, asked.question, within=max(left, 0.0), unless=vector)
            looked = await self._look(asked, vector)
        by_vector = vector.value is not None and looked.embedded > 0
        much = sum(len(each.text) for each in looked.candidates) > MUCH
        work = partial(self._judged, asked, looked, by_vector=by_vector)
        order, found = await asyncio.to_thread(work) if much else work()
        left = asked.question.budget.seconds - (perf_counter() - started)
        found, trouble = await self._reranked(asked, found, left * RERANK_SHARE)
        results, left_out = self._cut(asked, order, found)
        fresh = msgspec.structs.replace(fresh, why=fresh.why or trouble)
        freshness, mode = _with_vectors(fresh, looked, vector), "hybrid" if by_vector else "keyword"
        took_ms = round((perf_counter() - started) * 1000, 3)
        answer = SearchAnswer(tuple(results), freshness, mode, took_ms, left_out)
        if vector.space is None or not by_vector:
            return answer
        fallback = self.embedder.fallback if isinstance(self.embedder, EmbedderChain) else None
        provider, model = vector.space.provider, vector.space.model
        return msgspec.structs.replace(answer, provider=provider, model=model, fallback=fallback)

    async def _look(self, asked: _ParsedQuestion, vector: _Vector) -> CandidateSet:
        limit, sources = self.settings.ranking.candidates, asked.question.sources
        looked = await self.store.look(asked.wide, vector.value, vector.space, limit=limit, sources=sources)
        # Sources that were removed from the config may still be in an index that there was no time to compare.
        known = {*self.settings.sources, *(each.name for each in self.settings.collections)}
        allowed = tuple(each for each in looked.candidates if each.ref.source in known)
        frequencies = looked.frequencies[: len(asked.words.words)]
        return msgspec.structs.replace(looked, candidates=allowed, frequencies=frequencies)

    def _judged(
        self, asked: _ParsedQuestion, looked: CandidateSet, *, by_vector: bool
    ) -> tuple[RankedList, list[RankedCandidate]]:
        """All in their order, and those that may be results."""
        ranking, question, words = self.settings.ranking, asked.question, asked.words
        short = shortened(looked, words.words)
        order = rank(words, short, ranking, by_vector=by_vector, today=asked.today, days=asked.days, also=asked.also)
        found = order.above(ranking.min_score if question.min_score is None else question.min_score)
        if short is not looked:
            whole = {each.id: each for each in looked.candidates}
            found = [msgspec.structs.replace(one, candidate=whole[one.candidate.id]) for one in found]
        return order, found

    def _cut(
        self, asked: _ParsedQuestion, order: RankedList, found: list[RankedCandidate]
    ) -> tuple[list[SearchResult], int]:
        """The best within the budget, and how many more there were."""
        question = asked.question
        chosen, left_out = clamped(found, question.budget, asked.words.words, cite=question.cite)
        if not question.explain:
            return [result for _, result in chosen], left_out
        return [msgspec.structs.replace(result, factors=order.factors(one)) for one, result in chosen], left_out

    async def _embedded(
        self, text: str, question: Question, *, within: float | None = None, unless: _Vector | None = None
    ) -> _Vector:
        """`unless`: the vector that there is, if it is of the embedder that would be asked."""
        if self.embedder is None or question.keyword_only or not text:
            return _Vector(None, "off")
        whole = question.budget.seconds
        seconds = max(whole * EMBEDDING_SHARE, whole - LOOK_SECONDS) if within is None else within
        embedder: Embedder | None = None
        try:
            async with asyncio.timeout(seconds):
                embedder = await self._asked()
                if embedder is None:
                    return _Vector(None, "down", NOBODY_ASKED)
                if unless is not None and embedder.space == unless.space:
                    return unless
                with embedder_errors(embedder):
                    vector = await embedder.embed_query(text)
                    check_vectors(embedder.space, [vector], 1)
            return _Vector(vector, space=embedder.space)
        except TimeoutError:
            said = f"the embedder did not answer within {seconds:g} s"
            self._note(embedder, EmbedderError(said))
            return _Vector(None, "down", f"{said}: searched by words alone")
        except StorageDamaged:
            raise
        except (EmbedderError, StorageError) as error:  # of storage: what is sent could not be booked
            if isinstance(error, EmbedderError):
                self._note(embedder, error)
            return _Vector(None, "down", f"searched by words alone: {error}")

    def _note(self, embedder: Embedder | None, error: EmbedderError) -> None:
        if isinstance(self.embedder, EmbedderChain) and embedder is not None and self.embedder.failed(embedder, error):
            self.moved_on()

    async def _asked(self) -> Embedder | None:
        """Whoever embeds questions in the space that is searched."""
        if not isinstance(self.embedder, EmbedderChain):
            return self.embedder
        return self.embedder.of_space(await self.store.space_in_use())


def _clean(query: str) -> str:
    """The used part of it, without invalid characters."""
    return query[: MAX_QUERY * 2].encode("utf-8", "replace").decode().replace("\0", " ").strip()[:MAX_QUERY]


def _with_vectors(fresh: IndexFreshness, looked: CandidateSet, vector: _Vector) -> IndexFreshness:
    state, embedded = vector.state, 0
    if vector.value is not None:
        embedded = looked.embedded
        state = "complete" if embedded >= looked.pieces else "partial"
    return msgspec.structs.replace(
        fresh, vectors=state, embedded=embedded, pieces=looked.pieces, why=fresh.why or vector.why
    )
