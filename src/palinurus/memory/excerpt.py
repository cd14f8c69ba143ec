"""The telling part of a line that is too long to be judged as a whole.

A line is never cut up, and some are megabytes: a table that lost its breaks, a picture in base64. Every word of the
question is looked for in every candidate, so of such a line only the stretch that has most of the words is judged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from palinurus.memory.stem import beginning, folded, stem
from palinurus.memory.store import Candidate, Looked

LONG = 4_000  # characters
MOST_PLACES = 20  # of one word


def shortened(looked: Looked, words: Sequence[str]) -> Looked:
    """The same candidates, none of them longer than is judged."""
    if all(len(candidate.text) <= LONG for candidate in looked.candidates):
        return looked
    return msgspec.structs.replace(looked, candidates=tuple(_short(each, words) for each in looked.candidates))


def window(text: str, room: int, words: Sequence[str]) -> str:
    """The part of a long line that has most of the words, marked where it was cut."""
    low, room = folded(text), room - 2
    if len(low) != len(text):
        return f"{text[:room].rstrip()}…"
    places = sorted({at for word in words for at in _places(low, beginning(stem(word)))})
    start = max(places, key=lambda at: bisect_left(places, at + room) - bisect_left(places, at), default=0)
    start = max(0, min(start - room // 5, len(text) - room))
    start = text.find(" ", start, start + 30) + 1 or start if start else 0
    end = min(len(text), start + room)
    return ("…" if start else "") + text[start:end].strip() + ("…" if end < len(text) else "")


def _short(candidate: Candidate, words: Sequence[str]) -> Candidate:
    if len(candidate.text) <= LONG:
        return candidate
    return msgspec.structs.replace(candidate, text=window(candidate.text, LONG, words))


def _places(text: str, word: str) -> list[int]:
    places: list[int] = []
    at = text.find(word)
    while at >= 0 and len(places) < MOST_PLACES:
        places.append(at)
        at = text.find(word, at + 1)
    return places
