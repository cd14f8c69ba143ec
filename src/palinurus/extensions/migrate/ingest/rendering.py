"""Render a page as markdown: front matter, facts with their sources, links. Pure.

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

from msgspec import Struct

from palinurus.domain.messages import OUTSIDE_MARK
from palinurus.extensions.migrate.ingest.facts import Fact, key_of
from palinurus.extensions.migrate.ingest.names import Names
from palinurus.extensions.migrate.ingest.pages import FOLDERS, Page

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
    lines = ["# Index", ""]
    by_folder: dict[str, list[Page]] = {}
    for page in pages:
        by_folder.setdefault(page.path.partition("/")[0], []).append(page)
    for folder in FOLDERS:
        if found := by_folder.get(folder):
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
    match = _FACT.match(line)
    if match is None:
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


def _sources(fact: Fact) -> str:
    cites = [f"`{str(cite).replace('`', '')}`" for cite in fact.cites]
    parts = [*([fact.day] if fact.day else []), *cites[:MOST_CITES]]
    if len(cites) > MOST_CITES:
        parts.append(f"{len(cites) - MOST_CITES} more")
    return ", ".join([*parts, *([FROM_OUTSIDE] if fact.outside else [])])


def _related(page: Page, names: Names, pages: Mapping[str, Page]) -> list[Page]:
    """The pages of what its facts name, and those of the same name in another folder."""
    name = page.path.partition("/")[2]
    paths: Collection[str] = {f"{folder}/{name}" for folder in FOLDERS if folder != "topics" and name != "general"}
    paths = {*paths, *(each.page for fact in page.facts for each in names.of(fact))} - {page.path}
    return [pages[path] for path in sorted(paths) if path in pages]


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
    if lines[0].rstrip() != "---":
        return (), text
    end = next((n for n, line in enumerate(lines[1:], start=1) if line.rstrip() == "---"), None)
    if end is None:
        return (), text
    fields: list[tuple[str, str]] = []
    for line in lines[1:end]:
        if match := _KEY.fullmatch(line):
            fields.append((match[1], match[2]))
        elif fields:
            fields[-1] = (fields[-1][0], f"{fields[-1][1]}\n{line}")
    return tuple(fields), "\n".join(lines[end + 1 :])
