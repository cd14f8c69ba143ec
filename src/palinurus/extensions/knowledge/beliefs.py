"""Beliefs: what opinions add up to, and how sure that is. Pure, and computed anew from the facts each time.

Opinions about the same things are one belief. A source (a file) has one vote: for the statement that is held, or
against it. A vote counts by the confidence that was written with it, and by half a year later; text from outside has
none. The confidence is the sum of votes as log-odds. The statement that is held changes only when two sources that do
not depend on each other speak against it, or the owner does: a bullet that was written or edited by hand in the bank.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import cache

from msgspec import Struct

from palinurus.domain.messages import Origin
from palinurus.extensions.knowledge.store import StoredFact
from palinurus.text.words import STOP_WORDS, root, words_of

HALF_LIFE = 365  # days
USUAL = 1.0  # log-odds of an opinion without a written confidence
STRONGEST = 3.0  # of one vote
OWNER = 6.0  # of the owner's own hand
SAME = 0.5  # share of words in common, of opinions about the same
SOURCES = 2  # that must speak against a statement before another one is held
_FAVOURITE = re.compile(r"\bfavou?rite\s+([\w ]{1,40}?)\s(?:is|are|was|=)\s+(.+)", re.IGNORECASE)
_LIKING = """like love prefer enjoy want favour favor choose adore trust recommend support only but good great best
rather better instead happy fan"""
_DISLIKING = """dislike hate avoid loathe refuse reject mind distrust against bad worse worst tired sick stop quit not
never no without stand allergic off less"""
_SECOND = ("than", "over")  # what follows is liked less
_AROUND = """now still again these days currently anymore more much far would have has had go switch from give longer
any also really very always usually mostly once take find think consider can one more"""


class _Cues(Struct, frozen=True):
    """Roots of words that say how something is liked, and of words that say nothing about it."""

    liking: frozenset[str]
    disliking: frozenset[str]
    around: frozenset[str]


@cache
def _cues() -> _Cues:
    liking, disliking, around = (
        frozenset(root(word) for word in words.split()) for words in (_LIKING, _DISLIKING, _AROUND)
    )
    return _Cues(liking, disliking, around)


class Opinion(Struct, frozen=True):
    """What a statement is for and against."""

    signs: Mapping[str, int]  # root of a word -> 1 or -1
    value: frozenset[str] = frozenset()  # of "favourite …": only one can be right

    @property
    def words(self) -> frozenset[str]:
        return frozenset(self.signs)


class BeliefStep(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What one source has changed."""

    day: str
    confidence: float
    fact: str  # id
    source: str
    is_for: bool  # the statement that was held then
    statement: str
    is_flip: bool = False


