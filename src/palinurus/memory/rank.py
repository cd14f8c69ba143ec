"""Combines the rankings of candidates into one order. Pure.

Score = words · (words + passage · its passage's words + label · its label + date · its date) + vector · (cosine + late
interaction). Words are measured against the best possible match and similarities are used as they are, so all are
comparable between questions. A piece without a vector is judged by its words instead. Optional on top: recency of dated
files, and variety (MMR).

The text index ranks each piece separately. In notes and dialogues, however, one line asks, the next answers, and
neither repeats the words of the other. So the candidates are scored again, by BM25 over a window: a word counts fully
in the piece, half in the piece beside it, a little in the one after that and in its context. Occurrences are added up
before they saturate, so three words in three neighbouring lines are worth more than one word three times. Rarer words
weigh more. It is done for every question, so it is done at once: all candidates are joined into one text, in which each
word is searched for.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import date
from functools import cache
from itertools import accumulate
from math import log
from operator import mul

import msgspec
from msgspec import Struct

from palinurus.memory.answer import Factor
from palinurus.memory.chunk import blocks_of
from palinurus.memory.document import CandidateSet, SearchCandidate, WordQuery
from palinurus.memory.settings import Ranking
from palinurus.memory.terms import DateSpan, date_in_path, nearness, spelled
from palinurus.text.words import beginning, folded, index_words, stem, words_of

SATURATION = 1.2  # BM25's k1
LENGTH = 0.3  # BM25's b: line length matters little
SHORTEST = 0.7  # of the mean: shorter lengths count as this
FURTHER = 0.4  # of a neighbour's weight, for the one after it
BEFORE = 0.9  # of a neighbour's weight, for a piece before the words: answers come after
CONTEXT = 0.3  # of a word in the headings above
BRIEF = 320  # characters; the longer a piece is, the less its neighbours and its first word tell about it
FULL = 1.32  # each word once in the piece and once beside it: a full match
_WORD = re.compile(r"[^\W_]+")

# `Anna: …`, `- **Budget**: …`, `| Anna | …`: the speaker or subject of a line
_LABEL = re.compile(r"[ \t>|]*+(?:[-*+][ \t]|\d{1,9}[.)][ \t])?+[ \t]*+[*_]*+[^\W_][^:：|\n]{0,40}?[*_]*[ \t]*[:：|]")
Counts = dict[int, float]
"""The number of occurrences of each term of the question, by the term's number."""


class WordScores:
    """Word scores of one question's candidates, in order.

    `own`: 0 for none of the words, about 1 for all of them. `labelled`: 1 if the question names the label at the start
    of a line, less for a long one.
    """

    def __init__(self, query: WordQuery, looked: CandidateSet, neighbours: float) -> None:
        self._stems = list(dict.fromkeys(stem(word) for word in query.words))
        texts = _Texts([candidate.text for candidate in looked.candidates])
        counts, labelled = self._counted(texts)
        weights = self._weights(query, looked, counts)
        around = self._around(looked.candidates, counts, neighbours, texts.brevity())
        self.labelled = [label * brief for label, brief in zip(labelled, texts.brevity(), strict=True)]
        self.own = _gains(around, weights, texts.lengths)

    def _counted(self, texts: _Texts) -> tuple[list[Counts], list[float]]:
        counts: list[Counts] = [{} for _ in texts.starts]
        labelled = [0.0] * len(counts)
        for number, term in enumerate(self._stems):
            for at, offset in texts.occurrences(term):
                counts[at][number] = counts[at].get(number, 0.0) + 1.0
                if not labelled[at] and texts.in_label(at, offset):
                    labelled[at] = 1.0
        return counts, labelled

    def _around(
        self, candidates: Sequence[SearchCandidate], counts: list[Counts], neighbours: float, brevity: list[float]
    ) -> list[Counts]:
        """The words in each candidate, in its context and beside it."""
        further = neighbours * FURTHER
        window = ((-2, further * BEFORE), (-1, neighbours * BEFORE), (1, neighbours), (2, further))
        contexts = _contexts(candidates)
        above = self._in_contexts(contexts)
        numbers = {candidate.id: at for at, candidate in enumerate(candidates)}
        around = [{**above[context], **counted} for counted, context in zip(counts, contexts, strict=True)]
        for counted, context, own in zip(around, contexts, counts, strict=True):
            for number in above[context].keys() & own.keys():
                counted[number] += CONTEXT
        for candidate, counted in zip(candidates, counts, strict=True):
            if not counted:
                continue
            ref, words = candidate.ref, list(counted.items())
            for distance, weight in window:
                other = numbers.get(candidate.id + distance)
                if other is not None and candidates[other].ref is ref:
                    here, share = around[other], weight * brevity[other]
                    for number, count in words:
                        here[number] = here.get(number, 0.0) + share * count
        return around

    def _in_contexts(self, contexts: Sequence[str]) -> dict[str, Counts]:
        distinct = list(dict.fromkeys(contexts))
        counts, _ = self._counted(_Texts(distinct))
        return {context: dict.fromkeys(counted, CONTEXT) for context, counted in zip(distinct, counts, strict=True)}

    def _weights(self, query: WordQuery, looked: CandidateSet, counts: list[Counts]) -> list[float]:
        """Never below zero: in a handful of notes a word that is in most of them still counts."""
        if len(looked.frequencies) == len(query.words):
            pieces = looked.pieces
            known = {stem(word): count for word, count in zip(query.words, looked.frequencies, strict=True)}
            having = [known[term] for term in self._stems]
        else:
            pieces = len(counts)
            having = [sum(number in counted for counted in counts) for number in range(len(self._stems))]
        return [log(1 + (max(0, pieces - count) + 0.5) / (count + 0.5)) for count in having]


