"""The folder of pages: compare them with what a person has changed, and write the changed ones. Each file is written
whole or not at all, and never through a link that leads out of the wiki."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from palinurus.config.atomic import make_directory
from palinurus.domain.errors import NotFound, Stale
from palinurus.extensions.migrate.ingest.facts import Redact, Role
from palinurus.extensions.migrate.ingest.names import Names
from palinurus.extensions.migrate.ingest.pages import (
    MergedPage,
    Page,
    RenderedPage,
    digest,
    emptied,
    merge,
    render,
    render_index,
    rendered,
)
from palinurus.extensions.migrate.ingest.prose import ProseResult, is_of
from palinurus.extensions.migrate.ingest.state import KnownPage, Prose, State
from palinurus.workspace.boundary import Boundary
from palinurus.workspace.write import delete_file, rewrite

INDEX, LOG = "index", "log"
NEW_PAGE = KnownPage("", ())
LOG_HEAD = '---\ntitle: "Log"\nkind: log\ngenerated: pal ingest\n---\n\n# Log\n'
PRIVATE = 0o600  # a wiki has facts about people
MOST_LOGGED = 20  # pages named in one entry of the log
SourceOutcome = Literal["new", "changed", "same", "gone"]
PageOutcome = Literal["new", "changed", "same", "removed", "away"]


class ReadSource(Struct, frozen=True, rename="camel"):
    path: str
    agent: str
    role: Role
    outcome: SourceOutcome
    facts: int


class MadePage(Struct, frozen=True, rename="camel", omit_defaults=True):
    """`away`: a person has deleted it, and it stays deleted."""

    path: str
    kind: str
    title: str
    outcome: PageOutcome
    facts: int = 0
    prose: Literal["", "model", "kept", "refused"] = ""  # refused: the model's text was not true to the facts
    kept_lines: int = 0  # lines of a person that were in our part
    thrown_out: int = 0  # facts that a person has removed


class Wiki:
    """Updates `state.pages` as pages are written."""

    def __init__(self, root: Path, state: State, names: Names, redact: Redact, *, apply: bool) -> None:
        self._files = Boundary(root)
        self._state = state
        self._names = names
        self._redact = redact
        self._apply = apply
        self._linked: Mapping[str, Page] = {}

    def wanted(self, pages: Iterable[Page]) -> list[Page]:
        """Without pages that a person has deleted, or whose facts they have all removed."""
        kept = []
        for page in pages:
            known = self._state.pages.get(page.path)
            away = known is not None and self._read(page.path) is None
            if known is not None and away != known.away:
                self._state.pages[page.path] = replace(known, away=away)
            if not away:
                kept.append(self._without_removed(page))
        return [page for page in kept if page.facts]

    def stored_prose(self, pages: Iterable[Page]) -> dict[str, ProseResult]:
        """Texts of pages whose facts have not changed, by path."""
        stored = [(page, self._state.pages.get(page.path, NEW_PAGE).prose) for page in pages]
        return {page.path: ProseResult(prose, "kept") for page, prose in stored if is_of(prose, page)}

    def _without_removed(self, page: Page) -> Page:
        removed = self._state.pages.get(page.path, NEW_PAGE).removed
        return replace(page, facts=tuple(fact for fact in page.facts if fact.key not in removed))

    def write(self, pages: list[Page], texts: Mapping[str, ProseResult]) -> list[MadePage]:
        if self._apply:
            make_directory(self._files.root)
        self._linked = {page.path: page for page in pages}
        made = [self._page(page, texts.get(page.path)) for page in pages]
        outcome, _ = self._put(INDEX, self._clean(render_index(pages)))
        made.append(MadePage(INDEX, "index", "Index", outcome))
        return [*made, *self._rest({*self._linked, INDEX})]

    def log(self, at: str, read: Iterable[ReadSource], changes: list[MadePage]) -> None:
        """Add an entry at the end; the text before it is never changed."""
        if not self._apply:
            return
        sources = Counter(each.outcome for each in read)
        outcomes = Counter(page.outcome for page in changes)
        lines = [f"## {at}", ""]
        lines += [f"- Sources: {', '.join(f'{count} {name}' for name, count in sorted(sources.items()))}"]
        lines += [f"- Pages: {', '.join(f'{count} {name}' for name, count in sorted(outcomes.items()))}"]
        named = [page for page in changes if page.path != INDEX]
        lines += [f"- {page.outcome}: [[{page.path}]]" for page in named[:MOST_LOGGED]]
        if len(named) > MOST_LOGGED:
            lines.append(f"- … and {len(named) - MOST_LOGGED} more")
        entry = "\n".join(lines)

        def added(_: str, before: bytes | None) -> bytes:
            head = before.decode("utf-8", "replace") if before else LOG_HEAD
            return f"{head.rstrip(chr(10))}\n\n{entry}\n".encode()

        rewrite(self._files, f"{LOG}.md", added, create=True, mode=PRIVATE)

    def _page(self, page: Page, text: ProseResult | None) -> MadePage:
        prose = text.prose if text else None
        outcome, merged = self._put(page.path, self._rendered(page, prose), prose)
        dropped = merged.removed & {fact.key for fact in page.facts}
        if dropped:  # the page is written again without these facts
            page = self._without_removed(page)
            prose = prose if is_of(prose, page) else None
            if page.facts:
                self._put(page.path, self._rendered(page, prose), prose)
        how: Literal["", "model", "kept", "refused"] = text.how if text and (prose or text.how == "refused") else ""
        count = len(page.facts) + page.more
        return MadePage(page.path, page.kind, page.title, outcome, count, how, merged.kept, len(dropped))

    def _rendered(self, page: Page, prose: Prose | None) -> RenderedPage:
        return self._clean(render(page, self._names, self._linked, prose.text if prose else ""))

    def _clean(self, page: RenderedPage) -> RenderedPage:
        """Redact again: facts are redacted already, but not titles, file names and what joining may have made."""
        body = self._redact(page.body)
        front = tuple((key, self._redact(value)) for key, value in page.front)
        return rendered(front[:-1], body.split("\n")) if (body, front) != (page.body, page.front) else page

    def _put(self, path: str, page: RenderedPage, prose: Prose | None = None) -> tuple[PageOutcome, MergedPage]:
        """The outcome, and what a person had changed."""
        known = self._state.pages.get(path, NEW_PAGE)
        now = digest(repr((page.front, page.body)))
        if known.digest == now and not known.away:
            return "same", MergedPage("")
        before = self._read(path)
        merged = merge(before, page, known.keys)
        dropped = {*known.removed, *merged.removed}
        if self._apply and merged.text != before:
            made = partial(_unless_changed, before, merged.text)
            rewrite(self._files, f"{path}.md", made, create=True, mode=PRIVATE)
        self._state.pages[path] = KnownPage(now, page.keys, tuple(sorted(dropped)), prose=prose)
        if merged.text == before:
            return "same", merged
        return "new" if before is None else "changed", merged

    def _rest(self, wanted: set[str]) -> Iterable[MadePage]:
        """Pages without facts: only a person's text on them stays."""
        rest = [path for path in sorted(self._state.pages) if path not in wanted]
        for path in rest:
            before, kind = self._read(path), path.partition("/")[0]
            if self._state.pages[path].away:
                yield MadePage(path, kind, path, "away")
                continue
            del self._state.pages[path]
            if before is not None:  # else a run removed it that was stopped before it could save the state
                yield MadePage(path, kind, path, "removed", kept_lines=self._empty(path, before))

    def _empty(self, path: str, before: str) -> int:
        """Remove our part, and the page if there is nothing else. How many lines are left."""
        left = emptied(before)
        if self._apply and left:
            rewrite(self._files, f"{path}.md", lambda *_: left.encode(), create=False)
        elif self._apply:
            delete_file(self._files, f"{path}.md", lambda *_: None)
        return len(left.splitlines())

    def _read(self, path: str) -> str | None:
        with suppress(NotFound):
            if self._files.root.is_dir():  # it is not there before the first run
                return self._files.read_bytes(f"{path}.md").decode("utf-8", "replace")
        return None


def _unless_changed(before: str | None, after: str, _: str, there: bytes | None) -> bytes:
    """Raises Stale when the page was saved since it was read."""
    if (there.decode("utf-8", "replace") if there is not None else None) != before:
        raise Stale("a page of the wiki was changed meanwhile", hint="run it again; nothing was lost")
    return after.encode("utf-8", "replace")
