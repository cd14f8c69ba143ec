"""Which page a fact belongs on, and the page as markdown: front matter, facts with their sources, links. Pure.

A fact is on the page of each person and project that it names, and on the page of decisions, preferences or patterns
if it is one. Other facts from notes are on a page for their heading; other sentences of sessions are left out.

Facts may be text of other people: HTML and images in them are escaped, and they cannot imitate our marks, because every
line of a fact begins with its number.

Our part of a page is between two marks, the second with a digest of it. The rest belongs to a person and stays.
If a person has changed our part, lines they added are moved between marks of their own, and facts they removed stay
removed: `MergedPage.removed` has them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from datetime import date

from msgspec import Struct
from msgspec.structs import asdict

from palinurus.domain.messages import OUTSIDE_MARK
from palinurus.extensions.migrate.ingest.facts import (
    SIGNALS,
    Cite,
    MergedFact,
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
MOST_SOURCES = 50  # of one fact
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
    facts: tuple[MergedFact, ...]  # the strongest signal first
    more: int = 0  # facts that did not fit


def join_facts(sources: Mapping[str, KnownSource]) -> list[MergedFact]:
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


def pages_of(facts: list[MergedFact]) -> tuple[list[Page], Names]:
    names = find_names(facts)
    gathered: dict[str, list[MergedFact]] = {}
    for fact in facts:
        for path in _places(fact, names):
            gathered.setdefault(path, []).append(fact)
    titles = {name.page: name.name or "The owner" for name in (*names.all, names.owner)}
    pages = [_page(path, found, titles) for path, found in sorted(gathered.items())]
    return [page for page in pages if page is not None], names


def _page(path: str, facts: list[MergedFact], titles: Mapping[str, str]) -> Page | None:
    folder, _, name = path.partition("/")
    said = [fact for fact in facts if not fact.path]
    if not said:  # a path alone is not enough for a page
        return None
    kept = said[:MOST_FACTS] + [fact for fact in facts if fact.path][:MOST_PATHS]
    whose = titles.get(f"projects/{name}") or titles.get(f"people/{name}") or name
    title = titles.get(path) or (f"{folder.capitalize()}: {whose}" if folder != "topics" else _topic_title(facts, name))
    return Page(path, KINDS[folder], title, tuple(kept), len(facts) - len(kept))


def _places(fact: MergedFact, names: Names) -> list[str]:
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
        project = next((name.slug for name in about if name.kind == "project"), GENERAL)
        places.append(f"{kind}s/{project}")
    if not places and not from_session:
        places.append(f"topics/{_topic(fact)}")
    return places


def _whose(fact: MergedFact, about: list[Name], names: Names) -> str:
    """The person with the preference: the one who is named, or else the owner."""
    owner = names.owner.slug if is_of_owner(fact) else ""
    return next((name.slug for name in about if name.kind == "person"), owner)


def _topic(fact: MergedFact) -> str:
    for heading in reversed(fact.under):
        if not _DAY.search(heading) and not _NO_TOPIC.fullmatch(heading.strip("*_: ")) and slug(heading):
            return slug(heading)
    return "notes"


def _topic_title(facts: list[MergedFact], name: str) -> str:
    return min((heading for fact in facts for heading in fact.under if slug(heading) == name), default="Notes")


def _fact(key: str, places: list[tuple[Cite, SourceFact]]) -> MergedFact:
    best = places[0][1]
    # Whether all sources have the same time in front.
    timed = all(found.text.startswith(best.text[:5]) for _, found in places)
    joined = {
        "text": best.text if timed else untimed(best.text),
        "day": max(found.day for _, found in places),
        "about": tuple(dict.fromkeys(handle for _, found in places for handle in found.about)),
        "by_owner": any(found.by_owner for _, found in places),
        "outside": all(found.outside for _, found in places),
    }
    cites = tuple(dict.fromkeys(cite for cite, _ in places))[:MOST_SOURCES]
    return MergedFact(**{**asdict(best), **joined}, key=key, cites=cites)


def _without_echoes(facts: list[MergedFact]) -> list[MergedFact]:
    """Without sentences of sessions that only repeat a note, with a few words before it."""
    noted = {" ".join(words_of(fact.text)) for fact in facts if fact.signal not in ("talk", "tools")}

    def repeats(words: list[str]) -> bool:
        return any(" ".join(words[start:]) in noted for start in range(1, min(ECHO_WORDS, len(words) - 2)))

    return [fact for fact in facts if fact.signal != "talk" or not repeats(words_of(fact.text))]


def _order(fact: MergedFact) -> tuple[int, bool, int, Cite]:
    """By signal; facts without a day first, then the newest; then by source."""
    cite = fact.cites[0]
    return cite.rank, bool(fact.day), -int(fact.day.replace("-", "") or 0), cite


MOST_CITES = 4  # of one fact in its line; the front matter has them all
FROM_OUTSIDE = OUTSIDE_MARK.rstrip(")")
HEADINGS = dict(zip(FOLDERS, ("People", "Projects", "Decisions", "Preferences", "Patterns", "Topics"), strict=True))
_APART = re.compile(r"(`[^`]*`|\[\[[^\[\]]*\]\]|\]\([^)\]]*\)|\b[a-z][a-z0-9+.-]{0,20}://\S+)")
_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")
_FACT = re.compile(r"^\d+\. (?P<text>.*) \((?:\d{4}-\d{2}-\d{2}, )?(?P<cites>`[^`]*`(?:, `[^`]*`)*)(?:, [^()`]*)?\)$")


class RenderedPage(Struct, frozen=True):
    front: tuple[tuple[str, str], ...]  # our keys, each with its lines
    body: str  # what stands between our marks
    keys: tuple[str, ...]  # of its lines, see `line_key`


class WrittenFact(Struct, frozen=True):
    """A fact on a page."""

    text: str
    cites: tuple[str, ...]


def render(page: Page, names: Names, pages: Mapping[str, Page], prose: str = "") -> RenderedPage:
    """`pages` are the possible targets of links."""

    def linked(text: str) -> str:
        return _add_links(plain(text), page.path, names, pages)

    lines = [f"# {plain(page.title)}", ""]
    if prose:
        lines += [linked(prose), ""]
    lines += ["## Facts", ""]
    lines += [f"{number}. {linked(fact.text)} ({_sources(fact)})" for number, fact in enumerate(page.facts, 1)]
    if page.more:
        lines += ["", f"… and {page.more:,} more in the sources."]
    if related := _related(page, names, pages):
        lines += ["", "## See also", "", *(f"- {link(each)}" for each in related)]
    day = max(fact.day for fact in page.facts)
    places = {(cite.file, cite.first, cite.last): str(cite) for fact in page.facts for cite in fact.cites}
    cites = [places[place] for place in sorted(places)]
    front = [("title", json.dumps(page.title, ensure_ascii=False)), ("kind", page.kind)]
    front += [("updated", day)] if day else []
    front += [("sources", "".join(f"\n  - {json.dumps(cite, ensure_ascii=False)}" for cite in cites))]
    return rendered(front, lines)


def render_index(pages: Iterable[Page]) -> RenderedPage:
    lines, listed = ["# Index", ""], list(pages)
    for folder in FOLDERS:
        if found := [page for page in listed if page.path.startswith(f"{folder}/")]:
            lines += [f"## {HEADINGS[folder]}", "", *map(_entry, found), ""]
    lines += ["What changed and when: [[log]]"]
    return rendered([("title", '"Index"'), ("kind", "index")], lines)


def rendered(front: Iterable[tuple[str, str]], lines: Iterable[str]) -> RenderedPage:
    listed = "\n".join(lines).split("\n")
    keys = tuple(dict.fromkeys(line_key(line) for line in listed if line.strip()))
    return RenderedPage((*front, ("generated", "pal ingest")), "\n".join(listed), keys)


def link(page: Page) -> str:
    return f"[[{page.path}|{plain(page.title).replace('|', ' ').replace(']', ' ')}]]"


def plain(text: str) -> str:
    """Without HTML and images, except in code."""
    parts = _APART.split(text)
    return "".join(part if part[:1] == "`" else part.replace("<", "\\<").replace("![", "!\\[") for part in parts)


def read_fact(line: str) -> WrittenFact | None:
    """The fact in a line; None when there is none."""
    if (match := _FACT.match(line)) is None:
        return None
    text = _LINK.sub(r"\1", match["text"]).replace("\\<", "<").replace("!\\[", "![")
    return WrittenFact(text, tuple(cite.strip("`") for cite in match["cites"].split(", ")))


def line_key(line: str) -> str:
    """A key of a line's text, without its number and sources."""
    fact = read_fact(line)
    return key_of(fact.text if fact else "line " + _LINK.sub(r"\1", line))


