"""What each leg says about the candidates, joined into one order.

Score = words · (words + passage · its passage's words + label · its label + date · its date) + vector · cosine. Words
are measured against the best that this question could find and the cosine is taken as it is, so both mean the same in
every question: one whose words are not there leans on its meaning by itself. A piece that has no vector yet is judged
by its words in both places. Optional on top: recency of dated files, and variety (MMR). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from operator import mul

from msgspec import Struct

from palinurus.config.remembering import Ranking
from palinurus.memory.answer import Factor
from palinurus.memory.bm25 import WordScores
from palinurus.memory.dates import Span, date_in_path, nearness
from palinurus.memory.stem import words_of
from palinurus.memory.store import Candidate, Looked, WordQuery
from palinurus.memory.words import index_words

STAND_IN = 0.6  # a cosine that goes with a full score of words, where there is no vector
NAMES = ("words", "passage", "label", "date", "vector")
VARIED = 100  # the best, among which MMR chooses


class Ranked(Struct, frozen=True):
    candidate: Candidate
    score: float  # 0 for nothing, about 1 for all that one can wish
    parts: tuple[float, ...] = ()  # what each factor measured, in the order of NAMES; then what age left of it


class Order(Struct, frozen=True):
    """The candidates of one question, best first, and what part of a score each factor can give."""

    ranked: list[Ranked]
    shares: tuple[float, ...]

    def above(self, min_score: float) -> list[Ranked]:
        return [one for one in self.ranked if one.score >= min_score and one.score > 0]

    def factors(self, one: Ranked) -> tuple[Factor, ...]:
        """They add up to the score; recency is what it was multiplied by, and took away."""
        parts = zip(NAMES, one.parts, self.shares, strict=False)
        factors = [_factor(name, value, share, value * share) for name, value, share in parts if share]
        if len(one.parts) > len(NAMES):
            kept = one.parts[-1]
            factors.append(_factor("recency", kept, 1.0, one.score - sum(map(mul, one.parts, self.shares))))
        return tuple(factors)


def rank(
    query: WordQuery, looked: Looked, ranking: Ranking, *, by_vector: bool, today: date, days: Sequence[Span] = ()
) -> Order:
    """`by_vector`: the question had a vector. `days`: those it asks about."""
    words = WordScores(query, looked, ranking.neighbours)
    passage = max((candidate.passage_words for candidate in looked.candidates), default=0.0) or 1.0
    near = {place: nearness(date_in_path(place.path), days) for place in {one.place for one in looked.candidates}}
    shares = _shares(ranking, by_vector=by_vector, labelled=any(words.labelled), dated=any(near.values()))
    ranked = []
    for candidate, own, label in zip(looked.candidates, words.own, words.labelled, strict=True):
        cosine = own * STAND_IN if candidate.cosine is None else max(0.0, candidate.cosine)
        parts: tuple[float, ...] = (own, candidate.passage_words / passage, label, near[candidate.place], cosine)
        score = sum(map(mul, parts, shares))
        if ranking.half_life_days:
            parts = (*parts, _kept(candidate.place.path, today, ranking.half_life_days))
            score *= parts[-1]
        ranked.append(Ranked(candidate, score, parts))
    ranked.sort(key=lambda one: (-one.score, one.candidate.place, one.candidate.start_line))
    return Order(ranked if ranking.mmr_lambda is None else _varied(ranked, ranking.mmr_lambda), shares)


def _shares(ranking: Ranking, *, by_vector: bool, labelled: bool, dated: bool) -> tuple[float, ...]:
    """In the order of NAMES. A factor that says nothing about this question has none."""
    weights = (
        ranking.words,
        ranking.words * ranking.passage,
        ranking.words * ranking.label * labelled,
        ranking.words * ranking.date * dated,
        ranking.vector * by_vector,
    )
    most = sum(weights) or 1.0
    return tuple(weight / most for weight in weights)


def _factor(name: str, value: float, weight: float, added: float) -> Factor:
    return Factor(name, round(value, 4), round(weight, 4), round(added, 4))


def _kept(path: str, today: date, half_life_days: float) -> float:
    """What age leaves of a score. A file without a date does not age."""
    day = date_in_path(path)
    return 1.0 if day is None else float(0.5 ** (max(0, (today - day).days) / half_life_days))


def _varied(ranked: list[Ranked], balance: float) -> list[Ranked]:
    """MMR: each next one is good, and unlike those before it."""
    left, rest = ranked[:VARIED], ranked[VARIED:]
    said = {one.candidate.id: frozenset(words_of(index_words(one.candidate.text))) for one in left}
    likeness = dict.fromkeys(said, 0.0)
    chosen: list[Ranked] = []
    while left:
        best = max(left, key=lambda one: balance * one.score - (1 - balance) * likeness[one.candidate.id])
        left.remove(best)
        chosen.append(best)
        for one in left:
            alike = _alike(said[one.candidate.id], said[best.candidate.id])
            likeness[one.candidate.id] = max(likeness[one.candidate.id], alike)
    return chosen + rest


def _alike(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / (len(one | other) or 1)
