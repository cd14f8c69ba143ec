"""Splits a message into sentences, without code, tables and quote marks. Pure, and linear in the text."""

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
    """Sentences in order, without list markers; a very long one is split."""
    begun: list[str] = []
    for part in _ENDS.split(CODE.sub("", text)):
        begun.append(part)
        if not _SHORT.search(part[-_AT_THE_END:]):  # `Mr.` does not end a sentence
            yield from _wrapped(" ".join(_MARKS.sub("", " ".join(begun)).split()))
            begun = []
    yield from _wrapped(" ".join(" ".join(begun).split()))


def _wrapped(words: str) -> Iterator[str]:
    """Splits a long sentence, between words if possible."""
    start = 0
    while len(words) - start > LONGEST:
        at = words.rfind(" ", start + LONGEST // 2, start + LONGEST)
        at = at if at > 0 else start + LONGEST
        yield words[start:at]
        start = at + 1 if words[at] == " " else at
    if start < len(words):
        yield words[start:]


MOST = 400  # of one text
LONGEST_IDENTIFIER = 200  # characters of one identifier
_SPAN = re.compile(r"`([^`\n]{1,200})`")
_SHAPES = re.compile(
    r"""
    (?P<url>\b[a-z][a-z0-9+.-]{1,15}://[^\s<>"'`）】」]+)
  | (?P<email>(?<![A-Za-z0-9.+-])[A-Za-z0-9_.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+)
  | (?P<path>(?:(?<![\w/])(?:~|\.{1,2})?/(?:[\w.@+-]{1,80}/)*[\w.@+-]{1,80}) | \b[A-Za-z]:\\[\w.\\-]+
      | (?<![\w/@+-])(?:[\w@+-]{1,80}/)+[\w@+.-]{0,80}\.\w{1,8})
  | (?P<handle>(?<![\w/])[@\#][A-Za-z0-9_][\w-]{1,60})
  | (?P<word>[A-Za-z0-9][\w]*(?:[-.:_/][A-Za-z0-9_]+)*%?)
    """,
    re.VERBOSE,
)
_NAME_IN_CODE = re.compile(r"[a-z0-9]+_\w+|[A-Z0-9]+_[A-Z0-9_]+|[a-z]+[A-Z]\w*|[A-Z][a-z]+[A-Z]\w*")
_FILE = re.compile(r"[\w/-]+(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,5}")
_ABBREVIATION = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]?")
_ID = re.compile(r"(?=\S*\d)(?=\S*[A-Za-z-])[\w.:-]{6,}|\d{6,}")
_TRAILING = ".,;:!?)]}'\"…。，、"

# Most words are plain. Runs of them are removed first, because looking at each takes ten times
# as long. No pattern matches across a space, so the rest is found as before.
_PLAIN = re.compile(r"(?<!\S)(?:[A-Za-z][a-z]*+[,;:!?.]*+(?:\s++|\Z))++")


def identifiers(text: str, most: int = MOST) -> tuple[str, ...]:
    """In the order of their first appearance, each once."""
    return _unique(_candidates(text), most)


def addresses(text: str, most: int) -> tuple[str, ...]:
    """Only paths, addresses, handles and ids. For text of which little is worth storing."""
    rest = _PLAIN.sub(" ", text)
    found = (match.group() for match in _SHAPES.finditer(rest) if match.lastgroup != "word" or _leads(match.group()))
    return _unique(found, most)


def _unique(words: Iterator[str], most: int) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for each in words:
        word = each.strip().rstrip(_TRAILING)
        if 1 < len(word) <= LONGEST_IDENTIFIER:
            found.setdefault(word)
            if len(found) >= most:
                break
    return tuple(found)


def _candidates(text: str) -> Iterator[str]:
    for match in _SHAPES.finditer(_PLAIN.sub(" ", text)):
        word = match.group()
        if match.lastgroup != "word" or _is_exact(word):
            yield word
    for match in _SPAN.finditer(text):  # text marked as code
        yield match.group(1)


def _is_exact(word: str) -> bool:
    """Whether a token is an identifier rather than a word."""
    if _is_plain(word):
        return False
    if any(character.isdigit() for character in word):
        # A small plain number means little without its sentence; dates, versions and mixed tokens are exact.
        return not word.isdigit() or len(word) >= 4
    return bool(_NAME_IN_CODE.fullmatch(word)) or _is_file(word)


def _leads(word: str) -> bool:
    return not _is_plain(word) and (bool(_ID.fullmatch(word)) or _is_file(word))


def _is_plain(word: str) -> bool:
    """Whether it is a plain word; faster than a pattern."""
    return word.isalpha() and (word[1:].islower() or len(word) == 1)


def _is_file(word: str) -> bool:
    return bool(_FILE.fullmatch(word)) and not _ABBREVIATION.fullmatch(word)
