"""Where a text without line breaks may be cut: after a sentence, after a space, else between two characters."""

from __future__ import annotations

import re

_SENTENCE = re.compile(r"[.!?…][\"'”’)\]*_]{0,3}\s|[。！？](?:[”’」』）]|(?=.))", re.DOTALL)
LONGEST_END = 5  # characters of an end of a sentence
_SPACE = re.compile(r"\s")
_CLUSTER = 64  # code points: the longest visible character that is kept whole


def find_sentence_end(text: str, start: int, end: int) -> int:
    """The end of the first sentence that ends after `start`, its space included; 0: there is none until `end`."""
    found = _SENTENCE.search(text, max(0, start - LONGEST_END), end)
    while found and found.end() <= start:
        found = _SENTENCE.search(text, found.end(), end)
    return found.end() if found else 0


def find_cut(text: str, least: int, most: int) -> int:
    """The best place from `least` to `most`, at which the text can be cut. It is never 0."""
    if len(text) <= most:
        return len(text)
    sentences = _SENTENCE.finditer(text, max(0, least - LONGEST_END), most)
    ends = [found.end() for found in sentences if found.end() >= least]
    spaces = ends or [found.end() for found in _SPACE.finditer(text, max(0, least - 1), most)]
    return spaces[-1] if spaces else last_boundary(text, max(1, most))


def last_boundary(text: str, place: int) -> int:
    """The last place until `place` that is not inside a visible character, such as an emoji of several code points."""
    if place >= len(text) or text[place - 1 : place + 1].isascii():
        return min(place, len(text))
    import wcwidth  # slow to import

    start = max(0, place - _CLUSTER)
    before = start + wcwidth.grapheme_boundary_before(text[start : place + 1], place + 1 - start)
    return before if before > start else place
