"""Wikis made of small homes, and ways to look at them."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterator, Sequence
from datetime import UTC
from pathlib import Path

from palinurus.config.secrets import Redactor
from palinurus.extensions.migrate.foreign import ForeignHome
from palinurus.extensions.migrate.ingest.facts import words_of
from palinurus.extensions.migrate.ingest.ingest import Ingest, IngestOrder, IngestReport
from palinurus.extensions.migrate.ingest.pages import WrittenFact, read_fact
from palinurus.extensions.migrate.ingest.prose import Ask
from palinurus.extensions.migrate.ingest.sources import open_source
from palinurus.extensions.migrate.ingest.wiki import PageOutcome

NOW = 1_794_800_000_000
_BLACKED_OUT = re.compile(r"\S*\[redacted\]\S*")  # a secret, and what was written onto it without a space
_PLACE = re.compile(r"(?P<file>.+)#L(?P<first>\d+)(?:-L(?P<last>\d+))?")


def make_wiki(
    root: Path, wiki: Path, *, agent: str = "", apply: bool = True, ask: Ask | None = None, secrets: Sequence[str] = ()
) -> IngestReport:
    with open_source(root, {}, root.parent) as opened:
        order = IngestOrder(wiki, NOW, UTC, agent, apply)
        return asyncio.run(Ingest(opened, order, Redactor(secrets), lambda _: None, ask).run())


def outcomes(report: IngestReport, *wanted: PageOutcome) -> list[str]:
    return sorted(page.path for page in report.pages if page.outcome in wanted)


def snapshot(folder: Path) -> dict[str, tuple[str, int]]:
    """Content and time of each file: an untouched one has both as before."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(folder))] = (digest, path.stat().st_mtime_ns)
    return found


def facts_of(wiki: Path) -> Iterator[tuple[str, WrittenFact]]:
    for path in sorted(wiki.rglob("*.md")):
        for line in path.read_text().split("\n"):
            if fact := read_fact(line):
                yield str(path.relative_to(wiki)), fact


def texts(wiki: Path, page: str) -> list[str]:
    return [fact.text for path, fact in facts_of(wiki) if path == f"{page}.md"]


def unfounded(root: Path, wiki: Path) -> list[str]:
    """The facts of a wiki whose source is not there, or does not hold their words."""
    with open_source(root, {}, root.parent) as opened:
        said = _said(opened)
    wrong = []
    for page, fact in facts_of(wiki):
        for cite in fact.cites:
            place = _PLACE.fullmatch(cite)
            assert place is not None, cite
            lines = range(int(place["first"]), int(place["last"] or place["first"]) + 1)
            held = " ".join(said.get((place["file"], number), "") for number in lines)
            if not _within(words_of(_BLACKED_OUT.sub(" ", fact.text)), words_of(held)):
                wrong.append(f"{page}: {fact.text} ({cite})")
    return wrong


def _said(home: ForeignHome) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    for _, path in home.workspace_files():
        if path.suffix == ".md":
            lines = path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
            shown = str(path.relative_to(home.root))
            found |= {(shown, number): line for number, line in enumerate(lines, start=1)}
    for session in home.sessions():
        for entry in session.read():
            found[session.file, entry.number] = f"{entry.text} {entry.row.payload}"
    return found


def _within(words: list[str], held: list[str]) -> bool:
    """In this order, if not without a gap: a secret may have stood between them."""
    waiting = iter(held)
    return all(word in waiting for word in words)
