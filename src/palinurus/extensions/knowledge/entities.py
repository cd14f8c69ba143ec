"""Which names mean the same person, place or thing, without a model. Pure.

A wrong merge cannot be told from the truth afterwards, a duplicate can be merged by hand: in doubt names stay apart.
Vetoes come first (other numbers, a word that the longer name lacks, too few letters in common). Then half of the score
is the name, 0.3 the company that both keep, and 0.2 how close in time they were named. What the owner has declared
(merged or kept apart) is never scored.
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
LEAST_ALIKE = 0.3  # of all letters
LEAST_WORD = 0.6  # of a word
RECENT_DAYS = 7
_WORD = re.compile(r"\w+")
_DIGITS = re.compile(r"\d+")


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
        self.names = [name]
        self.company: dict[str, int] = defaultdict(int)
        self.days: list[date] = []

    def add(self, mentions: Iterable[NamedIn]) -> None:
        for each in mentions:
            for other in each.company:
                self.company[normal_name(other)] += 1
            if each.day is not None:
                self.days.append(each.day)


@lru_cache(20_000)
def normal_name(name: str) -> str:
    """In small letters, without accents, hyphens and possessives."""
    plain = unicodedata.normalize("NFKD", name.casefold())
    return " ".join(_WORD.findall("".join(each for each in plain if not unicodedata.combining(each))))


def resolve_names(
    mentions: Sequence[NamedIn], declared: Sequence[Declaration] = ()
) -> tuple[dict[str, str], tuple[Merge, ...]]:
    """Each name and the one it is listed under, and the log of what was merged."""
    by_name: dict[str, list[NamedIn]] = defaultdict(list)
    for each in mentions:
        by_name[each.name].append(each)
    same = {normal_name(each.name): each.same_as for each in declared if each.same_as}
    apart = {frozenset((normal_name(each.name), normal_name(each.apart_from))) for each in declared if each.apart_from}
    known = _neighbours(mentions)
    clusters: dict[str, _Cluster] = {}  # by their first name
    taken: dict[str, str] = {}  # normal name -> cluster
    index: dict[str, set[str]] = defaultdict(set)  # trigram -> clusters
    listed: dict[str, str] = {}
    log: list[Merge] = []
    for name in sorted(by_name, key=lambda each: (min((m.day or date.max) for m in by_name[each]), -len(each), each)):
        normal, found = normal_name(name), by_name[name]
        into, merge = taken.get(normal, ""), None
        if not into and (wanted := same.get(normal)):
            into = taken.get(normal_name(wanted), "") or wanted
            merge = Merge(name, into, 1.0, "declared")
        if not into:
            merge = _best(name, found, clusters, index, known, apart)
            into = merge.into if merge else ""
        if not into or into not in clusters:
            into = into or name
            clusters[into] = _Cluster(into)
        if merge is not None:
            log.append(merge)
        cluster = clusters[into]
        cluster.names.append(name)
        cluster.add(found)
        listed[name] = taken[normal] = into
        for gram in trigrams(normal):
            index[gram].add(into)
    return listed, tuple(log)


def alike(one: str, other: str) -> float:
    """How many trigrams two normal names share, 0 to 1."""
    first, second = trigrams(one), trigrams(other)
    return 2 * len(first & second) / (len(first) + len(second)) if first and second else 0.0


@lru_cache(50_000)
def trigrams(normal: str) -> frozenset[str]:
    padded = "  ".join(("", *normal.split(), ""))
    return frozenset(padded[at : at + 3] for at in range(len(padded) - 2))


def is_vetoed(one: str, other: str) -> bool:
    """Whether two normal names cannot mean the same."""
    if _DIGITS.findall(one) != _DIGITS.findall(other):
        return True
    short, long = sorted((one.split(), other.split()), key=len)
    if not all(any(_is_same_word(word, each) for each in long) for word in short):
        return True
    if len(short) == len(long) > 1 and any(not _is_same_word(a, b) for a, b in zip(short, long, strict=True)):
        return True
    return alike(one, other) < LEAST_ALIKE


@lru_cache(50_000)
def _is_same_word(one: str, other: str) -> bool:
    """Also a short form (Pete, Peter) or another spelling (Katharine, Katherine); not Anna, Hanna or Paul, Paula."""
    short, long = sorted((one, other), key=len)
    if long.startswith(short):
        return short == long or (len(short) > 1 and not (long[:-1] == short and long[-1] in "aeiou"))
    return short[0] == long[0] and alike(one, other) >= LEAST_WORD


def _neighbours(mentions: Sequence[NamedIn]) -> Mapping[str, int]:
    """How many others each name is seen with: company that everybody keeps says little."""
    met: dict[str, set[str]] = defaultdict(set)
    for each in mentions:
        normal = normal_name(each.name)
        for other in each.company:
            met[normal_name(other)].add(normal)
    return {name: len(others) for name, others in met.items()}


def _best(
    name: str,
    found: Sequence[NamedIn],
    clusters: Mapping[str, _Cluster],
    index: Mapping[str, set[str]],
    known: Mapping[str, int],
    apart: set[frozenset[str]],
) -> Merge | None:
    normal = normal_name(name)
    near = {each for gram in trigrams(normal) for each in index.get(gram, ())}
    own = _Cluster(name)
    own.add(found)
    best: Merge | None = None
    for each in sorted(near):
        cluster = clusters[each]
        names = [normal_name(other) for other in cluster.names]
        if any(is_vetoed(normal, other) or frozenset((normal, other)) in apart for other in names):
            continue
        likeness = max(alike(normal, other) for other in names)
        company, recency = _shared(own, cluster, known), _closeness(own.days, cluster.days)
        score = round(NAME * likeness + COMPANY * company + RECENCY * recency, 3)
        if score >= ENOUGH and (best is None or score > best.score):
            best = Merge(name, each, score, f"name {likeness:.2f}, company {company:.2f}, time {recency:.2f}")
    return best


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
