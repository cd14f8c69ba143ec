"""What a call was given, as the next one would be: inputs, dates and ids become blanks, and words of strangers go.

Three kinds of words stand in the arguments of a call. What the owner has said is an input, and gets a name. What came
from outside (a page, a mail, a file of others) must not be carried over into instructions, so nothing of it is. The
rest is the know-how, and stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

LONGEST = 300  # characters of one argument
SHORTEST = 3  # of what counts as an input
TELLING = 6  # characters that a word must have to be recognised as somebody else's
FROM_OUTSIDE = "<from-outside>"

_DATE = re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?")
_ID = re.compile(
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b(?=[0-9a-f]*\d)[0-9a-f]{12,64}\b|\b[0-9A-HJKMNP-TV-Z]{26}\b"
)
_WORD = re.compile(r"[^\s'\"`=|;&()<>{}\[\],]+")
_LOOKS_GIVEN = re.compile(r"[\d./@:_]|^[A-Z]")  # `report.xlsx` and `Lisbon`, and not `list`
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]+")
_NAME = re.compile(r"[^a-z0-9]+")


class Blanks:
    """Fills blanks in. One for each draft: an input has the same name wherever it stands."""

    def __init__(self, said: str, workspace: str, user_home: str) -> None:
        self._said = said
        self._words = {word.strip(".,:!?") for word in _WORD.findall(said)}
        self._places = [(f"{place.rstrip('/')}/", to) for place, to in ((workspace, ""), (user_home, "~/")) if place]
        self._outside: set[str] = set()
        self._texts: list[str] = []  # the same as it was said
        self.inputs: dict[str, str] = {}  # blank -> what stood there

    def hear_outside(self, text: str) -> None:
        """Somebody else's words: what is in them and not in the owner's is not carried over."""
        self._texts.append(seen(text))
        self._outside |= {word for each in _WORD.findall(text) if len(word := each.strip(".,:!?")) >= TELLING}

    def filled(self, arguments: Mapping[str, Any]) -> dict[str, str]:
        return {seen(name)[:40]: self._general(name, value) for name, value in arguments.items()}

    def said_by_owner(self, word: str) -> bool:
        return word in self._words or (len(word) >= TELLING and word in self._said)

    def _general(self, name: str, value: Any) -> str:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for place, to in self._places:
            text = text.replace(place, to)
        text = text.strip()
        if len(text) >= SHORTEST and _given_whole(text, self._said):
            return self._blank(name, text)
        if len(text) >= TELLING and any(seen(text) in each for each in self._texts) and text not in self._said:
            return FROM_OUTSIDE
        if "\n" in text and name != "command":
            return f"<{_clean(name)}: a text>"
        text = _WORD.sub(lambda found: self._word(name, found[0]), seen(text))
        text = _ID.sub("<id>", _DATE.sub("<date>", text))
        return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"

    def _word(self, name: str, word: str) -> str:
        bare = word.strip(".,:!?")
        if len(bare) < SHORTEST or bare.startswith("-"):
            return word
        if bare in self._words and _LOOKS_GIVEN.search(bare):
            return word.replace(bare, self._blank("input" if name == "command" else name, bare))
        if bare in self._outside and not self.said_by_owner(bare):
            return word.replace(bare, FROM_OUTSIDE)
        return word

    def _blank(self, name: str, value: str) -> str:
        example = seen(value)[:LONGEST]
        known = next((blank for blank, stood in self.inputs.items() if stood == example), None)
        if known:
            return known
        base = _clean(name)
        names = (f"<{base}>", *(f"<{base}-{number}>" for number in range(2, len(self.inputs) + 3)))
        blank = next(each for each in names if each not in self.inputs)
        self.inputs[blank] = example
        return blank


def seen(text: str) -> str:
    """On one line, and nothing in it that a person would not see."""
    return " ".join(_UNSEEN.sub(" ", text).split())


def _given_whole(text: str, said: str) -> bool:
    """Whether the owner has said just that, as words of their own."""
    at = said.find(text)
    if at < 0:
        return False
    before, after = said[at - 1 : at], said[at + len(text) : at + len(text) + 1]
    return not before.isalnum() and not after.isalnum() and (bool(_LOOKS_GIVEN.search(text)) or " " in text)


def _clean(name: str) -> str:
    return _NAME.sub("-", name.lower()).strip("-")[:30] or "input"
