"""Recall: facts and lines of notes that answer a question, within a budget of tokens. No model is called.

Five arms look in their own way: the words of the question, the entities that it names, the time that it asks about,
opinions when it asks for one, and plain memory search. Their rankings are fused by rank (RRF); an arm that fits the
question is raised in rank, not in score, which would silence the others.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import date
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from palinurus.domain.messages import Origin
from palinurus.extensions.knowledge.beliefs import agreement, read_opinion
from palinurus.extensions.knowledge.entities import normal_name
from palinurus.extensions.knowledge.facts import Fact
from palinurus.extensions.knowledge.store import FactQuery, KnowledgeStore, StoredFact
from palinurus.extensions.knowledge.topics import (
    CHANGED_MIND,
    WORDS,
    FactStatement,
    Topic,
    asked_kinds,
    asked_topics,
    topics_of,
)
from palinurus.memory.answer import IndexFreshness, SearchAnswer, SearchResult
from palinurus.memory.search import CHARACTERS_PER_TOKEN
from palinurus.memory.terms import asked_about, date_in_path, word_query
from palinurus.text.fact_lines import FactKind

SMOOTHING = 60  # of RRF
MOST = {
    "by_words": 100,
    "by_entity": 120,
    "by_time": 150,
    "by_kind": 100,
    "by_statement": 300,
    "by_until": 1_000,
}  # of each arm
BY_ENTITY, BY_TIME, BY_OPINION = 2.0, 2.0, 2.0  # how much an arm that fits is raised in rank
LONGEST_NAME = 6  # words
USUAL = 25  # results
OUTSIDE = 0.25  # of the score of what the owner did not write
_OPINION = re.compile(
    r"\b(prefer\w*|like[sd]?|love[sd]?|hate[sd]?|dislike\w*|favou?rites?|opinions?|think(?:s|ing)?|thought|feel|believes?"
    r"|mag|mögen|findet|meint|bevorzug\w*)\b|喜欢|好き|嫌い"
)


_CHANGES = re.compile(
    r"\bwhat(?:'s|’s| has| is| was)? (?:changed|new|different)\b|\bchange[sd] since\b"
    r"|\bwas (?:hat sich geändert|ist neu)\b",
    re.IGNORECASE,
)
_TRUE_THEN = re.compile(
    r"\bwhat (?:was|is|were) (?:true|so|the case|known|going on)\b|\bwas (?:war|galt)\b", re.IGNORECASE
)
_SINCE = re.compile(r"\b(?:since|seit)\s+(?:the |last |this |dem |der |letzte[mnr]? )?(\w+)", re.IGNORECASE)
_BEGINS = {
    name: month
    for month, names in enumerate(
        ("january januar", "february februar", "march märz spring frühling frühjahr", "april", "may mai",
         "june juni summer sommer", "july juli", "august", "september autumn fall herbst", "october oktober",
         "november", "december dezember winter"),
        1,
    )
    for name in names.split()
}  # fmt: skip


class RecallQuestion(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    query: str
    agent: str = ""  # empty: the default one
    k: Annotated[int, Meta(ge=1, le=1_000)] | None = None  # 25; as many as fit within a budget of tokens
    since: str = ""  # a length of time: 30d
    as_of: str = ""  # a day: what was known then
    kind: FactKind | None = None
    entity: str = ""
    budget_tokens: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None

    @property
    def most(self) -> int:
        return self.k or (USUAL if self.budget_tokens is None else 1_000)


class RecallResult(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A fact, or a line of a note that is none. `text` is what it says."""

    path: str
    start_line: int
    end_line: int
    text: str
    score: float
    source: str  # path#L3
    kind: str  # world, experience, opinion, observation; note: a line that is no fact; page: of an entity
    timestamp: str = ""  # when it happened: a day, or `first/last`; else when it was said
    said_on: str = ""
    entities: tuple[str, ...] = ()
    confidence: float | None = None
    origin: str = ""  # outside: words that the owner did not write
    id: str = ""  # of a fact
    until: str = ""  # the day on which another statement took its place


