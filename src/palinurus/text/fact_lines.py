"""Facts as bullets of a `## Retain` section: `- O(c=0.95) @Peter: Prefers concise replies.` Pure.

What writes them down (notes of a conversation, a tool, a reflection) and what reads them agree here on the form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

FactKind = Literal["world", "experience", "opinion", "observation"]
KINDS: dict[str, FactKind] = {"W": "world", "B": "experience", "O": "opinion", "S": "observation"}
LETTERS = {kind: letter for letter, kind in KINDS.items()}
MOST_ENTITIES = 20  # of one fact
FACT_HEAD = re.compile(r"^[WBOS](?:\(c=[^)\s]{1,12}\))?(?:[ \t]+@[^\s:,]+)*:\s+")
_MENTION = re.compile(r"(?<![\w.@/])@([^\W_][\w'’-]*(?:\.[\w'’-]+)*)")
_DAY = re.compile(r"# (\d{4}-\d\d-\d\d)")
_NO_NAME = re.compile(r"[^\w'’. -]+|_")


class NotedFact(Struct, frozen=True):
    """What a conversation has said, before it stands in a file."""

    text: str
    kind: FactKind = "world"
    entities: tuple[str, ...] = ()
    day: str = ""  # on which it was said, YYYY-MM-DD
    mark: str = ""  # behind it: where it comes from, if not from the owner

    @property
    def line(self) -> str:
        return fact_line(self.kind, self.text, self.entities) + self.mark


def fact_line(kind: FactKind, text: str, entities: Iterable[str] = (), confidence: float | None = None) -> str:
    """A fact as a bullet."""
    letter = LETTERS[kind] + (f"(c={confidence:.2f})" if confidence is not None else "")
    names = "".join(f" @{name.replace(' ', '-')}" for name in entities)
    return f"- {letter}{names}: {' '.join(text.split())}"


def mentions_in(text: str) -> tuple[str, ...]:
    """Names behind an @, in order, once each: `@The-Castle` is The Castle."""
    names = (found.rstrip("'’-").removesuffix("'s").removesuffix("’s") for found in _MENTION.findall(text))
    return tuple(dict.fromkeys(name.replace("-", " ") for name in names if name))[:MOST_ENTITIES]


def mentionable(names: Iterable[str]) -> tuple[str, ...]:
    """Those that read back as they are, without what a mention cannot have."""
    plain = (" ".join(_NO_NAME.sub(" ", name).split()).replace("-", " ") for name in names)
    return tuple(dict.fromkeys(name for name in plain if mentions_in(f"@{name.replace(' ', '-')}") == (name,)))


def write_by_day(facts: Iterable[NotedFact], day: str) -> str:
    """The bullets of this day, then those of others, each day under its heading."""
    days: dict[str, list[str]] = {day: []}
    for each in facts:
        days.setdefault(each.day or day, []).append(each.line)
    others = [line for other, lines in days.items() if other != day for line in (f"# {other}", *lines)]
    return "\n".join([*days[day], *others])


def read_by_day(notes: str, day: str) -> Iterator[tuple[str, list[str]]]:
    """What `write_by_day` has written: each day with its lines."""
    lines: list[str] = []
    for line in notes.splitlines():
        if heading := _DAY.fullmatch(line):
            if lines:
                yield day, lines
            day, lines = heading[1], []
        else:
            lines.append(line)
    if lines:
        yield day, lines
