"""A message in sentences, without code, tables and quoted lines' marks. Pure, and linear in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST = 320  # characters of one sentence

_ENDS = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_SHORT = re.compile(r"(?:^|[\s(])(?:[A-Za-z]|Mrs?|Ms|Dr|Prof|St|No|Nr|vs|etc|e\.g|i\.e|z\.B|bzw|ca|usw|Jan|Feb|Dec)\.$")
_AT_THE_END = 8  # characters in which an abbreviation is looked for
_MARKS = re.compile(r"^\s*(?:[-*+>•]|\d+[.)])\s+|^\s*#+\s+")
CODE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)


def split_sentences(text: str) -> Iterator[str]:
    """In the order of the text, each without the mark of its list; one that is very long comes in stretches."""
    begun: list[str] = []
    for part in _ENDS.split(CODE.sub("", text)):
        begun.append(part)
        if not _SHORT.search(part[-_AT_THE_END:]):  # `Mr.` ends nothing
            yield from _wrapped(" ".join(_MARKS.sub("", " ".join(begun)).split()))
            begun = []
    yield from _wrapped(" ".join(" ".join(begun).split()))


def _wrapped(words: str) -> Iterator[str]:
    """In stretches that are not too long, cut between words where there are any."""
    start = 0
    while len(words) - start > LONGEST:
        at = words.rfind(" ", start + LONGEST // 2, start + LONGEST)
        at = at if at > 0 else start + LONGEST
        yield words[start:at]
        start = at + 1 if words[at] == " " else at
    if start < len(words):
        yield words[start:]