class RecallAnswer(Struct, frozen=True, rename="camel", omit_defaults=True):
    results: tuple[RecallResult, ...]
    freshness: IndexFreshness
    entities: tuple[str, ...] = ()  # that the question names
    left_out: int = 0  # results that exceeded the budget
    took_ms: float = 0.0


class RecallScope(Struct, frozen=True):
    """What may be in an answer."""

    since: date | None = None
    as_of: date | None = None
    kind: str = ""
    entity: str = ""

    def has_fact(self, stored: StoredFact) -> bool:
        fact = stored.fact
        if (self.kind and fact.kind != self.kind) or (self.entity and self.entity not in stored.entities):
            return False
        last = fact.last_day or fact.said_on
        if self.since and (not last or last < self.since.isoformat()):
            return False
        return not (self.as_of and fact.said_on > self.as_of.isoformat())

    def has_line(self, result: SearchResult) -> bool:
        if self.kind or self.entity:
            return False
        day = date_in_path(result.path)
        if self.since and (day is None or day < self.since):
            return False
        return not (self.as_of and (day is None or day > self.as_of))


class WideQuestion(Struct, frozen=True):
    """What was so during some days, or has changed since a day, whatever it is about."""

    first: date
    last: date
    is_change: bool

    def answers(self, topics: Sequence[Topic], known: str) -> list[int]:
        """Numbers of facts, the latest first; of what has changed each with what it took the place of."""
        first, last = self.first.isoformat(), self.last.isoformat()
        found: list[tuple[str, list[int]]] = []
        for topic in topics:
            valid = topic.valid(known, "", "9999") if self.is_change else topic.valid(known, first, last)
            if not self.is_change:
                found += [(valid[0].begins, [each.fact.number for each in valid])] if valid else []
                continue
            at = next((at for at, each in enumerate(valid) if _differ(valid[0], each)), 0)
            new = valid[at - 1]  # the first of those that say what is so now
            if at and first <= max(new.begins, new.said):
                found.append((new.begins, [new.fact.number, valid[at].fact.number]))
        return [number for _, numbers in sorted(found, key=lambda each: each[0], reverse=True) for number in numbers]


def _differ(one: FactStatement, other: FactStatement) -> bool:
    opinions = (read_opinion(each.fact.fact.text) for each in (one, other))
    return one.values != other.values or ("taste" in one.kinds and agreement(*opinions) < 0)


def wide_question(query: str, scope: RecallScope, today: date) -> WideQuestion | None:
    day = scope.as_of or today
    spans = [each.in_year(day.year) or each if each.any_year else each for each in asked_about(query, day)]
    if _CHANGES.search(query):
        since = scope.since or begin_of(query, day) or (spans[0].first if spans else None)
        return WideQuestion(since, day, is_change=True) if since else None
    if _TRUE_THEN.search(query) and spans:
        return WideQuestion(spans[0].first, spans[0].last, is_change=False)
    return None


def begin_of(query: str, today: date) -> date | None:
    """Of "since spring", "since March": when that was last."""
    found = _SINCE.search(query)
    month = _BEGINS.get(found[1].lower()) if found else None
    return date(today.year - (month > today.month), month, 1) if month else None