class _Texts:
    """Many texts joined into one, as in the text index."""

    def __init__(self, texts: Sequence[str]) -> None:
        plain = [text.lower() if text.isascii() else folded(index_words(text)) for text in texts]
        self._all = "\n".join(plain) + "\n"
        self.lengths = [len(text) + 1 for text in plain]
        self.starts = [end - length for end, length in zip(accumulate(self.lengths), self.lengths, strict=True)]
        self._labels: dict[int, int] = {}

    def occurrences(self, term: str) -> Iterator[tuple[int, int]]:
        """In which text, and at which position of all."""
        text, start = self._all, beginning(term)
        at = text.find(start)
        while at >= 0:
            word = _WORD.match(text, at)
            end = word.end() if word else at + 1
            if (at == 0 or not text[at - 1].isalnum()) and stem(text[at:end]) == term:
                yield bisect_right(self.starts, at) - 1, at
            at = text.find(start, end)

    def in_label(self, number: int, offset: int) -> bool:
        """Whether the position is in the label before a colon at the start of a line."""
        if number not in self._labels:
            label = _LABEL.match(self._all, self.starts[number])
            self._labels[number] = label.end() if label else -1
        return offset < self._labels[number]

    def brevity(self) -> list[float]:
        return [min(1.0, BRIEF / length) for length in self.lengths]


def _contexts(candidates: Sequence[SearchCandidate]) -> list[str]:
    """The context of each: its headings, and the date of its file."""
    days = [date_in_path(candidate.ref.path) for candidate in candidates]
    return [f"{spelled(day) if day else ''} {each.context}" for day, each in zip(days, candidates, strict=True)]


def _gains(around: Sequence[Counts], weights: Sequence[float], lengths: Sequence[int]) -> list[float]:
    """A long piece needs more; a short one little less, or a mere "yes" beside a match would score like the match."""
    each, gains = (SATURATION + 1) / (FULL * sum(weights) or 1.0), []
    mean = sum(lengths) / max(1, len(lengths))
    for counted, length in zip(around, lengths, strict=True):
        gain = 0.0
        if counted:
            half = SATURATION * (1 - LENGTH + LENGTH * max(SHORTEST, length / mean))
            for number, count in counted.items():
                gain += weights[number] * count / (count + half)
        gains.append(each * gain)
    return gains


