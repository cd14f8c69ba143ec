"""Texts in one form, so that words are met however they are written: `STRASSE` and `Straße`, é in one sign or in two,
wide letters, ligatures, a soft hyphen in the middle. Pure.

It is Unicode's NFKC with case folding, without signs that are not shown. A text has the same lines before and after.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator

_UNSEEN = dict.fromkeys((0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF))  # hyphens and joints that nobody sees
_ESCAPED = re.compile(r"""\\(?:u([0-9a-fA-F]{4})|([nrtbf"\\/]))""")
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    shown = text.translate(_UNSEEN)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", shown).casefold())


def unescaped(text: str) -> str:
    """What JSON says with a backslash, as the letters themselves, wherever it stands."""
    plain = _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else _PLAIN.get(found[2], found[2]), text)
    return _HALVES.sub(lambda pair: pair.group().encode("utf-16", "surrogatepass").decode("utf-16"), plain)


def spans(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Where in a text, as it is, the pattern matches its folded form."""
    begins: list[int] = []  # for each folded letter the letter of the text that it came from
    folded: list[str] = []
    for start, cluster in _clusters(text):
        piece = fold(cluster)
        folded.append(piece)
        begins += [start] * len(piece)
    begins.append(len(text))
    for found in pattern.finditer("".join(folded)):
        last = begins[found.end() - 1]
        yield begins[found.start()], begins[bisect_right(begins, last, found.end())]


def _clusters(text: str) -> Iterator[tuple[int, str]]:
    """Letters, each with the marks on it."""
    if text.isascii():
        yield from enumerate(text)
        return
    start = 0
    for at in range(1, len(text) + 1):
        if at == len(text) or not unicodedata.combining(text[at]):
            yield start, text[start:at]
            start = at
