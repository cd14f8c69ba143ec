"""Which stored lines answer a question, and which only speak of the same. Pure, and the same for every search tool.

A search ranks, it does not judge: there is always a best line. Whether it is worth quoting is decided by the words of
the question that it holds (see `asked`), never by a score alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date
from typing import Literal

from msgspec import Struct

from palinurus.domain.days import date_of, find_dates
from palinurus.domain.periods import Period
from palinurus.providers.scout.asked import Asked
from palinurus.providers.scout.patterns import later
from palinurus.providers.scout.words import STOP_WORDS, stem, stems_of

_CITED = re.compile(r"(?P<path>\S.*?)#L(?P<line>\d+): ?(?P<text>.*)")
_BULLET = re.compile(r"\s*(?:[-*+](?: \[[ xX]\])?|\d+[.)]|>)\s+")
_LEADING_DATE = re.compile(r"\W*(\d{4}-\d{2}-\d{2})(?!\d)")

_SPEAKER = later(r"\*{0,2}([^\W\d_][\w.'’ -]{0,30})\*{0,2}[:：]\*{0,2} \S")
_STOP_STEMS = frozenset(map(stem, STOP_WORDS))

MAX_QUOTES = 3
NEAR = 2  # lines
SOME_DAY = date(2000, 1, 1)  # whether a line speaks of days does not depend on it
MAX_BROAD = 6
WORTH_QUOTING = 0.6  # of the best line's worth

_COLOURS = (
    "amber azure beige black blond blonde blue bronze brown chrome copper coral cream crimson cyan dark emerald gold "
    "golden gray green grey indigo ivory khaki lavender light lilac magenta maroon mint navy olive orange peach pink "
    "purple red rose ruby rust salmon scarlet silver tan teal turquoise violet white yellow"
)
_EVIDENCE = {
    "count": later(
        r"\d|\b(?:no|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|once|twice)\b", re.IGNORECASE
    ),
    "where": later(r"\b(?:in|at|to|from|near|by|under|behind|inside|on|beside|next)\s+\w", re.IGNORECASE),
    "colour": later(rf"\b(?:{'|'.join(_COLOURS.split())})(?:ish)?\b", re.IGNORECASE),
    "name": later(r"\b(?:called|named|name)\b|(?<!^)(?<![.!?] )\b[A-Z]\w"),
    "who": later(r"\b[A-Z]\w|\b(?:I|we|he|she|they|my|our|his|her|their)\b"),
}
_EVIDENCE_CJK = {
    "count": "一二三四五六七八九十两",
    "where": "在到去住でにへ",
    "colour": "色",
    "name": "叫名",
    "who": "",
}


class Line(Struct, frozen=True):
    """Words of a file with their place, as a search has found them."""

    path: str
    number: int
    text: str
    last: int = 0  # the last line, where they are several
    score: float = 0.0  # the search's own
    around: str = ""  # what they stand under
    cited: bool = True

    @property
    def place(self) -> str:
        return f"{self.path}#L{self.number}" + (f"-L{self.last}" if self.last > self.number else "")

    @property
    def words(self) -> str:
        """The line without the mark of its list."""
        return _BULLET.sub("", self.text, count=1).strip()

    @property
    def is_label(self) -> bool:
        """A field that nobody has filled in, or a heading: they answer nothing."""
        return self.words.rstrip("*_ ").endswith((":", "：")) or self.words.startswith("#")

    @property
    def is_row(self) -> bool:
        """Of a table: its file and its heading speak of the whole table, and so of no row in it."""
        return self.words.startswith("|")

    @property
    def speaker(self) -> str:
        """Who says it, where somebody does: `Anna: …`, `User: …`."""
        found = _SPEAKER().match(self.words)
        return found[1] if found else ""

    @property
    def day(self) -> date | None:
        """When it was written: its own date if it begins with one, else that of its heading or its file."""
        if found := _LEADING_DATE.match(self.words):
            return date_of(found[1])
        return date_of(self.around) or date_of(self.path)

    def speaks_of(self, period: Period) -> bool:
        day = self.day
        if day and Period(day, day).meets(period):
            return True
        return any(
            found.period.meets(period)
            for found in find_dates(self.words, day or period.first)
            if day or not found.relative
        )


class Quotes(Struct, frozen=True):
    """Lines worth quoting, best first."""

    lines: tuple[Line, ...] = ()
    how: Literal["nothing", "answers", "speaks"] = "nothing"  # speaks: of the subject, without the answer itself


def cited_lines(result: str) -> list[Line]:
    """The lines that a grep result cites; its remarks are no lines."""
    found = (_CITED.fullmatch(line) for line in result.splitlines())
    return [Line(match["path"].removeprefix("./"), int(match["line"]), match["text"]) for match in found if match]


def quotes(asked: Asked, lines: Sequence[Line]) -> Quotes:
    """The best of these lines, if any of them is good enough."""
    beside = _beside(asked, lines)
    held = [_Held(asked, line, beside(line)) for line in lines if not line.is_label]
    held = [each for each in held if each.says_more]
    if fitting := [each for each in held if each.answers]:
        return Quotes(_ranked(asked, fitting), "answers")
    fitting = [each for each in held if each.speaks]
    return Quotes(_ranked(asked, fitting), "speaks") if fitting else Quotes()


def _ranked(asked: Asked, fitting: list[_Held]) -> tuple[Line, ...]:
    """Those that hold the most of the question; rarer words weigh more, newer lines win ties."""
    counts = {word: sum(word in each.common for each in fitting) for word in asked.words}
    weights = {word: math.log(1 + len(fitting) / count) for word, count in counts.items() if count}
    whole = sum(weights.values()) or 1.0
    worth = {each.line: each.held(weights) / whole + each.bonus for each in fitting}
    ranked = sorted(worth, key=lambda line: (round(worth[line], 6), line.day or date.min, line.number), reverse=True)
    chosen: dict[str, Line] = {}
    for line in ranked:
        if asked.broad or worth[line] >= WORTH_QUOTING * worth[ranked[0]]:
            chosen.setdefault(line.words, line)
    return tuple(chosen.values())[: MAX_BROAD if asked.broad else MAX_QUOTES]


def _beside(asked: Asked, lines: Sequence[Line]) -> Callable[[Line], frozenset[str]]:
    """The words of a question that stand in the lines around one.

    In a conversation what is talked about is not said again in every line. In a list each line is a fact of its own.
    """
    turns = Counter(line.speaker for line in lines if line.speaker)
    spoken = [line for line in lines if turns[line.speaker] > 1]  # once is a label, such as `Time zone:`
    held = {(line.path, line.number): stems_of(line.words).intersection(asked.words) for line in spoken}
    none: frozenset[str] = frozenset()

    def around(line: Line) -> frozenset[str]:
        if (line.path, line.number) not in held:
            return none
        near = (*range(line.number - NEAR, line.number), *range(line.number + 1, line.number + NEAR + 1))
        return none.union(*(held.get((line.path, number), none) for number in near))

    return around


class _Held:
    """What a line holds of a question."""

    def __init__(self, asked: Asked, line: Line, beside: frozenset[str]) -> None:
        self.line = line
        self._asked = asked
        found = stems_of(line.words)
        self.own = found.intersection(asked.words)
        under = stems_of(line.around).intersection(asked.words)
        self.common = self.own | under | stems_of(line.path).intersection(asked.subject) | beside
        self.says_more = bool(self.own if line.is_row else self.common)
        self.says_more = self.says_more and not _is_question_itself(asked, line.words, found)
        self._has_subject = _share(asked.subject, self.common) >= (1 if len(asked.subject) < 3 else 2 / 3)

    def held(self, weights: Mapping[str, float]) -> float:
        """How much of the question it holds; what stands beside it counts half."""
        return sum(weights[word] * (1 if word in self.own else 0.5) for word in sorted(self.common))

    @property
    def answers(self) -> bool:
        asked = self._asked
        if not self._has_subject:
            return False
        if asked.topics:
            wanted = 0.5 if asked.subject or asked.broad else 0.6
            return _share(asked.topics, self.common) >= (wanted if len(asked.topics) < 5 else 0.4)
        if not asked.attributes:
            return True
        named = _share(asked.attributes, self.common)
        return named >= 0.75 if not asked.subject else named > 0 or self.has_evidence

    @property
    def speaks(self) -> bool:
        """Of the same thing, though it may not say what was asked."""
        if self._asked.subject:
            return self._has_subject
        return bool(self._asked.topics) and _share(self._asked.topics, self.common) >= 0.5

    @property
    def has_evidence(self) -> bool:
        """Whether it holds an answer of the kind that is asked for: a place, a number, a colour."""
        kind, words, day = self._asked.kind, self.line.words, self.line.day
        if kind in ("date", "when"):  # a visit has happened when it was noted, a birthday has not
            return (kind == "when" and day is not None) or bool(find_dates(words, day or SOME_DAY))
        if kind not in _EVIDENCE:
            return False
        return _EVIDENCE[kind]().search(words) is not None or any(sign in words for sign in _EVIDENCE_CJK[kind])

    @property
    def bonus(self) -> float:
        asks = self.line.words.endswith(("?", "？"))
        return 2.0 * self.line.score + 0.15 * self.has_evidence - 0.15 * asks


def _is_question_itself(asked: Asked, words: str, found: frozenset[str]) -> bool:
    """A line of nothing but the question's own words, as a noted conversation has them, answers nothing."""
    telling = found - _STOP_STEMS
    more = telling - set(asked.words)
    if words.endswith(("?", "？")):
        return len(more) < 2 or asked.text.casefold() in words.casefold()
    return not more and len(telling) < 3  # "prefers trains to planes" does answer "do I prefer trains or planes"


def _share(wanted: Sequence[str], common: AbstractSet[str]) -> float:
    return sum(word in common for word in wanted) / len(wanted) if wanted else 1.0