async def recall_facts(
    store: KnowledgeStore, question: RecallQuestion, scope: RecallScope, searching: Awaitable[SearchAnswer], today: date
) -> RecallAnswer:
    """`searching`: memory search, under way. `scope.entity` is as it is listed."""
    listed = await store.names()
    named = names_in(question.query, listed)
    wide = wide_question(question.query, scope, today)
    arms = _arms(question.query, scope, named, today)
    if wide is not None:
        values = {"last": (scope.as_of or today).isoformat()}
        arms.append(_Arm(1.0, FactQuery("by_until", MOST["by_until"], values)))
    found, stored = await _found(store, arms)
    scores: dict[int, float] = defaultdict(float)
    for arm, numbers in zip(arms, found, strict=True):
        _add_ranks(scores, (number for number in numbers if scope.has_fact(stored[number])), arm.boost)
    for number in scores:
        if stored[number].fact.origin != Origin.OWNER:
            scores[number] *= OUTSIDE
    about = (scope.entity,) if scope.entity else named
    topics = topics_of(stored.values(), listed)
    answers, ends = answers_of(question.query, topics, about, scope.as_of, today, wide)
    first = max(scores.values(), default=0.0)
    for rank, number in enumerate(number for number in answers if number in scores):
        scores[number] += first + 1 / (1 + rank)  # what is so comes before what has the words
    plain = await searching
    found_there = await store.facts_at([(each.path, each.start_line, each.end_line) for each in plain.results])
    stored |= {number: each for number, each in found_there.items() if number not in stored}
    facts = {number: stored[number].fact for number in {*scores, *found_there} if scope.has_fact(stored[number])}
    spots = {
        (each.path, line): number for number, each in facts.items() for line in range(each.line, each.last_line + 1)
    }
    lines: list[RecallResult] = []
    for rank, line in enumerate((each for each in plain.results if scope.has_line(each)), 1):
        gain = 1 / (SMOOTHING + rank)
        covered = {
            spots[spot] for at in range(line.start_line, line.end_line + 1) if (spot := (line.path, at)) in spots
        }
        for number in covered:
            scores[number] += gain if facts[number].origin == Origin.OWNER else gain * OUTSIDE
        if not covered:
            lines.append(_line_result(line, gain))
    facts = {number: each for number, each in facts.items() if scores.get(number)}
    chosen = _once(facts, scores)[: question.most]
    best = [_fact_result(stored[number], scores[number], ends.get(number, "")) for number in chosen]
    ordered = sorted([*best, *lines], key=lambda each: (-each.score, each.path, each.start_line))
    kept, left = within(ordered, question.most, question.budget_tokens)
    return RecallAnswer(tuple(_share(kept)), plain.freshness, named, left)


def answers_of(
    query: str,
    topics: Sequence[Topic],
    named: Sequence[str],
    as_of: date | None,
    today: date,
    wide: WideQuestion | None = None,
) -> tuple[list[int], dict[int, str]]:
    """Numbers of the facts that say what was so on the days in question, then before; and until when each was so."""
    known = as_of.isoformat() if as_of else "9999"
    ends = {number: day for topic in topics for number, day in topic.ends(known).items()}
    if wide is not None:
        return wide.answers([each for each in topics if not named or each.subject in named], known), ends
    day = as_of or today
    spans = [each.in_year(day.year) or each if each.any_year else each for each in asked_about(query, day)]
    answers: list[int] = []
    asked = asked_topics(query, named, topics)
    for topic in asked:
        if CHANGED_MIND.search(query):
            valid = topic.valid(known, "", "9999")
        else:
            first, last = (spans[0].first, spans[0].last) if spans else (day, day)
            valid = topic.valid(known, first.isoformat(), last.isoformat())
        answers += [each.fact.number for each in valid]
    before = (each.fact.number for topic in asked for each in topic.valid(known, "", "9999"))
    return list(dict.fromkeys((*answers, *before))), ends


def names_in(text: str, known: Mapping[str, str]) -> tuple[str, ...]:
    """Entities that a text names, as they are listed: `Anna Berg` is not also the other Anna."""
    normal = {normal_name(name): entity for name, entity in known.items()}
    words, at, found = normal_name(text).split(), 0, dict[str, None]()
    while at < len(words):
        taken = next((n for n in range(LONGEST_NAME, 0, -1) if " ".join(words[at : at + n]) in normal), 0)
        if taken:
            found[normal[" ".join(words[at : at + taken])]] = None
        at += taken or 1
    return tuple(found)


class _Arm(Struct, frozen=True):
    boost: float  # how much its ranking is raised
    query: FactQuery
    only: str = ""  # others: only what another arm has found; nothing: only if no other arm has found anything