def _add_links(text: str, here: str, names: Names, pages: Mapping[str, Page]) -> str:
    """Link the first mention of every other page."""
    done = {here}
    parts = _APART.split(text)
    for index in range(0, len(parts), 2):
        pieces, at = [], 0
        for start, end, name in names.spans(parts[index]):
            if name.page in pages and name.page not in done and start >= at:
                done.add(name.page)
                pieces += [parts[index][at:start], f"[[{name.page}|{parts[index][start:end]}]]"]
                at = end
        parts[index] = "".join((*pieces, parts[index][at:]))
    return "".join(parts)


def _sources(fact: MergedFact) -> str:
    cites = [f"`{str(cite).replace('`', '')}`" for cite in fact.cites]
    more = f"{len(cites) - MOST_CITES} more" if len(cites) > MOST_CITES else ""
    return ", ".join(filter(None, (fact.day, *cites[:MOST_CITES], more, FROM_OUTSIDE if fact.outside else "")))


def _related(page: Page, names: Names, pages: Mapping[str, Page]) -> list[Page]:
    """The pages of what its facts name, and those of the same name in another folder."""
    name = page.path.partition("/")[2]
    named = {f"{folder}/{name}" for folder in FOLDERS if folder != "topics" and name != GENERAL}
    named |= {each.page for fact in page.facts for each in names.of(fact)}
    return [pages[path] for path in sorted(named - {page.path}) if path in pages]


