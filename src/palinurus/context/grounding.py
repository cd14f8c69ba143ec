"""Whether a note says what was said: its telling words, names and numbers must stand in the conversation. Pure.

A model that is asked for notes may chat, guess, or repeat what it knows from elsewhere. None of that is memory. A note
may put things in other words as long as nearly all of them were used; a number or a name that nobody said is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from palinurus.providers.scout.words import STOP_WORDS, stem

ONE_NEW_IN = 5  # telling words, as many may be new: notes put things in other words
WIDE_SHARE = 0.7  # of the signs of a script without spaces
_ROOT = 5  # letters of a stem by which the forms of a word are the same
_START = 4  # or of the word itself: stems join `lives` to `life`

_WORD = re.compile(r"[^\W\d_]{3,}")
_WIDE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_DATE = re.compile(r"\b(?:19|20)\d\d-\d\d(?:-\d\d)?\b|\b(?:19|20)\d\d\b")  # a note says which day `tomorrow` is
_NAME = re.compile(r"(?<=\w[ ,;:])[A-Z][^\W\d_]{2,}")
# What notes are made of, whatever they speak of.
_FREE = """
user owner assistant person people want prefer ask like decide decision plan need mention state use note remember
remembered reminder should always never wish tell each other under own both new now currently today number name date
time place thing conversation session agreed confirm goal task todo open fact info information sure here okay
nutzer benutzer möchte soll usuario quiere prefiere utilisateur préfère souhaite usuário utente gebruiker und der die
das ist mit von für auf den dem ein eine que los las una por con les des une dans pour est sont
"""
_FREE_ROOTS = frozenset(stem(word)[:_ROOT] for word in (*_FREE.split(), *STOP_WORDS))
_FREE_SIGNS = frozenset(
    "用户戶使用者的是在了和与有不也就都他她它会會要想已ユーザーはがをにでのとしたいますもへ사용자는은이가을를의에"
)


class Vocabulary(Struct, frozen=True):
    """The words of a text, as far as they tell something."""

    roots: frozenset[str]  # stems, and beginnings of words
    numbers: frozenset[str]
    signs: frozenset[str]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Vocabulary:
        words: set[str] = set()
        numbers: set[str] = set()
        signs: set[str] = set()
        for text in texts:
            words |= _words(text)
            numbers |= set(_NUMBER.findall(text))
            if not text.isascii():
                signs |= set(_WIDE.findall(text))
        roots = {root for word in words for root in _roots(word)}
        return cls(frozenset(roots), frozenset(numbers), frozenset(signs - _FREE_SIGNS))

    def supports(self, note: str) -> bool:
        """Whether the note says nothing that is not here. One without a telling word says nothing at all."""
        words, signs = _words(note), set(_WIDE.findall(note)) - _FREE_SIGNS
        if set(_NUMBER.findall(_DATE.sub(" ", note))) - self.numbers:
            return False
        if not all(map(self._has, _words(" ".join(_NAME.findall(note))))):
            return False
        if signs:
            return len(signs & self.signs) >= WIDE_SHARE * len(signs)
        new = sum(not self._has(word) for word in words)
        return bool(words or _NUMBER.search(note)) and new * ONE_NEW_IN <= len(words)

    def meets(self, note: str) -> bool:
        """Whether one telling word of the note is here."""
        return (
            any(map(self._has, _words(note)))
            or not self.numbers.isdisjoint(_NUMBER.findall(note))
            or not self.signs.isdisjoint(_WIDE.findall(note))
        )

    def _has(self, word: str) -> bool:
        return not self.roots.isdisjoint(_roots(word))


def _roots(word: str) -> tuple[str, str]:
    return stem(word)[:_ROOT], word[:_START]


def _words(text: str) -> set[str]:
    """Those that tell something."""
    found = set(_WORD.findall(text.lower()))
    return {word for word in found if not _WIDE.search(word) and stem(word)[:_ROOT] not in _FREE_ROOTS}
