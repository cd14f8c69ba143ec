"""Make a wiki of a home: read new sources, sort facts to pages, and write the pages that have changed.

The facts of a source depend only on its content, so a source with the same digest is not read again. Pages depend only
on all facts. A page that would not change is not even opened, and a person's changes to a page are never lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Literal

from msgspec import Struct

from palinurus.config.secrets import Redactor
from palinurus.extensions.migrate.foreign import ForeignHome
from palinurus.extensions.migrate.ingest.facts import Cleaner, Redact
from palinurus.extensions.migrate.ingest.pages import Page, join_facts, pages_of
from palinurus.extensions.migrate.ingest.prose import Ask, ProseResult, tellable, write_prose
from palinurus.extensions.migrate.ingest.sources import WikiSource, WikiSources, check_apart
from palinurus.extensions.migrate.ingest.state import KnownSource, State, load, save, wiki_lock
from palinurus.extensions.migrate.ingest.wiki import MadePage, ReadSource, SourceOutcome, Wiki
from palinurus.extensions.migrate.report import SkippedItem


class IngestReport(Struct, frozen=True, rename="camel"):
    source: str
    wiki: str
    applied: bool
    sources: tuple[ReadSource, ...]
    pages: tuple[MadePage, ...]
    facts: int
    redacted: int  # secrets that were removed from sources that were read in this run
    left_out: dict[str, int]  # on purpose, by reason
    skipped: tuple[SkippedItem, ...]  # what could not be read
    skipped_total: int
    model: str
    model_error: str  # why no more requests were made
    requests: int
    changed: bool
    seconds: float


class IngestProgress(Struct, frozen=True):
    stage: Literal["reading", "asking"]
    done: int
    total: int


Tell = Callable[[IngestProgress], None]
"""Called with the progress, from any thread, often. Must not raise."""

OnBegin = Callable[[], None]
"""Called once, in a thread, before the wiki is written. What it raises ends the run."""

COMMAND = "pal ingest"


class IngestOrder(Struct, frozen=True):
    wiki: Path
    now_ms: int
    zone: tzinfo
    agent: str = ""  # empty: all
    apply: bool = True


class Ingest:
    """One run. `secrets` are those of the user's own home."""

    def __init__(
        self,
        home: ForeignHome,
        order: IngestOrder,
        secrets: Redactor,
        tell: Tell,
        ask: Ask | None = None,
        *,
        on_begin: OnBegin = lambda: None,
    ) -> None:
        self._on_begin = on_begin
        self._home = home
        self._order = order
        theirs = Redactor(home.secrets)
        self._redact: Redact = lambda text: theirs.redact(secrets.redact(text))
        self._cleaner = Cleaner(self._redact)
        self._tell = tell
        self._ask = ask
        self._sources = WikiSources(home, order.wiki, order.zone, order.agent)
        self._read: list[ReadSource] = []
        self._requests = 0
        self._model = self._error = ""

    async def run(self) -> IngestReport:
        """Raises BadRequest for the wiki of another home, StorageError or WorkspaceError when it cannot be written.

        That is also so while another process is writing it.
        """
        check_apart(self._home.root, self._order.wiki)
        with wiki_lock(self._order.wiki, COMMAND) if self._order.apply else nullcontext():
            return await self._run()

    async def _run(self) -> IngestReport:
        began = time.perf_counter()
        state = await asyncio.to_thread(load, self._order.wiki, str(self._home.root))
        if self._order.apply:  # before the first page is written, so that `pal forget` knows the wiki
            await asyncio.to_thread(self._on_begin)
        state.sources = await asyncio.to_thread(self._read_sources, state)
        pages, names = await asyncio.to_thread(lambda: pages_of(join_facts(state.sources)))
        wiki = Wiki(self._order.wiki, state, names, self._redact, apply=self._order.apply)
        pages = wiki.wanted(pages)
        texts = await self._prose(wiki, pages)
        made = await asyncio.to_thread(wiki.write, pages, texts)
        if changes := [page for page in made if page.outcome in ("new", "changed", "removed")]:
            at = datetime.fromtimestamp(self._order.now_ms / 1000, self._order.zone)
            await asyncio.to_thread(wiki.log, f"{at:%Y-%m-%d %H:%M}", self._read, changes)
        if self._order.apply and (changes or any(each.outcome != "same" for each in self._read)):
            await asyncio.to_thread(save, self._order.wiki, state)
        losses = self._home.losses
        return IngestReport(
            source=str(self._home.root),
            wiki=str(self._order.wiki),
            applied=self._order.apply,
            sources=tuple(self._read),
            pages=tuple(made),
            facts=len({fact.key for page in pages for fact in page.facts}),
            redacted=self._cleaner.taken,
            left_out=dict(self._sources.left_out),
            skipped=tuple(losses.listed),
            skipped_total=losses.total,
            model=self._model,
            model_error=self._error,
            requests=self._requests,
            changed=bool(changes),
            seconds=round(time.perf_counter() - began, 3),
        )

    def _read_sources(self, state: State) -> dict[str, KnownSource]:
        """All sources as they are now. With --agent, those of other agents stay as they were."""
        readable = list(self._sources.all())
        total, done = sum(each.size for each in readable), 0
        now: dict[str, KnownSource] = {}
        for each in readable:
            if known := self._read_source(each, state.sources.get(each.path)):
                now[each.path] = known
            done += each.size
            self._tell(IngestProgress("reading", done, total))
        for path, old in state.sources.items():
            if path not in now and self._order.agent not in ("", old.agent):
                now[path] = old
            elif path not in now:
                self._read.append(ReadSource(path, old.agent, old.role, "gone", 0))
        return dict(sorted(now.items()))

    def _read_source(self, each: WikiSource, old: KnownSource | None) -> KnownSource | None:
        digest = each.digest()
        if old is not None and old.digest == digest:
            self._read.append(ReadSource(each.path, each.agent, each.role, "same", len(old.found)))
            return old
        found = each.read(self._cleaner)
        if found is None:
            return None
        outcome: SourceOutcome = "new" if old is None else "changed"
        self._read.append(ReadSource(each.path, each.agent, each.role, outcome, len(found)))
        return KnownSource(digest, each.agent, each.role, tuple(found))

    async def _prose(self, wiki: Wiki, pages: list[Page]) -> dict[str, ProseResult]:
        """The text of each page: the old one if its facts are the same, else a new one if there is a model."""
        texts = wiki.stored_prose(pages)
        if self._ask is None or not self._order.apply:
            return texts
        waiting = [page for page in pages if page.path not in texts and tellable(page)]
        for done, page in enumerate(waiting):
            self._tell(IngestProgress("asking", done, len(waiting)))
            if not self._error:
                result = texts[page.path] = await write_prose(page, self._ask, self._redact)
                self._requests += result.requests
                self._error = result.error
                self._model = result.prose.model if result.prose else self._model
        return texts