def _arms(query: str, scope: RecallScope, named: Sequence[str], today: date) -> list[_Arm]:
    arms: list[_Arm] = []

    def add(boost: float, name: str, only: str = "", **values: Any) -> None:
        arms.append(_Arm(boost, FactQuery(name, MOST[name], values), only))

    if words := word_query(query).words:
        add(1.0, "by_words", words=_any_of(words))
    if entities := list(dict.fromkeys((*([scope.entity] if scope.entity else ()), *named))):
        add(BY_ENTITY, "by_entity", entities=json.dumps(entities))
    for asked in asked_kinds(query):
        for entity in entities or [""]:
            add(1.0, "by_statement", words=_any_of(WORDS[asked].split()), entity=entity)
    spans = asked_about(query, today)
    for span in spans[:3]:
        add(BY_TIME, "by_time", first=span.first.isoformat(), last=span.last.isoformat())
    if scope.since and not spans:  # "what is new" names nothing else
        add(BY_TIME, "by_time", "nothing", first=scope.since.isoformat(), last=today.isoformat())
    if scope.kind:
        add(BY_OPINION, "by_kind", kind=scope.kind)
    elif _OPINION.search(query.lower()):
        add(BY_OPINION, "by_kind", "others", kind="opinion")
    return arms


def _any_of(words: Iterable[str]) -> str:
    return " OR ".join(f'"{word}"' for word in words)


async def _found(store: KnowledgeStore, arms: Sequence[_Arm]) -> tuple[list[list[int]], dict[int, StoredFact]]:
    """Numbers of facts for each arm, the best first."""
    found, stored = await store.look([arm.query for arm in arms])
    others = {number for arm, numbers in zip(arms, found, strict=True) if not arm.only for number in numbers}
    for at, arm in enumerate(arms):
        if arm.only == "others":
            found[at] = [number for number in found[at] if number in others]
        elif arm.only and others:
            found[at] = []
    return found, stored


def _add_ranks(scores: dict[int, float], numbers: Iterable[int], boost: float) -> None:
    for rank, number in enumerate(numbers, 1):
        scores[number] += 1 / (SMOOTHING + rank / boost)


def _fact_result(stored: StoredFact, score: float, until: str) -> RecallResult:
    fact = stored.fact
    happened = fact.first_day if fact.first_day == fact.last_day else f"{fact.first_day}/{fact.last_day}"
    origin = str(fact.origin) if fact.origin != Origin.OWNER else ""
    return RecallResult(
        fact.path, fact.line, fact.last_line, fact.text, score, fact.source, fact.kind, happened or fact.said_on,
        fact.said_on, stored.entities, fact.confidence, origin, fact.id, until,
    )  # fmt: skip


def _line_result(line: SearchResult, score: float) -> RecallResult:
    day = date_in_path(line.path)
    said_on = day.isoformat() if day else ""
    end = f"-L{line.end_line}" if line.end_line > line.start_line else ""
    source = f"{line.path}#L{line.start_line}{end}"
    return RecallResult(
        line.path, line.start_line, line.end_line, line.snippet, score, source, "note", said_on, said_on
    )


def _once(facts: Mapping[int, Fact], scores: Mapping[int, float]) -> list[int]:
    """The best first. A fact that stands in several files, once: where it is best."""
    best: dict[str, int] = {}
    for number in sorted(facts, key=lambda number: (-scores[number], number)):
        best.setdefault(facts[number].id, number)
    return list(best.values())


def within(ordered: Sequence[RecallResult], most: int, tokens: int | None) -> tuple[list[RecallResult], int]:
    """As many as fit, and how many that were good enough did not. A token is four characters, as in memory search."""
    kept: list[RecallResult] = []
    room = tokens * CHARACTERS_PER_TOKEN if tokens is not None else None
    for each in ordered[:most]:
        if room is not None:
            cost = len(each.text) + 1
            if cost > room + 1:
                continue
            room -= cost
        kept.append(each)
    return kept, min(len(ordered), most) - len(kept)


def _share(results: Sequence[RecallResult]) -> list[RecallResult]:
    """Scores from 0 to 1 within this answer."""
    top = results[0].score if results else 1.0
    return [replace(each, score=round(each.score / top, 4)) for each in results]
