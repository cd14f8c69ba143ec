"""What a wiki is made of: sentences with the place where they stand.

A `Found` is what one source says, as it was found there; a `Fact` is the same words from however many sources. Roles of
sources are in the order of their signal: what was written down on purpose comes first, what tools left behind last.
"""

from __future__ import annotations

import hashlib
import re
from datetime import date
from typing import Literal

from msgspec import Struct

RECENT_DAYS = 7  # before the newest note: what is older is likely to be stale

Role = Literal["memory", "daily", "dreams", "note", "talk"]
Signal = Literal["memory", "recent", "dreams", "old", "talk", "tools"]
SIGNALS: tuple[Signal, ...] = ("memory", "recent", "dreams", "old", "talk", "tools")

_WORD = re.compile(r"\w+")
_TIMED = re.compile(r"^\d{1,2}:\d{2}\s+")


class Found(Struct, frozen=True, omit_defaults=True, gc=False):  # there are very many, and none is part of a circle
    """`first` and `last` are lines of the source, or rows where it has no lines; they count from 1."""

    text: str
    first: int
    last: int
    day: str = ""
    under: tuple[str, ...] = ()  # the headings, and the bullet, that it hangs under
    about: tuple[str, ...] = ()  # whom or what it names as its subject: @handles
    by_owner: bool = False  # the owner has said it
    outside: bool = False  # its words come from outside, or were said after reading such
    path: bool = False  # the text is a path that a tool was given


class Cite(Struct, frozen=True, order=True, gc=False):
    rank: int  # of the signal
    file: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.file}#L{self.first}" + (f"-L{self.last}" if self.last != self.first else "")


class Fact(Struct, frozen=True, gc=False):
    key: str  # a digest of its words
    text: str
    cites: tuple[Cite, ...]  # the best first
    day: str  # the newest, if any source has one
    under: tuple[str, ...]
    about: tuple[str, ...]
    by_owner: bool
    outside: bool  # in all of its sources
    path: bool

    @property
    def signal(self) -> Signal:
        return SIGNALS[self.cites[0].rank]


def words_of(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def untimed(text: str) -> str:
    return _TIMED.sub("", text)


def key_of(text: str) -> str:
    """The time at which a log has it makes no other fact."""
    return hashlib.sha256(" ".join(words_of(untimed(text))).encode("utf-8", "replace")).hexdigest()[:16]


def signal_of(role: Role, found: Found, day: str, newest: date | None) -> Signal:
    """Recent is what was noted in the days before the newest note: so it depends on the home and not on today."""
    if role == "daily":
        return "recent" if newest and day and (newest - date.fromisoformat(day)).days <= RECENT_DAYS else "old"
    if role == "note":
        return "old"
    if role == "talk":
        return "tools" if found.path else "talk"
    return role
