"""Facts: sentences with the place where they stand, and what kind of fact a sentence is.

A `SourceFact` is what one source says; a `MergedFact` is the same words from any number of sources. Roles of sources
are in the order of their signal: notes written on purpose come first, what tools left behind last. Secrets are removed
from a source before it is read, without changing its line numbers. Besides what the Redactor knows, notes of people
have passwords after a word that says so. Removing too much costs only a word. The kind (decision, preference, pattern)
comes from the heading and the words: English first, with the commonest words of German, Chinese and Japanese. A
question has no kind.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import date
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from palinurus.config.secrets import MARKER

RECENT_DAYS = 7  # before the newest note: older ones are likely to be stale
Role = Literal["memory", "daily", "dreams", "note", "talk"]
Signal = Literal["memory", "recent", "dreams", "old", "talk", "tools"]
SIGNALS: tuple[Signal, ...] = ("memory", "recent", "dreams", "old", "talk", "tools")
_WORD = re.compile(r"\w+")
_TIMED = re.compile(r"^\d{1,2}:\d{2}\s+")


class SourceFact(Struct, frozen=True, omit_defaults=True, gc=False):  # there are very many, and none is part of a cycle
    """`first` and `last` are lines of the source, or rows where it has no lines; they count from 1."""

    text: str
    first: int
    last: int
    day: str = ""
    under: tuple[str, ...] = ()  # the headings, and the bullet, above it
    about: tuple[str, ...] = ()  # its subjects: @handles
    by_owner: bool = False  # said by the owner
    outside: bool = False  # text from outside, or said after reading such text
    path: bool = False  # the text is a path in a tool call


class Cite(Struct, frozen=True, order=True, gc=False):
    rank: int  # of the signal
    file: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.file}#L{self.first}" + (f"-L{self.last}" if self.last != self.first else "")


class MergedFact(SourceFact, frozen=True, kw_only=True, gc=False):
    """As its best source has it; `day` is the newest, and `outside` means in all of its sources."""

    key: str  # a digest of its words
    cites: tuple[Cite, ...]  # the best first

    @property
    def signal(self) -> Signal:
        return SIGNALS[self.cites[0].rank]


def words_of(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def untimed(text: str) -> str:
    return _TIMED.sub("", text)


def key_of(text: str) -> str:
    """A time in front of it makes no difference."""
    return hashlib.sha256(" ".join(words_of(untimed(text))).encode("utf-8", "replace")).hexdigest()[:16]


def signal_of(role: Role, found: SourceFact, day: str, newest: date | None) -> Signal:
    """Recent means the days before the newest note: it depends on the home and not on today."""
    if role == "daily":
        return "recent" if newest and day and (newest - date.fromisoformat(day)).days <= RECENT_DAYS else "old"
    if role == "note":
        return "old"
    if role == "talk":
        return "tools" if found.path else "talk"
    return role


Redact = Callable[[str], str]

"""Removes known secrets, and what looks like one, from a text. Must not raise."""

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
    """Removes secrets; `taken` counts them."""

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
        """The same; None when a secret over several lines changes the number of lines."""
        clean = self.text(text)
        return clean if clean.count("\n") == text.count("\n") else None


def _may_name(text: str) -> bool:
    """Whether one of the names can be in it. The pattern ignores case also beyond ASCII (ſ is an s)."""
    small = text.lower()
    return not small.isascii() or any(name in small for name in _NAMES)


def _without(match: re.Match[str]) -> str:
    name, value = match[1], match["value"]
    sure = name.lower().startswith(("pass", "kennwort")) and not match["mid"].strip(" *_").isalpha()
    if value.startswith(MARKER) or not (sure or match["open"] or _TELLING.match(value)):
        return match.group()
    return f"{name}{match['mid']}{match['open']}{MARKER}"


Kind = Literal["decision", "preference", "pattern"]

_DECISION = re.compile(
    r"^\W*(?:decision|decided|entscheidung|beschluss)\b|\b(?:we|i|they|he|she|team) (?:have |has |had )?(?:decided|"
    r"agreed|settled|chose|opted)\b|\bdecided (?:to|on|that|against)\b|\bagreed (?:to|on|that)\b|\bgoing with\b"
    r"|\bwe(?:'ll| will) (?:use|go|keep|take|switch)\b|\bsettled on\b|\bchose .{2,60}\b(?:over|instead)\b"
    r"|\bentschieden\b|决定|決めた|決まり|選んだ"
)
_PREFERENCE = re.compile(
    r"\bprefer(?:s|red)?\b|\b(?:likes?|loves?|hates?|dislikes?|enjoys?|favou?rs?)\b(?! (?:this|that|it)\b)"
    r"|\bfavou?rite\b|\buses? .{1,40}\bover\b|\b(?:instead of|rather than)\b.{1,60}$|\bcalls? (?:me|them|her|him)\b"
    r"|\bwrites? dates\b|\b(?:can't|cannot) stand\b|\ballergic to\b|\b(?:mag|bevorzugt|lieblings\w+)\b"
    r"|喜欢|讨厌|好き|嫌い"
)
_PATTERN = re.compile(
    r"\b(?:always|never|whenever|every time|each time|from now on|make sure|must not|must|only ever|as a rule)\b"
    r"|^\W*(?:rule|lesson|pattern|habit|workflow|tip)s?\b ?:|\b(?:turned out|root cause|lesson learned)\b"
    r"|\b(?:immer|niemals|grundsätzlich)\b|必须|总是|必ず|決して"
)
Cues = tuple[tuple[Kind, re.Pattern[str]], ...]
_UNDER: Cues = (
    ("decision", re.compile(r"\bdecisions?\b|\bentscheidungen?\b|决定|決定")),
    ("preference", re.compile(r"\bpreferences?\b|\blikes\b|\bvorlieben\b|偏好|好み")),
    ("pattern", re.compile(r"\bpatterns?\b|\brules?\b|\blessons?\b|\bhabits?\b|\bworkflows?\b|\bregeln\b|规则|ルール")),
)
_WORDS: Cues = (("decision", _DECISION), ("preference", _PREFERENCE), ("pattern", _PATTERN))
_OWN = re.compile(r"^\W*(?:prefers?|likes?|loves?|hates?|dislikes?|enjoys?|uses|writes|wants|mag|bevorzugt)\b")
_I = re.compile(r"\b(?:i|i'm|my|me|we|our|ich|mein\w*|wir)\b|我|私")


def is_of_owner(fact: MergedFact) -> bool:
    """Whether a preference without a name is the owner's: by its heading, without a subject, or with `I`."""
    small = fact.text.lower().replace("’", "'")
    if any(_UNDER[1][1].search(heading.lower()) for heading in fact.under) or _OWN.match(small):
        return True
    return fact.by_owner and bool(_I.search(small))


def kind_of(fact: MergedFact) -> Kind | None:
    """The nearest heading decides; then the words."""
    if fact.path or fact.text.endswith(("?", "？")):
        return None
    for heading in reversed(fact.under):
        if kind := _kind_under(heading):
            return kind
    return kind_by_words(fact.text)


@lru_cache(4096)
def _kind_under(heading: str) -> Kind | None:
    small = heading.lower()
    return next((kind for kind, cue in _UNDER if cue.search(small)), None)


def kind_by_words(text: str) -> Kind | None:
    small = text.lower().replace("’", "'")
    return next((kind for kind, cue in _WORDS if cue.search(small)), None)
