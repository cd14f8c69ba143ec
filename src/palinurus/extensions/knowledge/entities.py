"""Which names mean the same person, place or thing, without a model. Pure.

A wrong merge cannot be told from the truth afterwards, a duplicate can be merged by hand: in doubt names stay apart.
Vetoes come first: other numbers, a word that the longer name lacks, both in one fact. Then half of the score is the
name, 0.3 the company that both keep, and 0.2 how close in time they were named. Long names are compared before short
ones; a short one that several could have (Maria) needs company that only one of them keeps. What the owner has said
(merged, kept apart, "Bob is short for Robert") is never scored.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from itertools import pairwise

from msgspec import Struct

NAME, COMPANY, RECENCY = 0.5, 0.3, 0.2
ENOUGH = 0.6
LEAST_WORD, LONG_WORD = 0.6, 8  # of a word; one that may be misspelt: Martin is not Marvin
SHORT_FORM, PART = 0.8, 0.9  # of a likeness: Andy for Andrew, Anna for Anna Berg
SHARED, MARGIN = 0.75, 2.0  # least company of the bearer of a shared short name, and how much more than the next one
RECENT_DAYS = 7
PASSES = 2
_WORD = re.compile(r"\w+")
_DIGITS = re.compile(r"\d+")
_ARTICLES, _COMPANIES = (
    ("the", "der", "die", "das", "le", "la", "el"),
    ("gmbh", "ag", "inc", "ltd", "llc", "plc", "corp"),
)
_FORMS = frozenset((*_ARTICLES, *_COMPANIES))  # say nothing
_SOUNDS = tuple(zip(("ph", "th", "ck", "c", "z", "y", "j"), ("f", "t", "k", "k", "s", "i", "i"), strict=True))
_AT = r"@([^\W_][\w'’.-]*[\w])"
_LINKS = (
    r"(?:is|are|was|=|,|\()?\s*(?:also |better |often |just )?(?:called|known as|aka|a\.k\.a\.|short for|named)",
    r"(?:is|,) (?:a |the )?(?:nickname|short form) (?:of|for)",
    r"(?:heißt eigentlich|ist (?:kurz|die Kurzform|der Spitzname) (?:für|von)|, auch)",
)
_CALLED = re.compile(
    rf"{_AT}\s*(?:{'|'.join(_LINKS)})\s*{_AT}|\bcalls? {_AT} {_AT}|{_AT} wird {_AT} genannt", re.IGNORECASE
)
_DECLARED = re.compile(rf"[ \t]*[-*+][ \t]+{_AT} (is|is not) {_AT}[ \t.]*")


class NamedIn(Struct, frozen=True):
    """One fact that names something: the day, and who else is in it."""

    name: str
    day: date | None = None
    company: tuple[str, ...] = ()


class Declaration(Struct, frozen=True):
    """What the owner has said: these names are one, or this name is apart from another."""

    name: str
    same_as: str = ""
    apart_from: str = ""


class Merge(Struct, frozen=True):
    """A line of the log: a name, what it was taken for, and why."""

    name: str
    into: str
    score: float
    why: str


class _Cluster:
    def __init__(self, name: str) -> None:
        self.name = name
        self.names: list[str] = []  # normal ones that are compared: not those that were declared
        self.company: dict[str, int] = defaultdict(int)
        self.days: list[date] = []

    def add(self, mentions: Iterable[NamedIn], known_as: Mapping[str, str]) -> None:
        for each in mentions:
            for other in each.company:
                self.company[known_as.get(other, other)] += 1
            if each.day is not None:
                self.days.append(each.day)


@lru_cache(20_000)
def normal_name(name: str) -> str:
    """In small letters, without accents, hyphens and possessives."""
    plain = unicodedata.normalize("NFKD", name.casefold())
    return " ".join(_WORD.findall("".join(each for each in plain if not unicodedata.combining(each))))


def called_in(text: str) -> tuple[str, str] | None:
    """Two names that a sentence says are one: the shorter, the longer."""
    found = _CALLED.search(text)
    if found is None:
        return None
    one, other = (_plain(each) for each in found.groups() if each is not None)
    return (other, one) if (len(one.split()), len(one)) > (len(other.split()), len(other)) else (one, other)


def read_declarations(text: str) -> tuple[Declaration, ...]:
    """Lines as `declaration_line` writes them; other lines are for people."""
    found = []
    for line in text.splitlines():
        if said := _DECLARED.fullmatch(line):
            name, other, is_apart = _plain(said[1]), _plain(said[3]), said[2].endswith("not")
            found.append(Declaration(name, apart_from=other) if is_apart else Declaration(name, same_as=other))
    return tuple(found)


def declaration_line(declared: Declaration) -> str:
    name, other = (each.replace(" ", "-") for each in (declared.name, declared.same_as or declared.apart_from))
    return f"- @{name} is{'' if declared.same_as else ' not'} @{other}"


def _plain(mention: str) -> str:
    return mention.replace("-", " ").rstrip(".")


def resolve_names(
    mentions: Sequence[NamedIn], declared: Sequence[Declaration] = ()
) -> tuple[dict[str, str], tuple[Merge, ...]]:
    """Each name and the one it is listed under, and the log of what was merged."""
    by_name: dict[str, list[NamedIn]] = defaultdict(list)
    for each in mentions:
        by_name[each.name].append(each)
    listed = {name: name for name in by_name}
    for _ in range(PASSES):  # the company of the second one is known by one name each
        resolver = _Resolver(by_name, declared, listed)
        # Before a short name come all long ones that it could be short for; what was declared comes last.
        for name in sorted(by_name, key=lambda x: (resolver.is_declared(x), -len(x.split()), -len(x), x)):
            resolver.add(name)
        listed = resolver.listed
    return listed, tuple(resolver.log)


class _Resolver:
    def __init__(
        self, by_name: Mapping[str, Sequence[NamedIn]], declared: Sequence[Declaration], known_as: Mapping[str, str]
    ) -> None:
        self.listed: dict[str, str] = {}
        self.log: list[Merge] = []
        self._by_name = by_name
        self._known_as = known_as
        last: dict[frozenset[str], Declaration] = {}  # of several about the same two names the last one counts
        for said in declared:
            last[frozenset((normal_name(said.name), normal_name(said.same_as or said.apart_from)))] = said
        self._same = {normal_name(each.name): each.same_as for each in last.values() if each.same_as}
        self._apart = {pair for pair, said in last.items() if said.apart_from}
        met: dict[str, set[str]] = defaultdict(set)
        for name, found in by_name.items():
            for other in {other for each in found for other in each.company}:
                met[known_as.get(other, other)].add(known_as[name])
                self._apart.add(frozenset((normal_name(name), normal_name(other))))
        # Company that everybody keeps says little.
        self._known = {name: len(others) for name, others in met.items()}
        self._clusters: dict[str, _Cluster] = {}
        self._taken: dict[str, str] = {}  # normal name -> cluster
        self._index: dict[str, set[str]] = defaultdict(set)  # beginning of a word, and the numbers -> clusters

    def is_declared(self, name: str) -> bool:
        return normal_name(name) in self._same

    def add(self, name: str) -> None:
        normal, merge = normal_name(name), None
        into = self._taken.get(normal, "")
        if not into and normal in self._same:
            wanted, seen = self._same[normal], {normal}
            while (further := normal_name(wanted)) in self._same and further not in seen:
                seen.add(further)
                wanted = self._same[further]
            into = self._taken.get(normal_name(wanted), "") or wanted
            self.log.append(Merge(name, into, 1.0, "declared"))
        if not into:
            own = _Cluster(name)
            own.add(self._by_name[name], self._known_as)
            merge = self._best(own, normal)
            into = merge.into if merge else name
        cluster = self._clusters.setdefault(into, _Cluster(into))
        self._taken.setdefault(normal_name(into), into)
        if merge is not None:
            self.log.append(merge)
        if not self.is_declared(name):
            cluster.names.append(normal)
            for key in _keys(normal):
                self._index[key].add(into)
        cluster.add(self._by_name[name], self._known_as)
        self.listed[name] = self._taken[normal] = into

    def _best(self, own: _Cluster, normal: str) -> Merge | None:
        """The cluster that a name belongs to."""
        found = []
        for each in sorted({each for key in _keys(normal) for each in self._index.get(key, ())}):
            cluster = self._clusters[each]
            likeness = [likeness_of(normal, other) for other in cluster.names]
            if not likeness or not max(likeness):
                continue
            is_part = any(len(other.split()) > len(normal.split()) for other in cluster.names)
            vetoed = not min(likeness) or any(frozenset((normal, other)) in self._apart for other in cluster.names)
            found.append((_shared(own, cluster, self._known), max(likeness), cluster, is_part, vetoed))
        best: Merge | None = None
        for company, likeness_, cluster, is_part, vetoed in found:
            rivals = [other for other in found if other[2] is not cluster and other[3]]
            is_doubtful = is_part and any(company < max(SHARED, MARGIN * other[0]) for other in rivals)
            strangers = likeness_ < 1 and not company and own.company and cluster.company
            if vetoed or is_doubtful or strangers:
                continue
            recency = _closeness(own.days, cluster.days)
            score = round(NAME * likeness_ + COMPANY * company + RECENCY * recency, 3)
            if score >= ENOUGH and (best is None or score > best.score):
                why = f"name {likeness_:.2f}, company {company:.2f}, time {recency:.2f}"
                best = Merge(own.name, cluster.name, score, why)
        return best


def _keys(normal: str) -> set[str]:
    """Names that can mean the same have one of these in common: other numbers are somebody else."""
    spoken, numbers = sounds(normal), " ".join(_DIGITS.findall(normal))
    return {f"{word[:3]} {numbers}" for word in (*spoken.split(), spoken.replace(" ", ""))}


def alike(one: str, other: str) -> float:
    """How many trigrams two normal names share, 0 to 1."""
    first, second = trigrams(one), trigrams(other)
    return 2 * len(first & second) / (len(first) + len(second)) if first and second else 0.0


@lru_cache(50_000)
def trigrams(normal: str) -> frozenset[str]:
    padded = "  ".join(("", *normal.split(), ""))
    return frozenset(padded[at : at + 3] for at in range(len(padded) - 2))


@lru_cache(50_000)
def sounds(normal: str) -> str:
    """As it is spoken, roughly: Nadja is Nadia, Sophia Sofia, Elisabeth Elizabeth. Forms of companies are left out."""
    words = [word for word in normal.split() if word not in _FORMS] or normal.split()
    text = " ".join(words)
    for spelling, sound in _SOUNDS:
        text = text.replace(spelling, sound)
    return "".join(letter for at, letter in enumerate(text) if not at or letter != text[at - 1])


@lru_cache(50_000)
def likeness_of(one: str, other: str) -> float:
    """How alike two normal names are, 0 to 1. 0: they cannot mean the same."""
    if _DIGITS.findall(one) != _DIGITS.findall(other):
        return 0.0
    if sounds(one).replace(" ", "") == sounds(other).replace(" ", ""):
        return 1.0
    short, long = sorted(
        (sounds(one).split(), sounds(other).split()), key=lambda words: (len(words), len("".join(words)))
    )
    if len(short) == len(long):
        pairs = [_word_likeness(a, b, both=len(short) > 1) for a, b in zip(short, long, strict=True)]
        return sum(pairs) / len(pairs) if all(pairs) else 0.0
    # A short form stands for the first word: Kathi for Katharina Vogel, not Berg for Bergen.
    best = [
        max((_word_likeness(word, each) if not at else float(word == each)) for at, each in enumerate(long))
        for word in short
    ]
    return PART * sum(best) / len(best) if all(best) else 0.0


@lru_cache(50_000)
def _word_likeness(word: str, other: str, *, both: bool = False) -> float:
    """A short form (Pete, Andy) or another spelling (Katharine, Katherine); not Anna, Hanna or Paul, Paula.

    `both`: either may be the short form.
    """
    if word == other:
        return 1.0
    if both and len(word) > len(other):
        word, other = other, word
    if not other.startswith(word[:2]) or (other[:-1] == word and word[-1] != "e"):
        return 0.0  # Paul, Paula; Julia, Julian
    stem = word[:-1] if len(word) > 3 and word[-1] in "ie" else word
    if len(word) <= len(other) and len(stem) > 1 and other.startswith(stem) and (stem != word or len(word) > 2):
        return SHORT_FORM
    likeness = alike(word, other) if word[-1] == other[-1] and len(word) >= LONG_WORD else 0.0
    return likeness if likeness >= LEAST_WORD else 0.0


def _shared(one: _Cluster, other: _Cluster, known: Mapping[str, int]) -> float:
    """The share of company in common, each weighted down by how many it keeps itself."""

    def weight(name: str) -> float:
        return 1 / max(known.get(name, 1), 1)

    both = sum(weight(name) for name in one.company.keys() & other.company.keys())
    least = min(sum(map(weight, one.company)), sum(map(weight, other.company)))
    return both / least if least else 0.0


def _closeness(one: Sequence[date], other: Sequence[date]) -> float:
    """1 on the same day, 0 from a week on."""
    days = sorted([(day, 0) for day in one] + [(day, 1) for day in other])
    gaps = [(later - day).days for (day, whose), (later, whom) in pairwise(days) if whose != whom]
    return max(0.0, 1 - min(gaps) / RECENT_DAYS) if gaps else 0.0