class Belief(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    statement: str
    confidence: float
    entities: tuple[str, ...] = ()
    supporting: tuple[str, ...] = ()  # ids of facts
    contradicting: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()  # of both, the newest first
    first_day: str = ""
    last_day: str = ""
    is_by_hand: bool = False
    steps: tuple[BeliefStep, ...] = ()


class BeliefChange(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One belief on two days."""

    statement: str
    confidence: float
    entities: tuple[str, ...] = ()
    before: str = ""  # the statement then; empty: there was none
    confidence_before: float | None = None
    because: tuple[BeliefStep, ...] = ()


def beliefs_of(opinions: Iterable[StoredFact], on: date) -> list[Belief]:
    """What is believed at the end of that day, the surest first."""
    day = on.isoformat()
    known = [each for each in opinions if each.fact.origin == Origin.OWNER and each.fact.said_on <= day]
    known.sort(key=lambda each: (each.fact.said_on, each.fact.is_by_hand, each.fact.path, each.fact.line))
    groups: list[_Group] = []
    by_word: dict[tuple[str, str], list[_Group]] = defaultdict(list)
    for each in known:
        opinion, about = read_opinion(each.fact.text), each.entities[:1] or ("",)
        words = opinion.words | (read_opinion(each.fact.instead_of).words if each.fact.instead_of else frozenset())
        keys = [(about[0], word) for word in sorted(words)]
        near = {id(group): group for key in keys for group in by_word.get(key, ())}
        group = next((found for found in near.values() if found.is_about(each, opinion)), None)
        if group is None:
            group = _Group(each, opinion)
            groups.append(group)
        for key in keys:
            if group not in by_word[key]:
                by_word[key].append(group)
        group.members.append((each, opinion))
    found = [group.belief(on) for group in groups]
    return sorted(found, key=lambda each: (-each.confidence, each.statement))


def changes_between(opinions: Sequence[StoredFact], first: date, last: date) -> list[BeliefChange]:
    """What is believed on the last day otherwise than on the first, and what has changed it."""
    before = {each.id: each for each in beliefs_of(opinions, first)}
    changes = []
    for now in beliefs_of(opinions, last):
        then = before.get(now.id)
        because = tuple(step for step in now.steps if first.isoformat() < step.day <= last.isoformat())
        if because:
            changes.append(
                BeliefChange(
                    now.statement, now.confidence, now.entities, then.statement if then else "",
                    then.confidence if then else None, because,
                )
            )  # fmt: skip
    return changes


def read_opinion(text: str) -> Opinion:
    """Words that a statement likes and dislikes; of `favourite X is Y` Y is a value."""
    cues = _cues()
    if favourite := _FAVOURITE.search(text):
        about, value = (_content(each, cues) for each in (f"{text[: favourite.start()]} {favourite[1]}", favourite[2]))
        return Opinion(dict.fromkeys(("favourite", *about), 1), frozenset(value))
    signs: dict[str, int] = {}
    sign, preferring, leaving, words = 1, False, False, _words(text)
    for at, word in enumerate(words):
        stem, next_word = root(word), words[at + 1] if at + 1 < len(words) else ""
        if word in _SECOND or (word, next_word) in (("rather", "than"), ("instead", "of")):
            sign = -1
        elif word == "to" and (leaving or preferring):
            sign, leaving = (1 if leaving else -1), False
        elif word == "from":
            sign, leaving = -1, True
        elif stem in cues.liking:
            denied = not {"not", "no", "never"}.isdisjoint(words[max(at - 2, 0) : at])
            sign, preferring = (-1 if denied else 1), preferring or word.startswith("prefer")
        elif stem in cues.disliking:
            sign = -1
        elif stem not in cues.around and word not in STOP_WORDS:
            signs.setdefault(stem, sign)
    return Opinion(signs)


def agreement(one: Opinion, other: Opinion) -> int:
    """1: they say the same; -1: they exclude each other; 0: they are about something else."""
    shared, either = one.words & other.words, one.words | other.words
    if not either or len(shared) < SAME * len(either):
        return 0
    if one.value and other.value:
        return 1 if one.value & other.value else -1
    if one.value or other.value:
        return 0
    return 1 if sum(one.signs[word] * other.signs[word] for word in shared) >= 0 else -1


class _Group:
    def __init__(self, first: StoredFact, opinion: Opinion) -> None:
        self.entities = first.entities
        self.topic = opinion
        self.members: list[tuple[StoredFact, Opinion]] = []
        key = "\n".join((*sorted(first.entities), *sorted(opinion.words)))
        self.id = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:12]

    def is_about(self, fact: StoredFact, opinion: Opinion) -> bool:
        """About the same things, and something that was said of them."""
        if set(self.entities) != set(fact.entities) and set(self.entities[:1]) != set(fact.entities[:1]):
            return False
        replaced = fact.fact.instead_of
        return bool(agreement(self.topic, opinion)) or bool(replaced and agreement(self.topic, read_opinion(replaced)))

    def belief(self, on: date) -> Belief:
        """Goes through the votes in their order, one for each source."""
        held, opinion = self.members[0]
        votes: list[tuple[float, date | None, str, StoredFact, Opinion]] = []
        steps: list[BeliefStep] = []
        by_hand = False
        for fact, said in self.members:
            own = fact.fact.is_by_hand
            source = fact.fact.path if not own else f"{fact.fact.path}#{fact.fact.id}"
            votes = [each for each in votes if each[2] != source or own]
            votes.append((_weight(fact), _day(fact), source, fact, said))
            until = min(on, _day(fact) or on)
            total = self._total(votes, opinion, until)
            against = [each for each in votes if _side(each[4], opinion) < 0]
            doubted = total < 0 and len({each[2] for each in against}) >= SOURCES
            flips = (own and _side(said, opinion) < 0) or (doubted and not by_hand)
            if own:
                held, opinion = fact, said
            elif flips:
                held, opinion = against[0][3:]
            by_hand = own or (by_hand and not flips)
            confidence = _sigmoid(self._total(votes, opinion, until))
            is_for = _side(said, opinion) > 0
            steps.append(
                BeliefStep(
                    fact.fact.said_on, round(max(confidence, 0.5), 4), fact.fact.id, fact.fact.source, is_for or flips,
                    held.fact.text, flips,
                )
            )  # fmt: skip
        sure = max(_sigmoid(self._total(votes, opinion, on)), 0.5)
        if by_hand and held.fact.confidence is not None:
            sure = held.fact.confidence
        sides = [(fact.fact.id, _side(said, opinion)) for fact, said in self.members]
        days = [fact.fact.said_on for fact, _ in self.members if fact.fact.said_on]
        return Belief(
            self.id,
            held.fact.text,
            round(sure, 4),
            held.entities,
            supporting=tuple(dict.fromkeys(each for each, side in sides if side > 0)),
            contradicting=tuple(dict.fromkeys(each for each, side in sides if side < 0)),
            sources=tuple(dict.fromkeys(fact.fact.source for fact, _ in reversed(self.members))),
            first_day=days[0] if days else "",
            last_day=days[-1] if days else "",
            is_by_hand=by_hand,
            steps=tuple(steps),
        )

    @staticmethod
    def _total(votes: Sequence[tuple[float, date | None, str, StoredFact, Opinion]], held: Opinion, on: date) -> float:
        """Log-odds of the statement that is held."""
        return sum(
            weight * _side(said, held) * 0.5 ** ((on - day).days / HALF_LIFE if day is not None else 0)
            for weight, day, _, _, said in votes
        )


def _side(said: Opinion, held: Opinion) -> int:
    """Of two opinions in one group: without common words the newer one was put in the place of the older."""
    return agreement(said, held) or -1


def _weight(fact: StoredFact) -> float:
    if fact.fact.is_by_hand:
        return OWNER
    written = fact.fact.confidence
    if written is None:
        return USUAL
    sure = min(max(written, 0.01), 0.99)
    return min(max(math.log(sure / (1 - sure)), -STRONGEST), STRONGEST)


def _day(fact: StoredFact) -> date | None:
    return date.fromisoformat(fact.fact.said_on) if fact.fact.said_on else None


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-max(min(value, 30.0), -30.0)))


def _words(text: str) -> list[str]:
    return words_of(text.lower().replace("n't ", " not ").replace("n’t ", " not ").replace("cannot ", "can not "))


def _content(text: str, cues: _Cues) -> list[str]:
    """Roots of the words that carry a subject; after `but`, where there is one: no longer green but blue."""
    words = (root(word) for word in _words(text.partition(" but ")[2] or text) if word not in STOP_WORDS)
    return [word for word in words if word not in cues.around]