STAND_IN = 0.6  # the cosine of a full word score, if there is no vector
COSINE = 0.8  # of the vector's weight, beside late interaction
ALSO = 0.6  # of a score by words that the question does not have
_NO_WORDS = WordQuery(())
NAMES = ("words", "passage", "label", "date", "vector", "late")
_FIELD = re.compile(  # `- **Name:**`, `- [x]`, `_(what they like)_`, `- Name: _(optional)_`
    r"[ \t>|]*(?:[-*+]|\d{1,9}[.)])?[ \t]*(?:\[[ xX]\])?[ \t]*"
    r"(?:[*_]*[^:\n]{1,40}:[*_]*)?[ \t]*(?:[*_]+\([^\n]*\)[*_]+)?[ \t]*"
)
_HEADING = re.compile(r"[ \t]*#{1,6}[ \t]+([^\n]*?)[# \t]*|[ \t]*([^\n]+?)[ \t]*\n[ \t]*(?:=+|-+)[ \t]*")
FAR_BELOW = 0.2  # of the best score
SENTENCE = 4  # words of a heading that may be a note: `## Karl called about the boiler`
SEEDED = "USER.md"  # of our templates the one that is searched


def _is_frame(candidate: SearchCandidate, after: SearchCandidate | None) -> bool:
    """Whether it tells nothing: a field without content, the text of a template, a heading of what follows.

    Such pieces are candidates, because their words tell about the pieces beside them.
    """
    text = candidate.text
    if candidate.ref.path == SEEDED and text in _template_blocks():
        return True
    if text[-1:] in ":*_] " and _FIELD.fullmatch(text):
        return True
    heading = _HEADING.fullmatch(text) if "#" in text[:4] or text[-1:] in "=- " else None
    if not heading:
        return False
    words = (heading[1] or heading[2] or "").strip()
    is_above = after is not None and after.ref == candidate.ref and words in after.context
    return is_above or len(words.split()) < SENTENCE


@cache
def _template_blocks() -> frozenset[str]:
    from palinurus.workspace.seed import template_texts  # most homes have a USER.md of their own

    return frozenset(block.text for text in template_texts(SEEDED) for block in blocks_of(text))


VARIED = 100  # the best results, among which MMR chooses


class RankedCandidate(Struct, frozen=True):
    candidate: SearchCandidate
    score: float  # 0 for no match, about 1 for a full one
    parts: tuple[float, ...] = ()  # the value of each factor, in the order of NAMES; then the share left by age
    judged: float | None = None  # by a reranker

    @property
    def kept(self) -> float:
        """The share of the score that age has left: what is old is not worth less than the minimum for that."""
        return self.parts[-1] if len(self.parts) > len(NAMES) else 1.0


class RankedList(Struct, frozen=True):
    """The candidates of one question, best first, and the maximum share of each factor."""

    ranked: list[RankedCandidate]
    shares: tuple[float, ...]

    def above(self, min_score: float) -> list[RankedCandidate]:
        """Those that may be results: good enough, also beside the best, and more than a frame for others."""
        least = max([min_score, *(FAR_BELOW * one.score for one in self.ranked[:1])]) if min_score else 0.0
        after = {one.candidate.id - 1: one.candidate for one in self.ranked}
        return [
            one
            for one in self.ranked
            if one.score > 0
            and (one.score >= least or one.score >= least * one.kept)
            and not _is_frame(one.candidate, after.get(one.candidate.id))
        ]

    def factors(self, one: RankedCandidate) -> tuple[Factor, ...]:
        """The factors, which add up to the score; recency is the part that age took away."""
        share = 1.0 if one.judged is None else 1 - JUDGED
        shares = [share * each for each in self.shares]
        parts = zip(NAMES, one.parts, shares, strict=False)
        factors = [_factor(name, value, share, value * share) for name, value, share in parts if share]
        if one.judged is not None:
            factors.append(_factor("rerank", one.judged, JUDGED, one.judged * JUDGED))
        if len(one.parts) > len(NAMES):
            kept, aged = one.parts[-1], one.score - JUDGED * (one.judged or 0.0)
            factors.append(_factor("recency", kept, share, aged - sum(map(mul, one.parts, shares))))
        return tuple(factors)


