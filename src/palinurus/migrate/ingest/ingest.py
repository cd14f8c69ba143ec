"""Distil a home into a wiki: read what is new, put facts on pages, and write the pages that have changed.

Reading a source is a pure function of its content, so a source with the digest of last time is not taken apart again.
Pages are a pure function of all facts. What is written is compared with what was written last time, page by page: a
page on which nothing has changed is not even opened, and a person's changes to it stay where they are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime, tzinfo
from pathlib import Path

from msgspec import Struct

from palinurus.config.secrets import Redactor
from palinurus.migrate.ingest.cleaning import Cleaner, Redact
from palinurus.migrate.ingest.homes import Opened, check_apart
from palinurus.migrate.ingest.lock import wiki_lock
from palinurus.migrate.ingest.names import Names
from palinurus.migrate.ingest.pages import Page, Told, join, pages_of
from palinurus.migrate.ingest.prose import Ask, digest_of, tellable, write_prose
from palinurus.migrate.ingest.report import IngestProgress, IngestReport, ReadSource, SourceOutcome
from palinurus.migrate.ingest.sources import Readable, Sources
from palinurus.migrate.ingest.state import KnownSource, Prose, State, load, save
from palinurus.migrate.ingest.wiki import ProseOutcome, Wiki

Tell = Callable[[IngestProgress], None]
"""Told how far it is, from any thread, often. Must not raise."""


Begun = Callable[[], None]
"""Called once, in a thread, when it is sure that this wiki will be written. What it raises ends the run."""

COMMAND = "pal ingest"


class Order(Struct, frozen=True):
    wiki: Path
    now_ms: int
    zone: tzinfo
    agent: str = ""  # empty: all
    apply: bool = True


class Ingest:
    """One run. `secrets` are those of the house that does it; those of the home are known to `opened`."""

    def __init__(
        self,
        opened: Opened,
        order: Order,
        secrets: Redactor,
        tell: Tell,
        ask: Ask | None = None,
        *,
        begun: Begun = lambda: None,
    ) -> None:
        self._begun = begun
        self._home = opened.home
        self._order = order
        theirs = Redactor(opened.secrets)
        self._redact: Redact = lambda text: theirs.redact(secrets.redact(text))
        self._cleaner = Cleaner(self._redact)
        self._tell = tell
        self._ask = ask
        self._sources = Sources(opened.home, order.wiki, order.zone, order.agent)
        self._read: list[ReadSource] = []
        self._requests = 0
        self._model = self._error = ""

    async def run(self) -> IngestReport:
        """Raises BadRequest for the wiki of another home, StorageError or WorkspaceError when it cannot be written.

        A StorageError also tells that somebody else writes it just now.
        """
        check_apart(self._home.root, self._order.wiki)
        with wiki_lock(self._order.wiki, COMMAND) if self._order.apply else nullcontext():
            return await self._run()

    async def _run(self) -> IngestReport:
        began = time.perf_counter()
        state = await asyncio.to_thread(load, self._order.wiki, str(self._home.root))
        if self._order.apply:  # before the first word is written: `pal forget` must know of it
            await asyncio.to_thread(self._begun)
        state.sources = await asyncio.to_thread(self._known, state)
        pages, names = await asyncio.to_thread(_paged, state)
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

    def _known(self, state: State) -> dict[str, KnownSource]:
        """All sources as they are now. Those of agents that nobody asked for stay as they were."""
        readable = list(self._sources.all())
        total, done = sum(each.size for each in readable), 0
        now: dict[str, KnownSource] = {}
        for each in readable:
            known = self._one(each, state.sources.get(each.path))
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

    def _one(self, each: Readable, old: KnownSource | None) -> KnownSource | None:
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
        """The text of each page: what it has if its facts are the same, else what the model writes, if one is asked."""
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
            if not self._error:
                outcomes[page.path] = await self._told(page)
        return outcomes

    async def _told(self, page: Page) -> ProseOutcome:
        assert self._ask is not None  # noqa: S101  # nobody waits without one
        outcome = await write_prose(page, self._ask, self._redact)
        self._requests += outcome.requests
        self._error = outcome.error
        prose: Prose | None = outcome.prose
        if prose is None:
            return ProseOutcome(None, "refused")
        self._model = prose.model
        return ProseOutcome(prose, "model")


def _paged(state: State) -> tuple[list[Page], Names]:
    facts = join(Told(path, source.role, source.found) for path, source in state.sources.items())
    return pages_of(facts)
