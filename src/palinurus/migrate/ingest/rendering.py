"""A page as markdown: what it is in front matter, its facts with their sources, and where to go on. Pure.

Facts are words of others. What could be more than words where a page is shown (HTML, pictures that load from elsewhere)
is written so that it is not; a comment of theirs can be no mark of ours, because every line of a fact begins with its
number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from palinurus.domain.messages import OUTSIDE_MARK
from palinurus.migrate.ingest.fact import Fact, key_of
from palinurus.migrate.ingest.names import Names
from palinurus.migrate.ingest.pages import FOLDERS, Page

MOST_CITES = 4  # of one fact in its line; the front matter has them all
FROM_OUTSIDE = OUTSIDE_MARK.rstrip(")")
HEADINGS = dict(zip(FOLDERS, ("People", "Projects", "Decisions", "Preferences", "Patterns", "Topics"), strict=True))

_APART = re.compile(r"(`[^`]*`|\[\[[^\[\]]*\]\]|\]\([^)\]]*\)|\b[a-z][a-z0-9+.-]{0,20}://\S+)")
_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")
_FACT = re.compile(r"^\d+\. (?P<text>.*) \((?:\d{4}-\d{2}-\d{2}, )?(?P<cites>`[^`]*`(?:, `[^`]*`)*)(?:, [^()`]*)?\)$")


class Rendered(Struct, frozen=True):
    front: tuple[tuple[str, str], ...]  # our keys, each with its lines
    body: str  # what stands between our marks
    keys: tuple[str, ...]  # of the lines in it, see `line_key`


class Written(Struct, frozen=True):
    """A fact as it stands on a page."""

    text: str
    cites: tuple[str, ...]


def render(page: Page, names: Names, pages: Mapping[str, Page], prose: str = "") -> Rendered:
    """`pages` are those that can be linked to."""
    links = _Links(page.path, names, pages)
    lines = [f"# {plain(page.title)}", ""]
    if prose:
        lines += [links.put(plain(prose)), ""]
    lines += ["## Facts", ""]
    lines += [f"{number}. {links.put(plain(fact.text))} ({_behind(fact)})" for number, fact in enumerate(page.facts, 1)]
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


def render_index(pages: Iterable[Page]) -> Rendered:
    lines = ["# Index", ""]
    by_folder: dict[str, list[Page]] = {}
    for page in pages:
        by_folder.setdefault(page.path.partition("/")[0], []).append(page)
    for folder in FOLDERS:
        if found := by_folder.get(folder):
            lines += [f"## {HEADINGS[folder]}", "", *map(_entry, found), ""]
    lines += ["What changed and when: [[log]]"]
    return rendered([("title", '"Index"'), ("kind", "index")], lines)


def rendered(front: Iterable[tuple[str, str]], lines: Iterable[str]) -> Rendered:
    listed = "\n".join(lines).split("\n")
    keys = tuple(dict.fromkeys(line_key(line) for line in listed if line.strip()))
    return Rendered((*front, ("generated", "pal ingest")), "\n".join(listed), keys)


def link(page: Page) -> str:
    return f"[[{page.path}|{plain(page.title).replace('|', ' ').replace(']', ' ')}]]"


def plain(text: str) -> str:
    """Words only: no HTML and no picture, outside of code."""
    parts = _APART.split(text)
    return "".join(part if part[:1] == "`" else part.replace("<", "\\<").replace("![", "!\\[") for part in parts)


def read_fact(line: str) -> Written | None:
    """The other way round; None for a line that is no fact."""
    match = _FACT.match(line)
    if match is None:
        return None
    text = _LINK.sub(r"\1", match["text"]).replace("\\<", "<").replace("!\\[", "![")
    return Written(text, tuple(cite.strip("`") for cite in match["cites"].split(", ")))


def line_key(line: str) -> str:
    """What a line says, whatever its number and its sources are now."""
    fact = read_fact(line)
    return key_of(fact.text if fact else "line " + _LINK.sub(r"\1", line))


class _Links:
    """Links the first mention of every other page."""

    def __init__(self, here: str, names: Names, pages: Mapping[str, Page]) -> None:
        self._names = names
        self._pages = pages
        self._here = here

    def put(self, text: str) -> str:
        done: set[str] = {self._here}
        parts = _APART.split(text)
        parts[::2] = [self._linked(part, done) for part in parts[::2]]
        return "".join(parts)

    def _linked(self, text: str, done: set[str]) -> str:
        pieces, at = [], 0
        for start, end, name in self._names.spans(text):
            if name.page not in self._pages or name.page in done or start < at:
                continue
            done.add(name.page)
            pieces += [text[at:start], f"[[{name.page}|{text[start:end]}]]"]
            at = end
        return "".join((*pieces, text[at:]))


def _behind(fact: Fact) -> str:
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
