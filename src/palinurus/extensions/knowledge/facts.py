"""Facts in markdown: the bullets of `## Retain` sections in notes, and of the pages in `bank/`. Pure.

    ## Retain
    - W @Peter: Is in Marrakech from 2025-11-27 to 2025-12-01 for Andy's birthday.
    - B @warelay: I fixed the crash by wrapping the handlers (see memory/2025-11-27.md).
    - O(c=0.95) @Peter: Prefers concise replies.
    - S @Peter @Andy: Travel together every autumn.

The markdown is the truth: whatever is derived from it can be made anew. A fact is known by its words and its day, so it
stays the same fact when its line moves.

A line that a reflection has written into the bank ends with `^` and a digest of itself, and is no fact: it repeats
some. As soon as the owner changes it the digest is wrong, so it is the owner's, like a line without one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from datetime import date

from msgspec import Struct
from msgspec.structs import replace

from palinurus.domain.messages import NOTED_OUTSIDE, OUTSIDE_MARK, Origin
from palinurus.memory.terms import date_in_path
from palinurus.text.dates import Period, find_dates
from palinurus.text.fact_lines import KINDS, FactKind, mentions_in

LONGEST = 4_000  # characters of one fact
BANK = "bank/"
ALIASES = "bank/aliases.md"  # which names are one: no facts
_RETAIN = re.compile(r"(#{1,6})[ \t]+retain(?:ed)?[ \t]*(?:#+[ \t]*)?", re.IGNORECASE)
_HEADING = re.compile(r"(#{1,6})[ \t]")
_FENCE = re.compile(r"[ \t]*(```|~~~)")
_BULLET = re.compile(r"([ \t]*)[-*+][ \t]+(?=\S)")
_TYPED = re.compile(r"([WBOS])(?:\(c=([^)\s]{1,12})\))?(?=[\s:@])")
_HEAD = re.compile(r"(?:@[^\s:,]+[\s,]*)*:?\s*")
_DIGEST = re.compile(r"\s\^([0-9a-f]{8})")
_EVIDENCE = re.compile(r"\s\[[^\[\]]{0,2000}#L\d[^\[\]]{0,2000}\]")
_BY_HAND = re.compile(r"\s\(yours, (\d{4}-\d\d-\d\d)(?:, instead of: ([^()]{1,500}))?\)")
_PAGE_KINDS: dict[str, FactKind] = {"bank/opinions.md": "opinion", "bank/experience.md": "experience"}
_BETWEEN = re.compile(r"\s*(?:-|–|—|to|until|till|through|bis|and)\s*", re.IGNORECASE)


class Fact(Struct, frozen=True):
    """A statement that is understandable on its own."""

    id: str
    kind: FactKind
    text: str
    entities: tuple[str, ...]  # as they are mentioned
    path: str
    line: int
    last_line: int
    said_on: str = ""  # the day of its note, YYYY-MM-DD
    first_day: str = ""  # when it happened, or was so
    last_day: str = ""
    confidence: float | None = None  # as written; only opinions have one
    origin: Origin = Origin.OWNER
    instead_of: str = ""  # what the owner has written this in the place of

    @property
    def is_by_hand(self) -> bool:
        """Whether the owner has written it into the bank, or edited it there."""
        return self.path.startswith(BANK)

    @property
    def source(self) -> str:
        return f"{self.path}#L{self.line}" + (f"-L{self.last_line}" if self.last_line > self.line else "")


class BankBullet(Struct, frozen=True):
    """A line of the bank, taken apart."""

    words: str
    digest: str = ""  # that it carries; with another one it was edited
    day: str = ""  # on which the owner has written it, as a reflection has seen
    instead_of: str = ""
    is_generated: bool = False


class FactTrouble(Struct, frozen=True):
    """A bullet that is not a fact as it stands."""

    path: str
    line: int
    why: str


class FactReading(Struct, frozen=True):
    facts: tuple[Fact, ...]
    troubles: tuple[FactTrouble, ...] = ()


def read_facts(path: str, text: str) -> FactReading:
    """The facts of a file: of its Retain sections, or of all of it in the bank."""
    facts: dict[str, Fact] = {}
    troubles: list[FactTrouble] = []
    day = date_in_path(path)
    lines = text.splitlines() if path != ALIASES else []
    for line, last, bullet in _bullets(lines, whole=path.startswith(BANK)):
        try:
            fact = (
                _bank_fact(path, line, last, bullet) if path.startswith(BANK) else _fact(path, line, last, bullet, day)
            )
        except ValueError as error:
            troubles.append(FactTrouble(path, line, str(error)))
            continue
        if fact is not None:
            facts.setdefault(fact.id, fact)
    return FactReading(tuple(facts.values()), tuple(troubles))


def unretained_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines of a note that stand under no `## Retain` and are neither headings, code nor from outside; from 1."""
    level, fenced = 0, False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (heading := _HEADING.match(line)):
            own = len(heading[1])
            level = own if _RETAIN.fullmatch(line) else (level if level and own > level else 0)
        elif not (fenced or level or OUTSIDE_MARK in line or line.lstrip().startswith("<!--")) and line.strip():
            yield number, line.strip()


