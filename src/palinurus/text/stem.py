"""Words as the text index stores them: folded and Porter-stemmed, exactly as SQLite's FTS5 does it.

Ranking reads the words of candidates again and must agree with the index on which words are equal. The tests compare
the two.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_WORD = re.compile(r"[^\W_]+")
_ACCENTS = re.compile("[\u0300-\u036f]+")
_LONGEST = 64  # bytes of a word that is stemmed
_ABOVE_0 = """
ational:ate tional:tion enci:ence anci:ance izer:ize logi:log bli:ble alli:al entli:ent eli:e ousli:ous
ization:ize ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al iviti:ive biliti:ble
"""
_ABOVE_0_THEN = "ical:ic ness: icate:ic iciti:ic ful: ative: alize:al"
_ENDINGS_2, _ENDINGS_3 = (  # the first matching ending decides
    tuple((ending, instead) for ending, _, instead in (pair.partition(":") for pair in pairs.split()))
    for pairs in (_ABOVE_0, _ABOVE_0_THEN)
)
_LAST = "al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize"
_ENDINGS_4 = tuple(_LAST.split(" "))


def words_of(text: str) -> list[str]:
    """Words in order, in lower case and without accents."""
    return _WORD.findall(folded(text))


def folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", text.lower())))


def beginning(stemmed: str) -> str:
    """A prefix that all words with this stem share: stemming changes at most the last letter (happi)."""
    last, length = stemmed[-1:], len(stemmed)
    changed = length > 3 or (length > 2 and last in "ey") or (length > 1 and last == "i")
    return stemmed[:-1] if changed else stemmed


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """The stem of a folded word. Counts and compares bytes, as the index does."""
    raw = word if word.isascii() else word.encode().decode("latin-1")
    if not 3 <= len(raw) <= _LONGEST:
        return word
    raw = _without_tense(_singular(raw))
    if raw.endswith("y") and _has_vowel(raw[:-1]):
        raw = raw[:-1] + "i"
    raw = _without_ending(_replaced(_replaced(raw, _ENDINGS_2), _ENDINGS_3))
    raw = _without_e(raw)
    return raw if word.isascii() else raw.encode("latin-1").decode("utf-8", "replace")


def _singular(word: str) -> str:
    if not word.endswith("s") or word[-2] == "s":
        return word
    if word[-2] == "e" and ((len(word) > 4 and word[-4:-2] == "ss") or (len(word) > 3 and word[-3] == "i")):
        return word[:-2]
    return word[:-1]


def _without_tense(word: str) -> str:
    if len(word) > 3 and word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        if len(word) > len(ending) and word.endswith(ending):
            bare = word[: -len(ending)]
            return _mended(bare) if _has_vowel(bare) else word
    return word


def _mended(word: str) -> str:
    """Repairs a stem: hopp(ing) to hop, fil(ing) to file."""
    if len(word) > 2 and word.endswith(("at", "bl", "iz")):
        return word + "e"
    if len(word) > 1 and word[-1] == word[-2] and word[-1] not in "aeioulsz":
        return word[:-1]
    return word + "e" if _measure(word) == 1 and _is_short(word) else word


def _replaced(word: str, endings: tuple[tuple[str, str], ...]) -> str:
    for ending, instead in endings:
        if len(word) > len(ending) and word.endswith(ending):
            bare = word[: -len(ending)]
            return bare + instead if _measure(bare) > 0 else word
    return word


def _without_ending(word: str) -> str:
    for ending in _ENDINGS_4:
        if len(word) > len(ending) and word.endswith(ending):
            bare = word[: -len(ending)]
            fits = _measure(bare) > 1 and (ending != "ion" or bare[-1] in "st")
            return bare if fits else word
    return word


def _without_e(word: str) -> str:
    if word.endswith("e"):
        bare = word[:-1]
        measure = _measure(bare)
        if measure > 1 or (measure == 1 and not _is_short(bare)):
            word = bare
    if word.endswith("ll") and _measure(word[:-1]) > 1:
        return word[:-1]
    return word


def _shape(word: str) -> str:
    """`c` and `v` for consonants and vowels; y is a vowel after a consonant."""
    shape = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(word: str) -> int:
    return _shape(word).count("vc")


def _is_short(word: str) -> bool:
    """Whether it ends consonant, vowel, consonant, and not on w, x or y."""
    return word[-1] not in "wxy" and _shape(word)[-3:] == "cvc"


def _has_vowel(word: str) -> bool:
    return any(letter in "aeiou" or (letter == "y" and at > 0) for at, letter in enumerate(word))
