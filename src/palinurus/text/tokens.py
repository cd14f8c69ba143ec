"""Estimates the tokens of a text before a provider has counted it.

It looks at kinds of characters: characters divided by four is off by half on JSON and logs and by two thirds on
Chinese. Measured against real vocabularies in docs/decisions/0004-token-estimate.md.
"""

from __future__ import annotations

import re

_LATIN, _WIDE = r"A-Za-z\u00c0-\u024f", r"\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef"
_WORDS, _DIGITS = re.compile("[A-Za-z]+"), re.compile("[0-9]+")
_INDENTS, _BREAKS = re.compile("[ \t]{2,}"), re.compile("[\r\n]+")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_MARKS = re.compile(r"[!-/:-@\[-`{-~]")
_LATIN_WORDS, _WIDE_RUNS = re.compile(f"[{_LATIN}]+"), re.compile(f"[{_WIDE}]+")
_OTHER_LETTERS = re.compile(rf"[^\W\d_{_LATIN}{_WIDE}]+")


def estimate_tokens(text: str) -> int:
    """An estimate, rather too high than too low."""
    return int((_in_ascii(text) if text.isascii() else _in_any_script(text)) + 0.999)


def most_tokens(text: str) -> int:
    """An upper bound of the estimate, by the length alone where that suffices."""
    return len(text) + len(text) // 20 + 1


def _in_ascii(text: str) -> float:
    """The same as `_in_any_script` for ASCII, in half the time."""
    words, digits = list(map(len, _WORDS.findall(text))), list(map(len, _DIGITS.findall(text)))
    controls = len(_CONTROLS.findall(text))
    marks = len(text) - sum(words) - sum(digits) - controls - _spaces(text)
    return _runs(text, words, digits) + controls + 0.75 * marks


def _in_any_script(text: str) -> float:
    """Counts by kind of character, fast enough for a megabyte on the event loop."""
    words, digits = list(map(len, _LATIN_WORDS.findall(text))), list(map(len, _DIGITS.findall(text)))
    marks = len(_MARKS.findall(text))
    wide, letters = (sum(map(len, runs.findall(text))) for runs in (_WIDE_RUNS, _OTHER_LETTERS))
    # Emoji and rare symbols take several tokens, typographic marks one.
    others = len(text) - sum(words) - sum(digits) - marks - wide - letters - _spaces(text)
    # Wide is Chinese, Japanese, Korean: the newest vocabularies need fewer. Letters are Cyrillic, Arabic, Hindi, ...
    return _runs(text, words, digits) + others + 0.75 * marks + 1.05 * wide + 0.45 * letters


def _runs(text: str, words: list[int], digits: list[int]) -> float:
    """Words with the space before them, numbers with three digits per token; an indent or line break is one token."""
    more = [length - 6 for length in words if length > 6]
    figures = sum((length + 2) // 3 for length in digits) if digits else 0
    return len(_INDENTS.findall(text)) + len(_BREAKS.findall(text)) + len(words) + sum(more) / 4 + figures


def _spaces(text: str) -> int:
    return text.count(" ") + text.count("\t") + text.count("\r") + text.count("\n")
