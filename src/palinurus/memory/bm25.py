"""How much of a question's words stands in a piece, and around it.

The text index ranks each piece by itself. Notes and talk are not made like that: one line asks, the next answers,
and neither repeats what the other said. So the candidates are scored once more, by BM25 over a window: a word counts
fully in the piece, half in the piece beside it, a little in the one after that and in what it hangs under. Occurrences
are added up before they saturate, so three words in three neighbouring lines are worth more than one word three times.
Rarer words weigh more, as ever.

It is done at every question, so it is done at once: all candidates are one text, in which each word is looked for.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from math import log

from palinurus.memory.dates import date_in_path, spelled
from palinurus.memory.stem import beginning, folded, stem
from palinurus.memory.store import Candidate, Looked, WordQuery
from palinurus.memory.words import index_words

SATURATION = 1.2  # BM25's k1
LENGTH = 0.3  # BM25's b: how long a line is says little
SHORTEST = 0.7  # of the mean: no length counts as less
FURTHER = 0.4  # of a neighbour's weight, for the one behind it
BEFORE = 0.9  # of a neighbour's weight, for a piece that comes before the words: what answers comes after
CONTEXT = 0.3  # of a word in the headings above
BRIEF = 320  # characters; the longer a piece is, the less its neighbours and its first word say about it
FULL = 1.32  # each word once in the piece and once beside it: as good as one can expect

_WORD = re.compile(r"[^\W_]+")
# `Anna: …`, `- **Budget**: …`, `| Anna | …`: who speaks, or what a line is about
_LABEL = re.compile(r"[ \t>|]*+(?:[-*+][ \t]|\d{1,9}[.)][ \t])?+[ \t]*+[*_]*+[^\W_][^:：|\n]{0,40}?[*_]*[ \t]*[:：|]")

Counts = dict[int, float]
"""How often each term of the question occurs, by the term's number."""


class WordScores:
    """Of one question's candidates, in their order.

    `own`: 0 for none of the words, about 1 for all of them. `labelled`: 1 if the question names what a line begins
    with, less for a long one.
    """

    def __init__(self, query: WordQuery, looked: Looked, neighbours: float) -> None:
        self._stems = list(dict.fromkeys(stem(word) for word in query.words))
        texts = _Texts([candidate.text for candidate in looked.candidates])
        counts, labelled = self._counted(texts)
        weights = self._weights(query, looked, counts)
        around = self._around(looked.candidates, counts, neighbours, texts.brevity())
        self.labelled = [label * brief for label, brief in zip(labelled, texts.brevity(), strict=True)]
        self.own = _gains(around, weights, texts.relative_lengths())

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
        self, candidates: Sequence[Candidate], counts: list[Counts], neighbours: float, brevity: list[float]
    ) -> list[Counts]:
        """What stands in each, above it and beside it."""
        further = neighbours * FURTHER
        window = ((-2, further * BEFORE), (-1, neighbours * BEFORE), (1, neighbours), (2, further))
        contexts = _contexts(candidates)
        above = self._in_contexts(contexts)
        places = {candidate.id: at for at, candidate in enumerate(candidates)}
        around = [_sum(counted, above[context]) for counted, context in zip(counts, contexts, strict=True)]
        for candidate, counted in zip(candidates, counts, strict=True):
            if counted:
                for distance, weight in window:
                    other = places.get(candidate.id + distance)
                    if other is not None and candidates[other].place == candidate.place:
                        _add(around[other], counted, weight * brevity[other])
        return around

    def _in_contexts(self, contexts: Sequence[str]) -> dict[str, Counts]:
        distinct = list(dict.fromkeys(contexts))
        counts, _ = self._counted(_Texts(distinct))
        return {context: dict.fromkeys(counted, CONTEXT) for context, counted in zip(distinct, counts, strict=True)}

    def _weights(self, query: WordQuery, looked: Looked, counts: list[Counts]) -> list[float]:
        """Never below zero: in a handful of notes a word that is in most of them still says something."""
        if len(looked.frequencies) == len(query.words):
            pieces = looked.pieces
            known = {stem(word): count for word, count in zip(query.words, looked.frequencies, strict=True)}
            having = [known[term] for term in self._stems]
        else:
            pieces = len(counts)
            having = [sum(number in counted for counted in counts) for number in range(len(self._stems))]
        return [log(1 + (max(0, pieces - count) + 0.5) / (count + 0.5)) for count in having]


class _Texts:
    """Many texts as one, as the text index sees them."""

    def __init__(self, texts: Sequence[str]) -> None:
        plain = [text.lower() if text.isascii() else folded(index_words(text)) for text in texts]
        self.starts: list[int] = []
        at = 0
        for text in plain:
            self.starts.append(at)
            at += len(text) + 1
        self._all = "\n".join(plain) + "\n"
        self._lengths = [len(text) + 1 for text in plain]
        self._labels: dict[int, int] = {}

    def occurrences(self, term: str) -> Iterator[tuple[int, int]]:
        """In which text, and where in all of them."""
        text, start = self._all, beginning(term)
        at = text.find(start)
        while at >= 0:
            word = _WORD.match(text, at)
            end = word.end() if word else at + 1
            if (at == 0 or not text[at - 1].isalnum()) and stem(text[at:end]) == term:
                yield bisect_right(self.starts, at) - 1, at
            at = text.find(start, end)

    def in_label(self, number: int, offset: int) -> bool:
        """Whether this is in the part before a colon that a line may begin with."""
        if number not in self._labels:
            label = _LABEL.match(self._all, self.starts[number])
            self._labels[number] = label.end() if label else -1
        return offset < self._labels[number]

    def brevity(self) -> list[float]:
        return [min(1.0, BRIEF / length) for length in self._lengths]

    def relative_lengths(self) -> list[float]:
        mean = len(self._all) / max(1, len(self.starts))
        return [length / mean for length in self._lengths]


def _contexts(candidates: Sequence[Candidate]) -> list[str]:
    """What each hangs under: its headings, and the date of its file."""
    dates: dict[str, str] = {}
    for candidate in candidates:
        path = candidate.place.path
        if path not in dates:
            day = date_in_path(path)
            dates[path] = spelled(day) if day else ""
    return [f"{dates[candidate.place.path]} {candidate.context}" for candidate in candidates]


def _gains(around: Sequence[Counts], weights: Sequence[float], lengths: Sequence[float]) -> list[float]:
    """A long piece needs more; a short one little less, or a mere "yes" beside a find would be as good as the find."""
    each, gains = (SATURATION + 1) / (FULL * sum(weights) or 1.0), []
    for counted, length in zip(around, lengths, strict=True):
        gain = 0.0
        if counted:
            half = SATURATION * (1 - LENGTH + LENGTH * max(SHORTEST, length))
            for number, count in counted.items():
                gain += weights[number] * count / (count + half)
        gains.append(gain * each)
    return gains


def _sum(one: Counts, other: Counts) -> Counts:
    both = dict(one)
    if other:
        _add(both, other, 1.0)
    return both


def _add(to: Counts, counted: Counts, weight: float) -> None:
    for number, count in counted.items():
        to[number] = to.get(number, 0.0) + weight * count