def read_bank_bullet(bullet: str) -> BankBullet:
    """Of the text behind `- `."""
    words, digest, day, instead_of = bullet.strip(), "", "", ""
    if found := _last(_DIGEST, words):
        words, digest = words[: found.start()], found[1]
        if line_digest(words) == digest:
            return BankBullet(words, digest, is_generated=True)
    if found := _last(_BY_HAND, words):
        words, day, instead_of = words[: found.start()], found[1], found[2] or ""
    if found := _last(_EVIDENCE, words):
        words = words[: found.start()]
    return BankBullet(words, digest, day, instead_of)


def line_digest(words: str) -> str:
    return hashlib.sha256(words.encode("utf-8", "replace")).hexdigest()[:8]


def _last(pattern: re.Pattern[str], words: str) -> re.Match[str] | None:
    """The match that ends the text."""
    start = max(words.rfind(sign) for sign in (" ^", " [", " ("))
    return pattern.fullmatch(words, start) if start >= 0 else None


def fact_id(kind: FactKind, text: str, said_on: str) -> str:
    return hashlib.sha256(f"{kind}\n{said_on}\n{' '.join(text.split())}".encode("utf-8", "replace")).hexdigest()[:16]


def _bullets(lines: list[str], *, whole: bool) -> Iterator[tuple[int, int, str]]:
    """First line, last line and text of each bullet that counts; lines count from 1."""
    level, fenced = 1 if whole else 0, False
    start, indent, parts = 0, 0, list[str]()
    for number, line in enumerate([*lines, "# "], 1):
        if _FENCE.match(line):
            fenced = not fenced
        heading = None if fenced else _HEADING.match(line)
        bullet = None if fenced or heading else _BULLET.match(line)
        goes_on = bool(start and line.strip() and not heading and not bullet and _indent_of(line) > indent)
        if goes_on:
            parts.append(line.strip())
            continue
        if start:
            yield start, number - 1 if line.strip() or number > len(lines) else start + len(parts) - 1, " ".join(parts)
            start, parts = 0, []
        if heading and not whole:
            own = len(heading[1])
            level = own if _RETAIN.fullmatch(line) else (level if level and own > level else 0)
        elif bullet and level:
            start, indent, parts = number, _indent_of(line), [line[bullet.end() :].strip()]


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _bank_fact(path: str, line: int, last: int, bullet: str) -> Fact | None:
    """What the owner has written into the bank. Raises ValueError. None: a reflection has written it."""
    read = read_bank_bullet(bullet)
    if read.is_generated:
        return None
    try:
        day = date.fromisoformat(read.day) if read.day else None
    except ValueError:
        day = None
    kind = _PAGE_KINDS.get(path, "world")
    fact = _fact(path, line, last, read.words, day, kind)
    if fact is None:
        return None
    page = path.removeprefix(f"{BANK}entities/").removesuffix(".md").replace("-", " ")
    about = (page,) if path.startswith(f"{BANK}entities/") and page not in fact.entities else ()
    return replace(fact, entities=(*about, *fact.entities), instead_of=read.instead_of)


def _fact(path: str, line: int, last: int, bullet: str, day: date | None, usual: FactKind = "world") -> Fact | None:
    """Raises ValueError. None: a bullet without words."""
    typed = _TYPED.match(bullet)
    kind: FactKind = KINDS[typed[1]] if typed else usual
    confidence = _confidence(typed[2]) if typed and typed[2] else None
    if confidence is not None and kind != "opinion":
        raise ValueError("only an opinion has a confidence: O(c=0.8)")
    rest = bullet[typed.end() :].strip() if typed else bullet
    is_outside = OUTSIDE_MARK in rest
    head = _HEAD.match(rest)
    words = rest[head.end() :] if head else rest
    words = " ".join(words.replace(NOTED_OUTSIDE, "").replace(f"({OUTSIDE_MARK}", "").split())
    if not any(map(str.isalnum, words)):
        return None
    if len(words) > LONGEST:
        raise ValueError(f"a fact has at most {LONGEST:,} characters, this one has {len(words):,}")
    said_on = day.isoformat() if day else ""
    happened = _when(words, day)
    return Fact(
        fact_id(kind, words, said_on), kind, words, mentions_in(rest), path, line, last, said_on,
        happened.first.isoformat() if happened else "", happened.last.isoformat() if happened else "",
        confidence, Origin.OUTSIDE if is_outside else Origin.OWNER,
    )  # fmt: skip


def _confidence(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ValueError(f"a confidence is a number from 0 to 1, not {text}")
    return value


def _when(text: str, day: date | None) -> Period | None:
    """The time that a fact names: a range stays one."""
    if day is None and not any(map(str.isdigit, text)):
        return None
    found = find_dates(text, day or date(1970, 1, 1), tense="past")
    if day is None:
        found = [each for each in found if not each.relative]
    if not found:
        return None
    period, end = found[0].period, found[0].end
    for each in found[1:]:
        if not _BETWEEN.fullmatch(text, end, each.start) or each.period.last < period.first:
            break
        period, end = Period(period.first, each.period.last), each.end
    return period
