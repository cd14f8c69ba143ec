"""What facts say is so, and since when: a later statement on the same topic takes the place of an earlier one. Pure.

Two times count. Valid time: the days on which something was so, from the day that a statement names, else from the day
on which it was said, until the next one begins. Said time: what had been said by a day. A correction ("lives in Graz,
not in Linz") takes back the statement before it, for the days since that one began, but not for what was known then.
Only words that state something count: homes, jobs, tastes, prices, and that somebody or something *is* so. What the
owner did not write takes the place of nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from msgspec import Struct, field

from palinurus.domain.messages import Origin
from palinurus.extensions.knowledge.store import StoredFact
from palinurus.text.words import STOP_WORDS, folded, root, words_of

TopicKind = Literal["home", "job", "taste", "price", "state"]
SAME = 0.5  # share of the words in common of two statements about the same
_STATES: dict[TopicKind, re.Pattern[str]] = {
    "price": re.compile(r"\d\s*(?:euros?|dollars?|pounds|francs|eur|usd|gbp|chf|[€$£])|[€$£]\s*\d", re.IGNORECASE),
    "home": re.compile(
        r"\bliv(?:es?|ing) (?:\w+ )?in\b|\b(?:based|settled|resides?|residing) in\b|\brelocat\w+ (?:from|to)\b"
        r"|(?<!was )(?<!were )(?<!been )\bmov(?:e|es|ed|ing) (?:out |back )?(?:from|to|away|house)\b"
        r"|\b(?:home|address|flat|apartment|house) (?:is )?in\b|\b(?:home|address) is (?-i:[A-Z])"
        r"|\bleft [^.]{1,40} for\b|\bwohn\w* (?:jetzt )?in\b|\b(?:zog|zieht|ziehen) (?:\w+ )?nach\b|\bnach \w+ gezogen",
        re.IGNORECASE,
    ),
    "job": re.compile(
        r"\bwork(?:s|ing)? (?:now )?(?:at|for|as)\b|\bemploy(?:ed|er)\b|\bjob (?:at|with|as)\b|\bhired\b"
        r"|\bjoin(?:ed|s)\b"
        r"|\bstart(?:ed|s) (?:at|as|with)\b|\bquit\b|\bresigned\b|\b(?:engineer|designer|manager|teacher) at\b"
        r"|\bswitched from\b|\barbeite[tn]? (?:jetzt )?bei\b",
        re.IGNORECASE,
    ),
    "taste": re.compile(
        r"\b(?:prefers?|rather (?:have|take|than)|likes?|loves?|enjoys?|favou?rs?|hates?|gone off|chose|chooses|mag"
        r"|mögen|bevorzug\w*|switched from)\b",
        re.IGNORECASE,
    ),
    "state": re.compile(
        r":|\b(?:is|are|will be|(?:was|were|been) moved|became|postponed|changed?|rescheduled|delayed|slipped|put off"
        r"|pushed back|brought forward|ist|sind)\b|\bmoved? [^.]{1,40} to\b",
        re.IGNORECASE,
    ),
}
_ASKED: dict[TopicKind, re.Pattern[str]] = {
    "home": re.compile(r"\b(?:lived?s?|living|based|resides?|home|address|moved?|wohn\w*)\b", re.IGNORECASE),
    "job": re.compile(r"\b(?:works?|worked|working|jobs?|employ\w+|arbeite\w*)\b", re.IGNORECASE),
    "taste": re.compile(
        r"\b(?:prefer\w*|likes?|liked|enjoy\w*|favou?r\w*|rather|mind about|bevorzug\w*|mag)\b", re.IGNORECASE
    ),
    "price": re.compile(r"\b(?:how much|costs?|prices?|pay|paid|rent|wie ?viel|kostet?)\b", re.IGNORECASE),
}
# Roots by which the statements of a home or a job are found among all facts.
WORDS: dict[str, str] = {
    "home": "live living based settled resides moved moves move relocated home address flat apartment house left wohnt",
    "job": "work works working employed employer job started joined hired quit resigned engineer designer switched",
    "taste": "prefer prefers rather like likes love enjoy enjoys favour favours gone chose switched",
}
_NOT_YET = re.compile(
    r"\b(?:wants? to|would like to|hopes? to|might|may|maybe|perhaps|thinking of|dreams? of|going to|will|plans to"
    r"|moves|wird|will nach|möchte)\b",
    re.IGNORECASE,
)
_NO_MORE = re.compile(
    r"\b(?:used to (?:live|work|be)|formerly|previously|once (?:lived|worked)|früher)\b", re.IGNORECASE
)
_CORRECTS = re.compile(
    r"\b(?:correction|corrected|was wrong|after all|wrong (?:day|date|town|name)|never was|mistake(?:n|nly)?"
    r"|korrektur)\b|^not [^.]{1,40}[:,]",
    re.IGNORECASE,
)
_SINCE = re.compile(r"\b(?:since|seit)\b", re.IGNORECASE)
CHANGED_MIND = re.compile(r"\bchang\w+ (?:\S+ ){0,3}minds?\b|\bwhat changed\b", re.IGNORECASE)
_OWN = re.compile(r"\b(?:i|we|my|our|me|us|ich|wir|mein\w*|unser\w*)\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d[\d.,]*")
_NAME = re.compile(r"(?<![.!?] )(?<!^)(?<!\w)[^\W\d_a-z][\w'’]*|^\w+(?= (?:is|are) (?:the|our|my)\b)")
_DAYS = frozenset(
    words_of(
        """january february march april may june july august september october november december monday tuesday
        wednesday thursday friday saturday sunday januar februar marz mai juni juli oktober dezember montag dienstag
        mittwoch donnerstag freitag samstag sonntag"""
    )
)
_CUES = """now new still again these days currently anymore longer correction more much better rather instead would have
has go gone off want wants prefer like likes favour enjoy chose choose love cost euro euros dollar month monthly year
pay paid price rent went up down from plan planned move moved postpone postponed delay delayed set schedule change
changed use switch switched"""


class FactStatement(Struct, frozen=True):
    """That something is so."""

    fact: StoredFact
    kinds: tuple[TopicKind, ...]  # that it may be of; the first is the likeliest
    subject: str  # as it is listed; empty: the owner
    about: frozenset[str]  # roots
    values: frozenset[str]
    begins: str
    is_dated: bool = False
    is_correction: bool = False

    @property
    def said(self) -> str:
        return self.fact.fact.said_on


class Topic(Struct):
    """Statements about the same, in the order in which they were said."""

    kind: TopicKind
    subject: str
    statements: list[FactStatement] = field(default_factory=list)

    def valid(self, known: str, first: str, last: str) -> list[FactStatement]:
        """Those that held on some of these days, the latest first, by what had been said until `known`."""
        held = self._timeline(known)
        ends = [begins for begins, _ in held[1:]] + ["9999"]
        valid = [each for (begins, each), end in zip(held, ends, strict=False) if begins <= last and end > first]
        return list({each.fact.number: each for each in reversed(valid)}.values())

    def ends(self, known: str) -> dict[int, str]:
        """By the number of a fact, the day on which another statement took its place."""
        held = self._timeline(known)
        return {
            one.fact.number: begins
            for (_, one), (begins, other) in pairwise(held)
            if other is not one and one.values != other.values
        }

    def _timeline(self, known: str) -> list[tuple[str, FactStatement]]:
        begun: list[tuple[str, str, int, FactStatement]] = []
        for each in self.statements:
            if each.said > known:
                continue
            begins = each.begins
            if each.is_correction and begun:
                wrong = next((one for one in reversed(begun) if one[3].values & each.values), begun[-1])
                begun.remove(wrong)
                begins = each.begins if each.is_dated else wrong[0]
            begun.append((begins, each.said, each.fact.number, each))
            if begins < each.said and _SINCE.search(each.fact.fact.text):
                begun.append((each.said, each.said, each.fact.number, each))  # it is so still
        return [(begins, each) for begins, _, _, each in sorted(begun, key=lambda one: one[:3])]


def topics_of(facts: Iterable[StoredFact], listed: Mapping[str, str]) -> list[Topic]:
    """`listed`: the name under which each name is listed."""
    read = [each for one in facts if (each := _statement(one, listed)) is not None]
    topics: dict[tuple[str, str], list[Topic]] = {}
    for each in sorted(read, key=lambda one: (one.said, one.fact.number)):
        near = [topic for kind in each.kinds for topic in topics.get((kind, each.subject), ()) if _belongs(each, topic)]
        if len(each.kinds) > 1:  # "switched from X to Y": of the topic in which X was said
            near.sort(key=lambda topic: not any(each.values & one.values for one in topic.statements))
        if near:
            near[0].statements.append(each)
        else:
            new = Topic(each.kinds[0], each.subject, [each])
            topics.setdefault((new.kind, new.subject), []).append(new)
    return [topic for some in topics.values() for topic in some]


def asked_topics(query: str, named: Sequence[str], topics: Sequence[Topic]) -> list[Topic]:
    """The topics that a question is about, the nearest first."""
    kinds = [kind for kind, pattern in _ASKED.items() if pattern.search(query)]
    words = _roots(words_of(query))
    found: list[tuple[int, Topic]] = []
    for topic in topics:
        if topic.subject not in (named or ("",)) and (topic.subject or topic.kind not in ("price", "state")):
            continue
        if topic.kind in ("home", "job"):
            if topic.kind in kinds:
                found.append((1, topic))
        elif topic.kind in kinds or topic.kind == "state":
            fits = max((len(one.about & words) for one in topic.statements if _mostly(one.about, words)), default=0)
            if fits:
                found.append((fits + (topic.kind in kinds), topic))
    most = max((fits for fits, _ in found), default=0)
    return [topic for fits, topic in found if fits == most]


def asked_kinds(query: str) -> list[str]:
    return [kind for kind, pattern in _ASKED.items() if kind in WORDS and pattern.search(query)]


def _mostly(about: frozenset[str], words: frozenset[str]) -> bool:
    return bool(about) and len(about & words) / len(about) >= SAME


def _belongs(new: FactStatement, topic: Topic) -> bool:
    if topic.kind in ("home", "job"):
        return len(new.kinds) == 1 or any(new.values & one.values for one in topic.statements)
    return any(_is_same(one, new, topic.kind) for one in topic.statements)


def _is_same(old: FactStatement, new: FactStatement, kind: TopicKind) -> bool:
    least = min(len(old.about), len(new.about))
    if not least or len(old.about & new.about) / least < SAME:
        return False
    if kind == "taste" or old.values == new.values:
        return True
    return bool({_type(value) for value in new.values - old.values} & {_type(value) for value in old.values})


def _type(value: str) -> str:
    return "day" if value in _DAYS else "number" if value[0].isdigit() else "name"


def _statement(stored: StoredFact, listed: Mapping[str, str]) -> FactStatement | None:
    fact = stored.fact
    if fact.kind not in ("world", "opinion") or fact.origin != Origin.OWNER or fact.text.endswith("?"):
        return None
    subject = ""
    if fact.entities:
        name = fact.entities[0]
        is_inline = f"@{name.replace(' ', '-')}" in fact.text
        subject = listed.get(name, name) if not is_inline or fact.text.startswith("@") else ""
    kinds, about, values = _read_text(fact.text, bool(subject))
    dated = bool(fact.first_day) and kinds != ("state",)
    unsure = kinds and kinds[0] in ("home", "job") and _NOT_YET.search(fact.text) and not dated
    if not kinds or unsure or _NO_MORE.search(fact.text):
        return None
    return FactStatement(
        stored, kinds, subject, about, values, fact.first_day if dated else fact.said_on, dated,
        _CORRECTS.search(fact.text) is not None,
    )  # fmt: skip


@lru_cache(20_000)
def _read_text(text: str, is_of_somebody: bool) -> tuple[tuple[TopicKind, ...], frozenset[str], frozenset[str]]:
    """The kinds that it may be of, what it is about, and its values."""
    about, values = _parts(text)
    personal = is_of_somebody or _OWN.search(text)
    kinds = tuple(
        kind
        for kind, pattern in _STATES.items()
        if (personal or kind in ("price", "state")) and (values or kind == "taste") and pattern.search(text)
    )
    if len(kinds) > 1:
        kinds = kinds[:1] if kinds[0] == "price" else tuple(kind for kind in kinds if kind != "state")
    return kinds, about | values if "taste" in kinds else about, values  # what is liked is what it is about


def _parts(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The roots of what a statement is about, and its values: names, numbers, days."""
    words, numbers = words_of(text), (each.rstrip(".,") for each in _NUMBER.findall(text))
    names = {folded(each) for each in _NAME.findall(text)} - STOP_WORDS
    days = {each for each in words if each in _DAYS and (each != "may" or "May" in text)}
    values = frozenset((*names, *days, *numbers))
    return _roots(word for word in words if word not in values), values


def _roots(words: Iterable[str]) -> frozenset[str]:
    return frozenset(root(word) for word in words if word.lower() not in STOP_WORDS and not word[0].isdigit()) - _cues()


@lru_cache(1)
def _cues() -> frozenset[str]:
    return frozenset(root(word) for word in _CUES.split()) | _DAYS
