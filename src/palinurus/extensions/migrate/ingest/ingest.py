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
from palinurus.extensions.migrate.ingest.facts import Cleaner, Redact
from palinurus.extensions.migrate.ingest.pages import Page, join_facts, pages_of
from palinurus.extensions.migrate.ingest.prose import Ask, digest_of, tellable, write_prose
from palinurus.extensions.migrate.ingest.sources import OpenSource, WikiSource, WikiSources, check_apart
from palinurus.extensions.migrate.ingest.state import KnownSource, State, load, save, wiki_lock
from palinurus.extensions.migrate.ingest.wiki import MadePage, ProseOutcome, ReadSource, SourceOutcome, Wiki
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
    """One run. `secrets` are those of the user's own home; `opened` has those of the home that is read."""

    def __init__(
        self,
        opened: OpenSource,
        order: IngestOrder,
        secrets: Redactor,
        tell: Tell,
        ask: Ask | None = None,
        *,
        on_begin: OnBegin = lambda: None,
    ) -> None:
        self._on_begin = on_begin
        self._home = opened.home
        self._order = order
        theirs = Redactor(opened.secrets)
        self._redact: Redact = lambda text: theirs.redact(secrets.redact(text))
        self._cleaner = Cleaner(self._redact)
        self._tell = tell
        self._ask = ask
        self._sources = WikiSources(opened.home, order.wiki, order.zone, order.agent)
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
        texts = await self._prose(pages, state)
        made = await asyncio.to_thread(wiki.write, pages, texts)
        if changes := [page for page in made if page.outcome in ("new", "changed", "removed")]:
            await asyncio.to_thread(wiki.log, self._day(), self._read, changes)
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

    def _day(self) -> str:
        return f"{datetime.fromtimestamp(self._order.now_ms / 1000, self._order.zone):%Y-%m-%d %H:%M}"

    def _read_sources(self, state: State) -> dict[str, KnownSource]:
        """All sources as they are now. With --agent, those of other agents stay as they were."""
        readable = list(self._sources.all())
        total, done = sum(each.size for each in readable), 0
        now: dict[str, KnownSource] = {}
        for each in readable:
            known = self._read_source(each, state.sources.get(each.path))
            if known is not None:
                now[each.path] = known
            done += each.size
            self._tell(IngestProgress("reading", done, total))
        for path, old in state.sources.items():
            if path in now:
                continue
            if self._order.agent and old.agent != self._order.agent:
                now[path] = old
            else:
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

    async def _prose(self, pages: list[Page], state: State) -> dict[str, ProseOutcome]:
        """The text of each page: the old one if its facts are the same, else a new one if there is a model."""
        outcomes: dict[str, ProseOutcome] = {}
        waiting = []
        for page in pages:
            facts = tellable(page)
            known = state.pages.get(page.path)
            if known is not None and known.prose is not None and facts and known.prose.of == digest_of(facts):
                outcomes[page.path] = ProseOutcome(known.prose, "kept")
            elif facts and self._ask is not None and self._order.apply:
                waiting.append(page)
        for done, page in enumerate(waiting):
            self._tell(IngestProgress("asking", done, len(waiting)))
            if self._ask is not None and not self._error:
                outcomes[page.path] = await self._write_prose(page, self._ask)
        return outcomes

    async def _write_prose(self, page: Page, ask: Ask) -> ProseOutcome:
        outcome = await write_prose(page, ask, self._redact)
        self._requests += outcome.requests
        self._error = outcome.error
        if outcome.prose is None:
            return ProseOutcome(None, "refused")
        self._model = outcome.prose.model
        return ProseOutcome(outcome.prose, "model")