def rank(
    query: WordQuery,
    looked: CandidateSet,
    ranking: Ranking,
    *,
    by_vector: bool,
    today: date,
    days: Sequence[DateSpan] = (),
    also: WordQuery = _NO_WORDS,
) -> RankedList:
    """`by_vector`: the question had a vector. `days`: the days that it names. `also`: words that an answer may have
    beside or instead of those of the question."""
    words = WordScores(query, looked, ranking.neighbours)
    if also.words:
        others = WordScores(also, msgspec.structs.replace(looked, frequencies=()), ranking.neighbours)
        words.own = [max(own, ALSO * other) for own, other in zip(words.own, others.own, strict=True)]
    passage = max((candidate.passage_words for candidate in looked.candidates), default=0.0) or 1.0
    near = {ref: nearness(date_in_path(ref.path), days) for ref in {one.ref for one in looked.candidates}}
    by_word = by_vector and ranking.late and any(candidate.late is not None for candidate in looked.candidates)
    has = (any(words.labelled), any(near.values()), by_vector, by_word)
    shares = _shares(ranking, *has)
    ranked = []
    for candidate, own, label in zip(looked.candidates, words.own, words.labelled, strict=True):
        cosine = own * STAND_IN if candidate.cosine is None else max(0.0, candidate.cosine)
        late = own * STAND_IN if candidate.late is None else candidate.late
        parts: tuple[float, ...] = (own, candidate.passage_words / passage, label, near[candidate.ref], cosine, late)
        score = sum(map(mul, parts, shares))
        if ranking.half_life_days:
            parts = (*parts, _kept(candidate.ref.path, today, ranking.half_life_days))
            score *= parts[-1]
        ranked.append(RankedCandidate(candidate, score, parts))
    ranked.sort(key=lambda one: (-one.score, one.candidate.ref, one.candidate.start_line))
    return RankedList(ranked if ranking.mmr_lambda is None else _varied(ranked, ranking.mmr_lambda), shares)


JUDGED = 0.5  # of a score, for the judgment of a reranker


def rejudged(ranked: Sequence[RankedCandidate], judged: Sequence[float]) -> list[RankedCandidate]:
    """By what a reranker says of each, 0 to 1, as much as by the score that it had."""
    both = [
        msgspec.structs.replace(one, score=(1 - JUDGED) * one.score + JUDGED * said, judged=said)
        for one, said in zip(ranked, judged, strict=True)
    ]
    return sorted(both, key=lambda one: -one.score)


def _shares(ranking: Ranking, labelled: bool, dated: bool, by_vector: bool, by_word: bool) -> tuple[float, ...]:
    """In the order of NAMES. A factor that does not apply to this question has no share."""
    weights = (
        ranking.words,
        ranking.words * ranking.passage,
        ranking.words * ranking.label * labelled,
        ranking.words * ranking.date * dated,
        ranking.vector * by_vector * (COSINE if by_word else 1.0),
        ranking.vector * by_word,
    )
    most = sum(weights) or 1.0
    return tuple(weight / most for weight in weights)


def _factor(name: str, value: float, weight: float, added: float) -> Factor:
    return Factor(name, round(value, 4), round(weight, 4), round(added, 4))


def _kept(path: str, today: date, half_life_days: float) -> float:
    """The share of a score that age leaves. A file without a date does not age."""
    day = date_in_path(path)
    return 1.0 if day is None else float(0.5 ** (max(0, (today - day).days) / half_life_days))


def _varied(ranked: list[RankedCandidate], balance: float) -> list[RankedCandidate]:
    """MMR: each next one is good, and unlike those before it."""
    left, rest = ranked[:VARIED], ranked[VARIED:]
    said = {one.candidate.id: frozenset(words_of(index_words(one.candidate.text))) for one in left}
    likeness = dict.fromkeys(said, 0.0)
    chosen: list[RankedCandidate] = []
    while left:
        best = max(left, key=lambda one: balance * one.score - (1 - balance) * likeness[one.candidate.id])
        left.remove(best)
        chosen.append(best)
        chosen_words = said[best.candidate.id]
        for one in left:
            words = said[one.candidate.id]
            alike = len(words & chosen_words) / (len(words | chosen_words) or 1)
            likeness[one.candidate.id] = max(likeness[one.candidate.id], alike)
    return chosen + rest
