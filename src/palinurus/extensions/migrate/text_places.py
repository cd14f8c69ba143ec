"""Places of words in this extension: documents of other homes that are stored here, wikis and exports.

A wiki loses the facts that hold the words or whose source lines are removed, and then all other lines with the words.
Pages are rendered again from the remaining facts by the code that made them, so numbers, links, the index and text of a
person on a page stay right. Sources are not read for this.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from palinurus.config.atomic import write_atomic
from palinurus.domain.errors import PalinurusError
from palinurus.domain.text_places import Search, Spot, TextFiles, TextPlace, TextRows, WordCheck, Words
from palinurus.extensions.migrate.copies import Copies, ExportCopy
from palinurus.extensions.migrate.ingest.facts import Redact, SourceFact
from palinurus.extensions.migrate.ingest.names import slug
from palinurus.extensions.migrate.ingest.notes import GENERATED
from palinurus.extensions.migrate.ingest.pages import join_facts, pages_of
from palinurus.extensions.migrate.ingest.state import FILE, KnownSource, State, read_state, save, wiki_lock
from palinurus.extensions.migrate.ingest.wiki import INDEX, LOG, Wiki
from palinurus.runtime.redaction import redactor_of
from palinurus.workspace.text_places import holds, plain_files, text_of

COMMAND = "pal forget"
DATABASE = "home.sqlite"
OF_ALL = "it belongs to all agents; without --agent the words are removed"
SHORTEST_SLUG = 3
FOREIGN = "a file in the wiki that `pal ingest` did not write"
LEFT = "the words are still there"
LinesGone = Callable[[str, str], Collection[int] | None]
"""The lines of a source, by its path and digest, that are removed, as far as known; None: all of them."""


class WikiCopy:
    """One wiki. Call `look` before its sources are changed: it finds the facts to remove."""

    kind = "wiki"

    def __init__(self, root: Path, words: Words, gone: LinesGone, redact: Redact) -> None:
        self.root = root
        self._words = Words([*words.texts, *(each for text in words.texts if len(each := slug(text)) >= SHORTEST_SLUG)])
        self._gone = gone
        self._redact = redact
        self._state = read_state(root) or State()
        self._kept: dict[str, KnownSource] = {}
        self._facts = 0  # to remove

    def look(self, *, quoting: bool) -> list[Spot]:
        for name, source in self._state.sources.items():
            lines = self._gone(name, source.digest)
            kept = () if lines is None else tuple(each for each in source.found if not self._is_removed(each, lines))
            self._facts += len(source.found) - len(kept)
            self._kept[name] = replace(source, found=kept)
        spots = [Spot(f"wiki {self.root}: facts", "rewrite", self._facts)] if self._facts else []
        for path in self._pages():
            text = text_of(path) or ""
            if count := len(self._words.lines(text)):
                quotes = tuple(self._words.quotes(text)) if quoting else ()
                spots.append(Spot(f"wiki {self.root}: {path.relative_to(self.root)}", "rewrite", count, quotes=quotes))
        return spots

    def forget(self) -> None:
        """Raises StorageError, also when an ingest is writing the wiki, and WorkspaceError."""
        with wiki_lock(self.root, COMMAND):
            texts = [page.prose.text for page in self._state.pages.values() if page.prose]
            if self._facts or any(map(self._words.hold, texts)):
                self._rewrite()
            for path in self._pages():
                text = text_of(path) or ""
                if self._words.hold(text):
                    write_atomic(path, self._words.without(text, stone=()).encode("utf-8", "surrogateescape"))

    def remains(self) -> list[Spot]:
        ours = {*self._pages(), self.root / FILE}
        held = [path for path in plain_files(self.root) if holds(path, self._words)]
        return [Spot(str(path), "stays", 1, LEFT if path in ours else FOREIGN) for path in held]

    def _is_removed(self, found: SourceFact, lines: Collection[int]) -> bool:
        texts = (found.text, *found.under, *found.about)
        return any(map(self._words.hold, texts)) or any(line in lines for line in range(found.first, found.last + 1))

    def _rewrite(self) -> None:
        state = replace(self._state, sources=self._kept)
        pages, names = pages_of(join_facts(state.sources))
        wiki = Wiki(self.root, state, names, self._redact, apply=True)
        wanted = wiki.wanted(pages)
        stored = wiki.stored_prose(wanted)
        clean = {path: kept for path, kept in stored.items() if kept.prose and not self._words.hold(kept.prose.text)}
        wiki.write(wanted, clean)
        state.pages = {path: page for path, page in state.pages.items() if not (page.away and self._words.hold(path))}
        save(self.root, state)
        self._state = state

    def _pages(self) -> list[Path]:
        """The files that `pal ingest` writes."""
        named = {*self._state.pages, INDEX, LOG}
        files = (path for path in plain_files(self.root) if path.suffix == ".md")
        known = {self.root / f"{name}.md" for name in named}
        return [path for path in files if path in known or GENERATED in (text_of(path) or "")[:2000]]


class HomeCopies(TextPlace):
    """The known wikis and exports. With --agent they are only named, because they belong to all agents."""

    goes_first = True

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        known = Copies(search.services.home.root).all()
        self.outside = tuple(Path(each.path) for each in known)
        self._there = [each for each in known if Path(each.path).exists()]
        self.away = tuple(f"{each.kind} {each.path}" for each in known if each not in self._there)
        self._copies: list[WikiCopy | ExportCopy] = []
        self._only_named = bool(search.scope.agent)

    async def look(self) -> list[Spot]:
        entries = await self.search.entries() if self._there else {}
        return await asyncio.to_thread(self._look, entries)

    def _look(self, entries: Mapping[str, frozenset[int]]) -> list[Spot]:
        search = self.search
        redactor = redactor_of(search.services.home, search.services.env)
        for each in self._there:
            if each.kind == "wiki":
                gone = partial(_removed_lines, Path(each.source), search, entries)
                self._copies.append(WikiCopy(Path(each.path), search.said, gone, redactor.redact))
        self._copies += [ExportCopy(Path(each.path), search) for each in self._there if each.kind == "export"]
        spots = [spot for each in self._copies for spot in each.look(quoting=search.quoting)]
        return [replace(spot, action="stays", why=OF_ALL) for spot in spots] if self._only_named else spots

    async def forget(self, tell: Callable[[str, int, int], None]) -> list[Spot]:
        return [] if self._only_named else await asyncio.to_thread(self._forget)

    def _forget(self) -> list[Spot]:
        failed: list[Spot] = []
        for each in self._copies:
            try:
                each.forget()
            except (PalinurusError, OSError) as error:
                why = error.message if isinstance(error, PalinurusError) else str(error)
                failed.append(Spot(f"{each.kind} {each.root}", "stays", 1, f"{why}; try again"))
        return failed

    async def look_again(self) -> tuple[list[Spot], list[WordCheck]]:
        if not self._copies:
            return [], []
        found = await asyncio.to_thread(lambda: [spot for each in self._copies for spot in each.remains()])
        found = [replace(spot, why=OF_ALL) for spot in found] if self._only_named else found
        return found, [WordCheck("wikis and exports", len(found))]


def _removed_lines(
    source: Path, search: Search, entries: Mapping[str, frozenset[int]], path: str, digest: str
) -> Collection[int] | None:
    """The lines of a wiki's source that are removed, if the source has not changed since the wiki was made."""
    name, _, session = path.partition("#")
    if name == DATABASE and source == search.services.home.root:
        return None if session in search.scope.sessions else entries.get(session, ())
    text = text_of(source / path)
    if text is None or hashlib.sha256((source / path).read_bytes()).hexdigest() != digest:
        return ()
    return frozenset(line + 1 for line in search.scope.words.lines(text))


PLACES = (
    TextRows("imported_documents", "documents of other homes", "rewrite", "imports", __file__),
    TextFiles(r"copies\.json", "stays", "where copies were written; you can rename them"),
    HomeCopies,
)
