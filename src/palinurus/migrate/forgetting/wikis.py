"""Words out of a wiki that `pal ingest` made: the facts that hold them, or whose source lines go, and then every line.

Pages are made anew from the facts that stay, by the very code that made them: numbers, links, the index and what a
person wrote on a page are right afterwards. No source is read for it. Everything here blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from msgspec.structs import replace

from palinurus.config.atomic import write_atomic
from palinurus.migrate.forgetting.files import holds, plain_files, text_of
from palinurus.migrate.forgetting.report import Spot
from palinurus.migrate.forgetting.words import Words
from palinurus.migrate.ingest.cleaning import Redact
from palinurus.migrate.ingest.fact import Found
from palinurus.migrate.ingest.lock import wiki_lock
from palinurus.migrate.ingest.names import slug
from palinurus.migrate.ingest.notes import GENERATED
from palinurus.migrate.ingest.pages import Page, Told, join, pages_of
from palinurus.migrate.ingest.prose import digest_of, tellable
from palinurus.migrate.ingest.state import FILE, KnownSource, State, known, save
from palinurus.migrate.ingest.wiki import INDEX, LOG, ProseOutcome, Wiki

SHORTEST_SLUG = 3
FOREIGN = "a file in the wiki that we did not write"
LEFT = "the words stand there still"

LinesGone = Callable[[str, str], Collection[int] | None]
"""Of a source, by its path and digest: the lines that go, as far as they are known; None: all of it goes."""


class WikiCopy:
    """One wiki. `look` before anything of its sources is touched: it remembers which facts go."""

    def __init__(self, root: Path, words: Words, gone: LinesGone, redact: Redact) -> None:
        self.root = root
        self._words = Words([*words.texts, *(each for text in words.texts if len(each := slug(text)) >= SHORTEST_SLUG)])
        self._gone = gone
        self._redact = redact
        self._state = known(root) or State()
        self._kept: dict[str, KnownSource] = {}
        self._facts = 0  # that go

    @property
    def source(self) -> str:
        """The home that it was made of, as it says itself."""
        return self._state.home

    def look(self, *, quoting: bool) -> list[Spot]:
        for name, source in self._state.sources.items():
            lines = self._gone(name, source.digest)
            kept = () if lines is None else tuple(each for each in source.found if not self._goes(each, lines))
            self._facts += len(source.found) - len(kept)
            self._kept[name] = replace(source, found=kept)
        spots = [Spot(f"wiki {self.root}: facts", "rewrite", self._facts)] if self._facts else []
        for path in self._pages():
            text = text_of(path) or ""
            if count := len(self._words.lines(text)):
                quotes = tuple(self._words.quotes(text)) if quoting else ()
                spots.append(Spot(f"wiki {self.root}: {path.relative_to(self.root)}", "rewrite", count, quotes=quotes))
        return spots

    def forget(self, command: str) -> None:
        """Raises StorageError, also when an ingest is writing it just now, and WorkspaceError."""
        with wiki_lock(self.root, command):
            if self._facts or any(
                each.prose and self._words.hold(each.prose.text) for each in self._state.pages.values()
            ):
                self._write_anew()
            for path in self._pages():
                text = text_of(path)
                if text is not None and self._words.hold(text):
                    rest = self._words.without(text, stone=())
                    write_atomic(path, rest.encode("utf-8", "surrogateescape"))

    def remains(self) -> list[Spot]:
        ours = {*self._pages(), self.root / FILE}
        return [
            Spot(str(path), "stays", 1, LEFT if path in ours else FOREIGN)
            for path in plain_files(self.root)
            if holds(path, self._words)
        ]

    def _goes(self, found: Found, lines: Collection[int]) -> bool:
        told = (found.text, *found.under, *found.about)
        return any(map(self._words.hold, told)) or any(line in lines for line in range(found.first, found.last + 1))

    def _write_anew(self) -> None:
        state = replace(self._state, sources=self._kept)
        facts = join(Told(path, source.role, source.found) for path, source in state.sources.items())
        pages, names = pages_of(facts)
        wiki = Wiki(self.root, state, names, self._redact, apply=True)
        wanted = wiki.wanted(pages)
        wiki.write(wanted, dict(self._prose(state, wanted)))
        state.pages = {path: page for path, page in state.pages.items() if not (page.away and self._words.hold(path))}
        save(self.root, state)
        self._state = state

    def _prose(self, state: State, pages: list[Page]) -> Iterator[tuple[str, ProseOutcome]]:
        """Texts whose facts are all still there."""
        for page in pages:
            before = state.pages.get(page.path)
            facts = tellable(page)
            if before is None or before.prose is None or not facts or self._words.hold(before.prose.text):
                continue
            if before.prose.of == digest_of(facts):
                yield page.path, ProseOutcome(before.prose, "kept")

    def _pages(self) -> list[Path]:
        """Those that we write on."""
        named = {*self._state.pages, INDEX, LOG}
        files = (path for path in plain_files(self.root) if path.suffix == ".md")
        return [path for path in files if str(path.relative_to(self.root))[:-3] in named or _is_generated(path)]


def _is_generated(path: Path) -> bool:
    return GENERATED in (text_of(path) or "")[:2000]
