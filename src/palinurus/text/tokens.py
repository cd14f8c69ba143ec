"""Estimates the tokens of a text before a provider has counted it.

It looks at kinds of characters: characters divided by four is off by half on JSON and logs and by two thirds on
Chinese. Measured against real vocabularies in docs/decisions/0004-token-estimate.md.

Every character is first replaced by a letter for its kind, then runs of a kind are counted as bytes: 30 to 60 ms for a
megabyte on the event loop, where regular expressions over the text took 300.
"""

from __future__ import annotations

import re

_LATIN, _DIGIT, _SPACE, _BREAK, _MARK, _WIDE, _LETTER, _OTHER = b"a", b"d", b" ", b"\n", b"m", b"w", b"l", b"o"
_WIDE_CHARACTER = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")  # Chinese, Japanese, Korean
_LONG_WORD = re.compile(_LATIN + b"{7,}")
_JOINED = b"j"  # stands for two spaces or three digits


def estimate_tokens(text: str) -> int:
    """An estimate, rather too high than too low."""
    kinds = text.encode("ascii").translate(_ASCII_KINDS) if text.isascii() else text.translate(_KINDS).encode("ascii")
    # Wide: the newest vocabularies need fewer. Letters are Cyrillic, Arabic, Hindi, ... Emoji and rare symbols take
    # several tokens, typographic marks one.
    single = 0.75 * kinds.count(_MARK) + 1.05 * kinds.count(_WIDE) + 0.45 * kinds.count(_LETTER) + kinds.count(_OTHER)
    return int(_count_words(kinds) + _count_figures(kinds) + _count_gaps(kinds) + single + 0.999)


def most_tokens(text: str) -> int:
    """An upper bound of the estimate, by the length alone where that suffices."""
    return len(text) + len(text) // 20 + 1


def _count_words(kinds: bytes) -> float:
    """A word with the space before it is one token, and one more for every four letters after the sixth."""
    long = _LONG_WORD.findall(kinds)
    return _count_runs(kinds, _LATIN) + (sum(map(len, long)) - 6 * len(long)) / 4


def _count_figures(kinds: bytes) -> int:
    """Three digits are one token, and so is what remains of a number."""
    joined = kinds.replace(3 * _DIGIT, _JOINED)
    return joined.count(_JOINED) + joined.count(_DIGIT) - joined.count(2 * _DIGIT)


def _count_gaps(kinds: bytes) -> int:
    """An indent is one token, and so are line breaks in a row."""
    return _count_runs(kinds.replace(2 * _SPACE, _JOINED), _JOINED) + _count_runs(kinds, _BREAK)


def _count_runs(kinds: bytes, kind: bytes) -> int:
    marked = kinds.translate(_MARKED[kind])
    return marked.count(b"\0\1") + marked.startswith(b"\1")


class _CharacterKinds(dict[int, str]):
    """The kind of every character, for str.translate."""

    def __missing__(self, code: int) -> str:
        kind = _kind_of(chr(code)).decode("ascii")
        if len(self) < 20_000:  # text from outside may use them all
            self[code] = kind
        return kind


def _kind_of(character: str) -> bytes:
    if character.isascii() or "\u00c0" <= character <= "\u024f":
        if character.isalpha() or not character.isascii():
            return _LATIN
        if character in "\r\n":
            return _BREAK
        printable = _MARK if character.isprintable() else _OTHER
        return _SPACE if character in " \t" else _DIGIT if character.isdecimal() else printable
    if _WIDE_CHARACTER.match(character):
        return _WIDE
    return _LETTER if character.isalnum() and not character.isdecimal() else _OTHER


_KINDS = _CharacterKinds()
_ASCII_KINDS = b"".join(_kind_of(chr(code)) for code in range(128)).ljust(256, _OTHER)
_MARKED = {kind: bytes(code == ord(kind) for code in range(256)) for kind in (_LATIN, _BREAK, _JOINED)}
