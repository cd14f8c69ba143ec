"""Take secrets out of a source before anybody looks at it, and leave every line where it is.

Beside what the Redactor knows (values of the config and of stored keys, and the shapes of tokens), notes of people have
passwords behind a word that says so. What is taken out too much costs a word of a wiki.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from palinurus.config.secrets import MARKER

Redact = Callable[[str], str]
"""Takes known secrets, and what is shaped like one, out of a text. Must not raise."""

_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:(?:(?!-----BEGIN)[\s\S])*?-----END [A-Z0-9 ]*-----|[\s\S]*)"
)
_NAMED = re.compile(
    r"(?i)\b(pass(?:word|wd|phrase|code|wort)|kennwort|secret|(?:api|access)[ _-]?key|token|pin(?:[ _-]?code)?)"
    r"(?P<mid>[*_`\"']*\s{0,3}(?:=|:|\bis\b|\bwas\b|\blautet\b|\bist\b)\s{0,3}[*_]*)"
    r"(?P<open>[`\"'“]?)(?P<value>[^\s`\"'”]{4,})"
)
_NAMES = ("pass", "kennw", "secret", "key", "token", "pin")
_TELLING = re.compile(r"(?=.*\d)|(?=.*[^\w\s.,;:!?-])|(?=[^a-z\n]*[a-z].*[A-Z])")


class Cleaner:
    """`taken` counts what was taken out."""

    def __init__(self, redact: Redact) -> None:
        self._redact = redact
        self.taken = 0

    def text(self, text: str) -> str:
        before = text
        if "PRIVATE KEY-----" in text:
            text = _PEM.sub(lambda match: MARKER + "\n" * match.group().count("\n"), text)
        if _may_name(text):
            text = _NAMED.sub(_without, text)
        text = self._redact(text)
        if text != before:
            self.taken += max(1, text.count(MARKER) - before.count(MARKER))
        return text

    def lines(self, text: str) -> str | None:
        """The same; None when a secret goes over lines that can then no longer be told apart."""
        clean = self.text(text)
        return clean if clean.count("\n") == text.count("\n") else None


def _may_name(text: str) -> bool:
    """Whether one of the words can be in it. Beyond ASCII there are letters that only a pattern takes for an s."""
    small = text.lower()
    return not small.isascii() or any(name in small for name in _NAMES)


def _without(match: re.Match[str]) -> str:
    name, value = match[1], match["value"]
    sure = name.lower().startswith(("pass", "kennwort")) and not match["mid"].strip(" *_").isalpha()
    if value.startswith(MARKER) or not (sure or match["open"] or _TELLING.match(value)):
        return match.group()
    return f"{name}{match['mid']}{match['open']}{MARKER}"
