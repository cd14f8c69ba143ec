"""Which page a fact belongs on. Pure.

A fact is on the page of each person and project that it names, and on the page of decisions, preferences or patterns
if it is one. Other facts from notes are on a page for their heading; other sentences of sessions are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date

from msgspec import Struct

from palinurus.extensions.migrate.ingest.facts import (
    SIGNALS,
    Cite,
    Fact,
    SourceFact,
    is_of_owner,
    key_of,
    kind_of,
    signal_of,
    untimed,
    words_of,
)
from palinurus.extensions.migrate.ingest.names import Name, Names, find_names, slug
from palinurus.extensions.migrate.ingest.state import KnownSource

MOST_FACTS = 300  # of one page
MOST_PATHS = 20
MOST_CITES = 50  # of one fact
ECHO_WORDS = 8  # that may come before repeated words: `From my notes: …`
GENERAL = "general"
FOLDERS = ("people", "projects", "decisions", "preferences", "patterns", "topics")
KINDS = dict(zip(FOLDERS, ("person", "project", "decisions", "preferences", "patterns", "topic"), strict=True))
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_NO_TOPIC = re.compile(
    r"(?i:memory(?:\.md)?|user\.md.*|dreams?(?: diary)?|log|retain|open|notes?|facts?|misc|session:.*|today|summary)"
)


class Page(Struct, frozen=True):
    path: str  # without `.md`
    kind: str
    title: str
    facts: tuple[Fact, ...]  # the strongest signal first
    more: int = 0  # facts that did not fit


def join_facts(sources: Mapping[str, KnownSource]) -> list[Fact]:
    """One fact for the same words from several sources, by path. The order of the sources does not matter."""
    days = [found.day for each in sources.values() if each.role == "daily" for found in each.found if found.day]
    newest = date.fromisoformat(max(days)) if days else None
    grouped: dict[str, list[tuple[Cite, SourceFact]]] = {}
    for path, source in sorted(sources.items()):
        for found in source.found:
            rank = SIGNALS.index(signal_of(source.role, found, found.day, newest))
            cite = Cite(rank, path, found.first, found.last)
            grouped.setdefault(key_of(found.text), []).append((cite, found))
    facts = [_fact(key, sorted(places, key=lambda place: place[0])) for key, places in grouped.items()]
    return sorted(_without_echoes(facts), key=_order)


def pages_of(facts: list[Fact]) -> tuple[list[Page], Names]:
    names = find_names(facts)
    gathered: dict[str, list[Fact]] = {}
    for fact in facts:
        for path in _places(fact, names):
            gathered.setdefault(path, []).append(fact)
    titles = {name.page: name.name or "The owner" for name in (*names.all, names.owner)}
    pages = [_page(path, found, titles) for path, found in sorted(gathered.items())]
    return [page for page in pages if page is not None], names


def _page(path: str, facts: list[Fact], titles: Mapping[str, str]) -> Page | None:
    folder, _, name = path.partition("/")
    said = [fact for fact in facts if not fact.path]
    if not said:  # a path alone is not enough for a page
        return None
    kept = said[:MOST_FACTS] + [fact for fact in facts if fact.path][:MOST_PATHS]
    whose = titles.get(f"projects/{name}") or titles.get(f"people/{name}") or name
    title = titles.get(path) or (f"{folder.capitalize()}: {whose}" if folder != "topics" else _topic_title(facts, name))
    return Page(path, KINDS[folder], title, tuple(kept), len(facts) - len(kept))


def _places(fact: Fact, names: Names) -> list[str]:
    about = names.of(fact)
    places = [name.page for name in about]
    if fact.path:
        return places
    kind = kind_of(fact)
    from_session = fact.signal in ("talk", "tools")
    if kind == "preference":
        if person := _whose(fact, about, names):
            places.append(f"preferences/{person}")
    elif kind and (not from_session or about or kind == "decision"):
        projects = [name.slug for name in about if name.kind == "project"]
        places.append(f"{kind}s/{projects[0] if projects else GENERAL}")
    if not places and not from_session:
        places.append(f"topics/{_topic(fact)}")
    return places


def _whose(fact: Fact, about: list[Name], names: Names) -> str:
    """The person with the preference: the one who is named, or else the owner."""
    people = [name.slug for name in about if name.kind == "person"]
    if people:
        return people[0]
    return names.owner.slug if is_of_owner(fact) else ""


def _topic(fact: Fact) -> str:
    for heading in reversed(fact.under):
        if not _DAY.search(heading) and not _NO_TOPIC.fullmatch(heading.strip("*_: ")) and slug(heading):
            return slug(heading)
    return "notes"


def _topic_title(facts: list[Fact], name: str) -> str:
    return min((heading for fact in facts for heading in fact.under if slug(heading) == name), default="Notes")


def _fact(key: str, places: list[tuple[Cite, SourceFact]]) -> Fact:
    best = places[0][1]
    timed = all(
        found.text.startswith(best.text[:5]) for _, found in places
    )  # whether all sources have the same time in front
    return Fact(
        key=key,
        text=best.text if timed else untimed(best.text),
        cites=tuple(dict.fromkeys(cite for cite, _ in places))[:MOST_CITES],
        day=max(found.day for _, found in places),
        under=best.under,
        about=tuple(dict.fromkeys(handle for _, found in places for handle in found.about)),
        by_owner=any(found.by_owner for _, found in places),
        outside=all(found.outside for _, found in places),
        path=best.path,
    )


def _without_echoes(facts: list[Fact]) -> list[Fact]:
    """Without sentences of sessions that only repeat a note, with a few words before it."""
    noted = {" ".join(words_of(fact.text)) for fact in facts if fact.signal not in ("talk", "tools")}
    return [fact for fact in facts if fact.signal != "talk" or not _echoes(words_of(fact.text), noted)]


def _echoes(words: list[str], noted: set[str]) -> bool:
    return any(" ".join(words[start:]) in noted for start in range(1, min(ECHO_WORDS, len(words) - 2)))


def _order(fact: Fact) -> tuple[int, bool, int, Cite]:
    """By signal; facts without a day first, then the newest; then by source."""
    cite = fact.cites[0]
    return cite.rank, bool(fact.day), -int(fact.day.replace("-", "") or 0), cite