def _entry(page: Page) -> str:
    day = max(fact.day for fact in page.facts)
    count = len(page.facts) + page.more
    return f"- {link(page)}: {count:,} {'fact' if count == 1 else 'facts'}{f', last {day}' if day else ''}"


BEGIN = "<!-- pal:ingest: this part is written anew; write above or below it -->"
YOURS, YOURS_END = "<!-- yours -->", "<!-- /yours -->"
OUR_KEYS = frozenset({"title", "kind", "updated", "sources", "generated"})
_END = re.compile(r"<!-- /pal:ingest ([0-9a-f]{16}) -->")
_KEY = re.compile(r"([A-Za-z_][\w-]*):(.*)")


class MergedPage(Struct, frozen=True):
    text: str
    removed: frozenset[str] = frozenset()  # keys of lines that a person has removed
    kept: int = 0  # lines of a person that were in our part


class PageParts(Struct, frozen=True):
    """The parts of an existing page."""

    front: tuple[tuple[str, str], ...]
    before: str
    ours: str | None
    after: str
    edited: bool


def merge(existing: str | None, page: RenderedPage, known: Collection[str]) -> MergedPage:
    """`known` are the keys of the lines that we wrote last time, if they are known."""
    if existing is None:
        return MergedPage(_written(page.front, "", page.body, ""))
    old = part(existing)
    theirs = [(key, value) for key, value in old.front if key not in OUR_KEYS]
    after, removed, own = old.after, frozenset[str](), list[str]()
    if old.edited and old.ours is not None:
        there = {line_key(line): line for line in old.ours.split("\n") if line.strip()}
        own = [line for key, line in there.items() if key not in known and key not in page.keys]
        removed = frozenset(known) - there.keys()
        after = _with_yours(after, own)
    return MergedPage(_written((*page.front, *theirs), old.before, page.body, after), removed, len(own))


def emptied(existing: str) -> str:
    """A page without our part: the person's text, or nothing."""
    old = part(existing)
    theirs = "".join(f"{key}:{value}\n" for key, value in old.front if key not in OUR_KEYS)
    after = _with_yours(old.after, [old.ours] if old.edited and old.ours else [])
    rest = "\n".join(each for each in (old.before.strip("\n"), after.strip("\n")) if each)
    front = f"---\n{theirs}---\n" if theirs and rest else ""
    return f"{front}{rest}\n" if rest else ""


def part(text: str) -> PageParts:
    front, body = _front(text.replace("\r\n", "\n"))
    lines = body.split("\n")
    begin = next((n for n, line in enumerate(lines) if line == BEGIN), len(lines))
    ends = [(n, mark[1]) for n, line in enumerate(lines) if n > begin and (mark := _END.fullmatch(line))]
    if not ends:  # not our page, or the marks were removed: all of it belongs to a person
        return PageParts(front, body if body.strip() else "", None, "", edited=False)
    end, marked = ends[-1]
    ours = "\n".join(lines[begin + 1 : end])
    return PageParts(front, "\n".join(lines[:begin]), ours, "\n".join(lines[end + 1 :]), marked != digest(ours))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _written(front: Iterable[tuple[str, str]], before: str, ours: str, after: str) -> str:
    head = "".join(f"{key}:{'' if value[:1] in ('', ' ', chr(10)) else ' '}{value}\n" for key, value in front)
    above = f"{before.strip(chr(10))}\n\n" if before.strip() else "\n"
    below = f"\n{after.strip(chr(10))}\n" if after.strip() else ""
    return f"---\n{head}---\n{above}{BEGIN}\n{ours}\n<!-- /pal:ingest {digest(ours)} -->\n{below}"


def _with_yours(after: str, lines: list[str]) -> str:
    if not lines:
        return after
    if YOURS in after and YOURS_END in after:
        head, _, tail = after.rpartition(YOURS_END)
        return f"{head}{chr(10).join(lines)}\n{YOURS_END}{tail}"
    gap = f"{after.rstrip(chr(10))}\n\n" if after.strip() else "\n"
    return f"{gap}{YOURS}\n{chr(10).join(lines)}\n{YOURS_END}\n"


def _front(text: str) -> tuple[tuple[tuple[str, str], ...], str]:
    """The keys of the front matter with their values, unchanged, and the rest of the page."""
    lines = text.split("\n")
    marks = [n for n, line in enumerate(lines) if line.rstrip() == "---"]
    if marks[:1] != [0] or len(marks) < 2:
        return (), text
    end = marks[1]
    fields: list[tuple[str, str]] = []
    for line in lines[1:end]:
        if match := _KEY.fullmatch(line):
            fields.append((match[1], match[2]))
        elif fields:
            fields[-1] = (fields[-1][0], f"{fields[-1][1]}\n{line}")
    return tuple(fields), "\n".join(lines[end + 1 :])
